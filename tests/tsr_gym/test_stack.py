"""snapshot, restore and clone through a whole stack: which stacks are refused, and which state is restored.

That continuation is exact for every supported wrapper is proved in testing/test_check_snapshot.py; here are the single
promises, each against values computed by hand.
"""

import ast
import re
from functools import partial
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import (
    AddRenderObservation,
    NormalizeObservation,
    OrderEnforcing,
    PassiveEnvChecker,
    RecordEpisodeStatistics,
    RecordVideo,
    RenderCollection,
    TimeLimit,
)

from tests.abuse.attacks import forged
from tests.tsr_gym.foreign.worlds import Locked
from tests.tsr_gym.testing.worlds import Board, Dice, PlainWrapper, Walk
from tsr_gym import Limits, Snapshot, SnapshotError, clone, env_support, replayable, restore, snapshot
from tsr_gym.foreign.gymnasium_wrappers import EPISODE_STATE, REFUSED, STATELESS
from tsr_gym.snapshots import Layer
from tsr_gym.stack import Stack


def test_elapsed_steps_and_statistics_count_on_from_where_they_stood():
    env = TimeLimit(Walk(Limits()), 3)
    env.reset(seed=1)
    env.step("Left")
    after_one = snapshot(env)
    assert [env.step("Left")[3] for _ in range(2)] == [False, True]
    restore(env, after_one)
    assert [env.step("Left")[3] for _ in range(2)] == [False, True]
    first, second = gym.make("tsr/Sokoban-v0"), gym.make("tsr/Sokoban-v0")
    first.reset(seed=4)
    restore(second, snapshot(first))
    assert second.step("Up || Left") == first.step("Up || Left")
    assert second.step("Down") == first.step("Down")
    env = RecordEpisodeStatistics(Walk(Limits(max_turns=3)))
    env.reset(seed=1)
    env.step("Left")
    snap = snapshot(env)
    for _ in range(2):
        restore(env, snap)
        env.step("Left")
        info = env.step("Left")[4]
        assert (round(info["episode"]["r"], 9), info["episode"]["l"]) == (-0.3, 3)


def test_a_clone_has_separate_running_means_and_queues():
    env = RecordEpisodeStatistics(NormalizeObservation(Board(Limits(max_turns=1))))
    env.reset(seed=1)
    twin = clone(env)
    mean = env.get_wrapper_attr("obs_rms").mean.copy()
    twin.step(3)
    twin.reset(seed=5)
    assert (list(env.return_queue), len(twin.return_queue)) == ([], 1)
    assert np.array_equal(env.get_wrapper_attr("obs_rms").mean, mean)


def test_pictures_are_the_clones_and_the_snapshots_own():
    env = AddRenderObservation(gym.make("tsr/Sokoban-v0", render_mode="rgb_array", action_type="discrete"))
    env.reset(seed=1)
    twin = clone(env)
    shown = [twin.step(action)[0] for action in range(4)][-1]
    assert np.array_equal(shown, twin.render())
    assert not np.array_equal(shown, env.render())
    env = RenderCollection(gym.make("tsr/Sokoban-v0", render_mode="ansi"))
    env.reset(seed=1)
    snap = snapshot(env)
    env.step("Up")
    assert len(env.frame_list) == 2
    restore(env, snap)
    assert len(env.frame_list) == 1
    with pytest.raises(SnapshotError, match=r"Walk has no state yet: call reset\(\)"):
        snapshot(Walk())


@pytest.mark.parametrize(
    ("make", "level", "why"),
    [
        (lambda: gym.make("tsr/FrozenLake-v0"), "exact", "immutable value"),
        (lambda: gym.make("CartPole-v1"), "deepcopy", "copies were seen to play the same episodes"),
        (lambda: TimeLimit(Locked(), 5), "replay", "lock .*Call tsr_gym.replayable"),
        (lambda: replayable(TimeLimit(Locked(), 5)), "replay", "compares every result"),
        (lambda: Silent(Walk()), "exact", "immutable value"),
        (lambda: Counting(Walk()), "none", "Counting .*wrapper_state"),
        (lambda: Counting(gym.make("CartPole-v1")), "none", "Counting .*wrapper_state"),
        (lambda: gym.make_vec("CartPole-v1", 2, vectorization_mode="sync"), "none", "single ones"),
    ],
    ids=["ours", "deepcopy", "replay", "recorded", "silent wrapper", "unknown wrapper", "weakest layer", "vector"],
)
def test_the_weakest_layer_decides_what_is_supported(make, level, why):
    support = env_support(make())
    assert support.level == level
    assert re.search(why, support.reason)


def test_recording_a_video_takes_no_part_in_snapshots_and_the_cure_is_named():
    # Built without its constructor, which needs moviepy.
    video = object.__new__(RecordVideo)
    gym.Wrapper.__init__(video, gym.make("CartPole-v1", render_mode="rgb_array"))
    video.env.reset(seed=1)
    for ask in (snapshot, clone):
        with pytest.raises(SnapshotError, match=r"RecordVideo .*writes files.*around TreeSearchWrapper"):
            ask(video)
    assert env_support(video).level == "none"
    del video.env


class Silent(gym.Wrapper):
    """Has no state."""


class Counting(gym.Wrapper):
    def __init__(self, env):
        super().__init__(env)
        self.count, self.log = 0, []


def test_a_stack_that_is_looked_up_once_agrees_with_the_functions():
    env = RecordEpisodeStatistics(Silent(TimeLimit(OrderEnforcing(PassiveEnvChecker(Dice())), 9)))
    env.reset(seed=1)
    stack = Stack(env)
    before = stack.snapshot()
    assert before == snapshot(env)
    played = [env.step(0) for _ in range(3)]
    assert stack.snapshot() == snapshot(env) != before
    stack.restore(before)
    assert [env.step(0)[:2] for _ in range(3)] == [result[:2] for result in played]
    rolls = []
    for put_back in (stack.restore, lambda snap, seed: restore(env, snap, noise="fresh", seed=seed)):
        put_back(before, 5)
        rolls.append(env.step(0)[:2])
    assert rolls[0] == rolls[1]


def test_an_unknown_wrapper_is_refused_as_soon_as_it_holds_something():
    env = Silent(TimeLimit(Walk(), 9))
    env.reset(seed=1)
    stack = Stack(env)
    before = stack.snapshot()
    env.step("Right")
    env.memory = 1
    for ask in (stack.snapshot, lambda: stack.restore(before), lambda: Stack(env)):
        with pytest.raises(SnapshotError, match=r"Silent .* holds memory"):
            ask()
    assert (env.unwrapped.state.position, env.env._elapsed_steps) == (1, 1)
    del env.memory
    stack.restore(before)
    assert (env.unwrapped.state.position, env.env._elapsed_steps) == (0, 0)

    class MyLimit(TimeLimit):
        """A subclass of a known wrapper is not taken for it."""

    env = MyLimit(Walk(), 3)
    env.reset(seed=1)
    with pytest.raises(SnapshotError, match="MyLimit"):
        snapshot(env)


@pytest.mark.parametrize("action", [snapshot, clone, lambda env: restore(env, snapshot(env.env))])
def test_an_unknown_wrapper_with_attributes_is_refused_by_name_with_the_cure(action):
    env = Counting(Walk())
    env.reset(seed=1)
    with pytest.raises(SnapshotError, match=r"Counting .* holds count, log, .*wrapper_state.*set_wrapper_state"):
        action(env)


class Tiled(gym.Wrapper):
    """Holds two numbers that never change."""

    snapshot_constants = ("tile_size", "env_id")

    def __init__(self, env):
        super().__init__(env)
        self.tile_size, self.env_id = 8, "walk"


def test_declared_constants_of_a_wrapper_are_not_taken_for_state():
    env = Tiled(Walk())
    env.reset(seed=1)
    before = snapshot(env)
    env.step("Right")
    restore(clone(env), before)
    env.count = 1
    with pytest.raises(SnapshotError, match=r"Tiled .* holds count, which.*Tiled.snapshot_constants = \('count',\)"):
        snapshot(env)


# Attributes that Gymnasium's wrappers change without effect on the future: records and bookkeeping.
RECORDS = {
    "PassiveEnvChecker": {"checked_reset", "checked_step", "checked_render", "close_called", "checked_data_reuse"}
    | {"_previous_data"},
    "RecordEpisodeStatistics": {"episode_start_time", "episode_count", "time_queue", "return_queue", "length_queue"},
    "NormalizeObservation": {"_update_running_mean"},
    "NormalizeReward": {"_update_running_mean"},
    # The padding is set by each reset before it is used.
    "FrameStackObservation": {"padding_value"},
    "HumanRendering": {"screen_size", "window", "clock"},
}
IN_PLACE = ("append", "popleft", "pop", "clear", "update", "extend", "fill")


def gymnasiums_wrappers():
    """Return the source of every wrapper class of the installed Gymnasium, by name, without importing it."""
    folder = Path(gym.__file__).parent / "wrappers"
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.py"))]
    public = set(gym.wrappers.__all__)
    return {
        node.name: node
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name in public
    }


def attributes_changed(cls):
    """Return the attributes of self that a class assigns, or changes in place, outside its constructor."""
    names = set()
    for method in cls.body:
        if not isinstance(method, ast.FunctionDef) or method.name in ("__init__", "__setstate__"):
            continue
        for node in ast.walk(method):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in IN_PLACE:
                targets = [node.func.value]
            for target in targets:
                while isinstance(target, ast.Subscript):
                    target = target.value
                if (
                    isinstance(target, ast.Attribute)
                    and isinstance(target.value, ast.Name)
                    and target.value.id == "self"
                ):
                    names.add(target.attr)
    return names - {"_cached_spec"}


@pytest.mark.parametrize("name", sorted(gymnasiums_wrappers()))
def test_every_attribute_that_a_wrapper_of_gymnasium_changes_is_accounted_for(name):
    if name in REFUSED:
        assert name not in EPISODE_STATE
        assert name not in STATELESS
        return
    kept = {path.partition(".")[0] for path in EPISODE_STATE.get(name, ())}
    assert (name in EPISODE_STATE) != (name in STATELESS)
    changed = attributes_changed(gymnasiums_wrappers()[name])
    assert changed - RECORDS.get(name, set()) <= kept
    assert kept <= changed | RECORDS.get(name, set())


@pytest.mark.parametrize(
    "other",
    [
        lambda: Walk(), lambda: TimeLimit(TimeLimit(Walk(), 5), 5), lambda: OrderEnforcing(Walk()),
        lambda: TimeLimit(Dice(), 5), lambda: TimeLimit(Walk(Limits(max_turns=99)), 5),
    ],
    ids=["a layer less", "a layer more", "another wrapper", "another environment", "other limits"],
)  # fmt: skip
def test_a_snapshot_of_another_stack_is_refused_and_changes_nothing(other):
    env, stranger = TimeLimit(Walk(), 5), other()
    env.reset(seed=1)
    stranger.reset(seed=2)
    before = snapshot(env)
    with pytest.raises(SnapshotError, match="wanted"):
        restore(env, snapshot(stranger))
    assert snapshot(env) == before


def test_layers_with_a_damaged_state_are_refused_before_anything_changes():
    env = TimeLimit(Walk(), 5)
    env.reset(seed=1)
    env.step("Right")
    before = snapshot(env)
    outer, inner = before.layers
    start = Walk()
    start.reset(seed=9)
    damaged = Snapshot((Layer(outer.kind, (1, 2)), start.snapshot().layers[0]))
    with pytest.raises(SnapshotError, match="_elapsed_steps"):
        restore(env, damaged)
    assert snapshot(env) == before
    assert inner.kind == start.snapshot().layers[0].kind
    env = PassiveEnvChecker(Walk())
    env.reset(seed=1)
    before = snapshot(env)
    outer, inner = before.layers
    with pytest.raises(SnapshotError, match=r"PassiveEnvChecker as \(\), got \(7,\): damaged"):
        restore(env, Snapshot((Layer(outer.kind, (7,)), inner)))
    # A snapshot from bytes is another object, and equal.
    restore(env, Snapshot.from_bytes(before.to_bytes()))
    assert snapshot(env) == before


def test_noise_and_seed_must_agree():
    env = Dice()
    env.reset(seed=1)
    snap = snapshot(env)
    with pytest.raises(ValueError, match="'same' takes no seed, got seed=3"):
        restore(env, snap, seed=3)
    for noise in ("fresh", "common"):
        with pytest.raises(ValueError, match=f"'{noise}' needs a seed"):
            restore(env, snap, noise=noise)
    with pytest.raises(ValueError, match=r"wanted noise of .*got 'loud'"):
        restore(env, snap, noise="loud", seed=1)


@pytest.mark.parametrize("seed", [-1, 0.5, "3", [], np.int64(3)])
def test_what_cannot_seed_a_generator_is_refused_by_a_restore_and_changes_nothing(seed):
    env = Dice()
    env.reset(seed=1)
    snap = snapshot(env)
    env.step(0)
    before = snapshot(env)
    for again in (partial(restore, env, snap, noise="fresh"), partial(env.restore, snap)):
        with pytest.raises(ValueError, match="wanted a seed as a whole number >= 0, got "):
            again(seed=seed)
    assert snapshot(env) == before


def test_fresh_noise_depends_on_its_seed_alone_and_same_noise_on_the_episode():
    env = Dice()
    env.reset(seed=1)
    snap = snapshot(env)

    def rolls(**noise):
        restore(env, snap, **noise)
        return [env.step(0)[4]["roll"] for _ in range(3)]

    own = rolls()
    fresh = [rolls(noise="fresh", seed=seed) for seed in range(20)]
    assert rolls() == own
    assert fresh == [rolls(noise="fresh", seed=seed) for seed in range(20)]
    assert fresh == [rolls(noise="common", seed=seed) for seed in range(20)]
    assert len({tuple(numbers) for numbers in fresh}) > 10
    # Gymnasium's own generator of that seed is what the transition draws from.
    wanted = np.random.Generator(np.random.PCG64(np.random.SeedSequence(7))).integers(1, 7)
    assert fresh[7][0] == wanted


def test_a_generator_that_a_user_set_stays_the_environments_own():
    env = Dice()
    env.reset(seed=1)
    mine = np.random.default_rng(3)
    env.np_random = mine
    before = snapshot(env)
    mine.random()
    assert snapshot(env) != before
    restore(env, before)
    assert mine.random() == np.random.default_rng(3).random()


def test_restoring_into_a_stack_with_the_passive_checker_raises_no_warning(recwarn):
    env = OrderEnforcing(PassiveEnvChecker(Walk()))
    other = OrderEnforcing(PassiveEnvChecker(Walk()))
    env.reset(seed=1)
    restore(other, snapshot(env))
    other.step("Left")
    other.step("Right")
    assert [str(warning.message) for warning in recwarn.list] == []


def test_wrappers_are_restored_after_what_they_wrap():
    seen = []

    class Looks(PlainWrapper):
        def set_wrapper_state(self, state):
            seen.append((self.unwrapped.state, self.env._elapsed_steps))

    env = Looks(TimeLimit(Walk(), 5))
    env.reset(seed=1)
    snap = snapshot(env)
    env.step("Right")
    restore(env, snap)
    assert seen == [(snap.layers[-1].state.episode.state, 0)]


class Counts(gym.Wrapper):
    """Declares its state, records every call of `set_env_state`, and accepts only numbers."""

    def __init__(self, env):
        super().__init__(env)
        self.count = 0

    def step(self, action):
        self.count += 1
        return super().step(action)

    def wrapper_state(self):
        return self.count

    def set_wrapper_state(self, state):
        self.count = None
        self.count = 0 + state


@pytest.mark.parametrize("state", ["many", None, (1,)])
@pytest.mark.parametrize("base", [lambda: Walk(Limits()), lambda: gym.make("CartPole-v1")], ids=["own", "foreign"])
def test_a_wrapper_that_cannot_take_its_state_back_leaves_the_whole_stack_as_it_was(state, base):
    env = TimeLimit(Counts(base()), 50)
    env.reset(seed=1)
    action = "Left" if isinstance(env.unwrapped, Walk) else 0
    limit, count, *rest = snapshot(env).layers
    bad = Snapshot((limit, count._replace(state=state), *rest))
    for _ in range(3):
        env.step(action)
    there = snapshot(env)
    with pytest.raises(SnapshotError, match=r"cannot be restored .*damaged"):
        restore(env, Snapshot.from_bytes(bad.to_bytes()))
    assert snapshot(env) == there
    restore(env, Snapshot.from_bytes(Snapshot((limit, count._replace(state=7), *rest)).to_bytes()))
    assert env.env.count == 7


@pytest.mark.parametrize(
    ("make", "state"),
    [
        (lambda env: TimeLimit(env, 9), ("many",)), (lambda env: TimeLimit(env, 9), ((1,),)),
        (lambda env: TimeLimit(env, 9), 5), (OrderEnforcing, ("yes",)), (RecordEpisodeStatistics, (0.0, "none")),
        (PassiveEnvChecker, (1,)), (PassiveEnvChecker, np.zeros(2)),
    ],
)  # fmt: skip
def test_a_wrapper_of_gymnasium_takes_only_such_counters_as_it_has(make, state):
    env = make(Walk(Limits()))
    env.reset(seed=1)
    outer, inner = snapshot(env).layers
    env.step("Left")
    there = snapshot(env)
    for snap in (forged((outer._replace(state=state), inner)), Snapshot((outer._replace(state=state), inner))):
        with pytest.raises(SnapshotError, match="damaged"):
            restore(env, snap)
        assert snapshot(env) == there
