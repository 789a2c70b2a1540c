"""Replay: what is recorded, and restores that take the recorded actions again."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import FrameStackObservation, StickyAction, TimeLimit, TransformObservation

from tests.tsr_gym.foreign import worlds
from tests.tsr_gym.foreign.worlds import play
from tsr_gym import Snapshot, SnapshotError, clone, env_support, replayable, restore, snapshot
from tsr_gym.foreign.recorder import ReplayRecorder


class Handed:
    """Memory of another library that numpy may read."""

    def __init__(self, values):
        self.values = values

    @property
    def __array_interface__(self):
        return self.values.__array_interface__


class Unknowable:
    """An action that cannot be copied."""

    def __del__(self):
        pass

    def __int__(self):
        return 1


def test_an_action_in_memory_of_others_is_on_record_as_it_was():
    class TakesTurns(worlds.Locked):
        def step(self, action):
            return super().step(action["turn"][0])

    env = recorded(TakesTurns)
    values = np.array([2, 1])
    action = np.asarray(Handed(values))
    assert type(action.base).__name__ == "Handed"
    assert len(env.step({"turn": action[:1], "again": action[:1]})) == 5
    snap = snapshot(env)
    went_on = play(env, [{"turn": [1]}])
    values[:] = 0
    restore(env, snap)
    assert play(env, [{"turn": [1]}]) == went_on


def test_an_action_of_torch_is_given_to_the_environment_as_such_again():
    torch = pytest.importorskip("torch")
    given = []

    class Takes(worlds.Locked):
        def step(self, action):
            given.append(action)
            return super().step(action[0])

    env = recorded(Takes)
    action = torch.tensor([2, 0])
    env.step(action)
    snap = Snapshot.from_bytes(snapshot(env).to_bytes())
    position = env.unwrapped.position
    action[0] = 0
    restore(env, snap)
    assert (env.unwrapped.position, given[-1].dtype) == (position, torch.int64)
    assert given[-1].tolist() == [2, 0]


def test_an_action_that_cannot_be_recorded_is_taken_and_ends_the_support_of_its_episode():
    env = recorded(worlds.Locked)
    before = snapshot(env)
    assert len(env.step(Unknowable())) == 5
    env.step(1)
    why = "the action of Locked cannot be recorded: a Unknowable frees a resource"
    assert env_support(env) == ("none", env_support(env).reason)
    assert why in env_support(env).reason
    with pytest.raises(SnapshotError, match=why):
        snapshot(env)
    restore(env, before)
    assert snapshot(env) == before
    env.step(Unknowable())
    env.reset(seed=1, options={"offset": 3, "other": Unknowable()})
    assert "the options of Locked" in env_support(env).reason
    env.reset(seed=1)
    assert env_support(env).level == "replay"


class Puzzles(worlds.Locked):
    """Returns an info that raises when it is read."""

    class Puzzle:
        def __array__(self, dtype=None, copy=None):
            raise RuntimeError("it requires a gradient")

    def step(self, action):
        observation, *result, info = super().step(action)
        return self.Puzzle() if self.position > 9 else observation, *result, info


def test_a_result_that_cannot_be_recorded_is_returned_all_the_same():
    env = recorded(Puzzles)
    for action in ACTIONS:
        env.step(action)
    with pytest.raises(SnapshotError, match="the results of Puzzles cannot be recorded: it requires a gradient"):
        snapshot(env)


ACTIONS = [2, 1, 2, 0, 1, 2, 2, 0]
MAKES = [worlds.LockedWithArguments, worlds.Generating, worlds.Views, worlds.Closure, worlds.Raises]


def recorded(make, seed=4):
    env = replayable(make())
    env.reset(seed=seed)
    return env


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("num_steps", [0, 3])
def test_a_replayed_environment_continues_the_same_episode(make, num_steps):
    env = recorded(make)
    assert env_support(env).level == "replay"
    play(env, ACTIONS[:num_steps])
    snap = snapshot(env)
    went_on = play(env, ACTIONS)
    end = snapshot(env)
    for other in (env, replayable(make())):
        for taken in (snap, Snapshot.from_bytes(snap.to_bytes())):
            restore(other, taken)
            assert (snapshot(other), play(other, ACTIONS)) == (snap, went_on)
            assert snapshot(other) == end
    assert end != snap


def test_a_clone_is_another_one_in_the_same_state_or_refused_without_arguments():
    env = recorded(worlds.LockedWithArguments)
    env.step(1)
    twin = clone(env)
    assert twin.unwrapped is not env.unwrapped
    assert play(twin, ACTIONS) == play(env, ACTIONS)
    with pytest.raises(SnapshotError, match="arguments of this Locked are not recorded: make it with"):
        clone(recorded(worlds.Locked))


def test_the_recorder_stands_once_right_above_the_environment_unless_it_is_a_state_env():
    base = worlds.Locked()
    env = TimeLimit(FrameStackObservation(base, 2), 5)
    assert replayable(env) is env
    assert replayable(env) is env
    assert type(env.env.env) is ReplayRecorder
    assert env.env.env.env is base
    assert env.unwrapped is base
    assert type(replayable(worlds.Locked())) is ReplayRecorder
    ours = gym.make("tsr/FrozenLake-v0")
    assert replayable(ours) is ours
    assert env_support(ours).level == "exact"


def test_episodes_without_a_seed_and_options_of_a_reset_are_on_record():
    env = recorded(worlds.Locked)
    env.step(1)
    env.reset()
    snap = snapshot(env)
    went_on = play(env, ACTIONS)
    env.reset(seed=8)
    restore(env, snap)
    assert play(env, ACTIONS) == went_on
    env, other = replayable(worlds.Locked()), replayable(worlds.Locked())
    first = env.reset()[0]
    assert isinstance(env.np_random_seed, int)
    assert any(not np.array_equal(first, other.reset()[0]) for _ in range(50))
    snap = snapshot(env)
    went_on = play(env, ACTIONS)
    restore(other, snap)
    assert play(other, ACTIONS) == went_on
    env = replayable(worlds.Locked())
    options = {"offset": 20}
    observation = env.reset(seed=1, options=options)[0]
    options["offset"] = 0
    snap = snapshot(env)
    env.step(2)
    restore(env, snap)
    assert env.unwrapped.position == observation[0] >= 20


def test_noise_that_was_drawn_on_the_way_is_replayed_with_it():
    env = recorded(worlds.Locked)
    root = snapshot(env)
    children = {}
    for seed in range(4):
        restore(env, root, noise="fresh", seed=seed)
        first = play(env, [1, 1])
        child = snapshot(env)
        children[seed] = first, child, play(env, ACTIONS)
    assert len({tuple(first) for first, _, _ in children.values()}) > 1
    for first, child, then in children.values():
        restore(env, child)
        assert play(env, ACTIONS) == then
        assert first != []
    restore(env, root, noise="fresh", seed=2)
    assert play(env, [1, 1]) == children[2][0]


def test_a_snapshot_costs_nothing_and_branches_do_not_mix():
    env = recorded(worlds.Locked)
    snaps = []
    for action in (0, 1, 2):
        snaps.append(snapshot(env))
        env.step(action)
    records = [snap.layers[-1].state.events for snap in snaps]
    assert records[0] is records[2]
    restore(env, snaps[1])
    env.step(2)
    branch = snapshot(env)
    position = env.unwrapped.position
    restore(env, snaps[2])
    restore(env, branch)
    assert env.unwrapped.position == position
    assert [event.action for event in snaps[2].layers[-1].state.events[:2]] == [0, 1]


def test_a_wrapper_may_draw_from_the_environments_own_generator():
    def noisy(env):
        return TransformObservation(env, lambda result: result + env.np_random.random(), None)

    def make():
        return replayable(noisy(StickyAction(worlds.LockedWithArguments(), 0.5, (1, 3))))

    env, other = make(), make()
    env.reset(seed=2)
    play(env, ACTIONS[:3])
    snap = snapshot(env)
    went_on = play(env, ACTIONS)
    end = snapshot(env)
    for target in (env, other):
        restore(target, Snapshot.from_bytes(snap.to_bytes()))
        assert (snapshot(target), play(target, ACTIONS)) == (snap, went_on)
        assert snapshot(target) == end


class Fades(worlds.LockedWithArguments):
    """Fades with every rendering, which later steps show."""

    looks = 0

    def begin(self, seed):
        super().begin(seed)
        self.looks = 0

    def render(self):
        self.looks += 1
        return np.full((2, 2, 3), self.looks + self.position, np.uint8)

    def roll(self):
        return super().roll() + self.looks


def test_pictures_that_were_drawn_are_drawn_again_or_the_record_is_refused():
    env, other = (replayable(Fades(render_mode="rgb_array")) for _ in "ab")
    env.reset(seed=3)
    env.render()
    env.step(1)
    env.render()
    env.render()
    snap = snapshot(env)
    went_on = [env.render().tolist(), play(env, ACTIONS), env.render().tolist()]
    for target in (env, other, clone(env)):
        restore(target, Snapshot.from_bytes(snap.to_bytes()))
        assert target.unwrapped.looks == 3
        assert [target.render().tolist(), play(target, ACTIONS), target.render().tolist()] == went_on
    env, blind = replayable(Fades(render_mode="rgb_array")), replayable(Fades())
    env.reset(seed=3)
    env.render()
    harmless = snapshot(env)
    env.step(1)
    restore(blind, harmless)
    with pytest.raises(SnapshotError, match="Fades did not repeat itself: step 1 differs"):
        restore(blind, snapshot(env))


def test_nothing_on_record_or_a_record_of_another_kind_is_refused():
    env = worlds.Locked()
    env.reset(seed=1)
    with pytest.raises(SnapshotError, match=r"lock.*env_support"):
        snapshot(env)
    late = replayable(env)
    with pytest.raises(SnapshotError, match=r"nothing of Locked is recorded: call tsr_gym.replayable\(env\)"):
        snapshot(late)
    late.reset(seed=1)
    snapshot(late)
    env = recorded(worlds.Locked)
    env.step(1)
    before, position = snapshot(env), env.unwrapped.position
    plain = worlds.Plain()
    plain.reset(seed=1)
    for other in (snapshot(recorded(worlds.Views)), snapshot(plain)):
        with pytest.raises(SnapshotError, match="wanted"):
            restore(env, other)
    assert (snapshot(env), env.unwrapped.position) == (before, position)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (worlds.LockedAndRandom, "draws from the global generator of random, which no seed controls"),
        (worlds.LooksAtTheClock, "does not repeat itself: the observation"),
        (worlds.CountsInItsClass, "does not repeat itself"),
        (worlds.RemembersEpisodes, "does not repeat itself"),
    ],
)
def test_what_does_not_repeat_itself_has_no_support(make, why):
    for env in (make(), replayable(make())):
        support = env_support(env)
        assert support.level == "none"
        assert why in support.reason
    env.reset(seed=1)
    with pytest.raises(SnapshotError, match=why):
        snapshot(env)


def test_what_depends_on_earlier_episodes_is_made_anew_before_each():
    env = replayable(worlds.RemembersEpisodesWithArguments())
    assert "made again" in env_support(env).reason
    env.action_space.seed(3)
    space = env.action_space
    for seed in range(3):
        env.reset(seed=seed)
        assert env.unwrapped.episodes == 1
    assert env.action_space is space
    snap = snapshot(env)
    went_on = play(env, ACTIONS)
    restore(env, snap)
    assert play(env, ACTIONS) == went_on


class Unsteady(worlds.Locked):
    """Becomes unsteady on request, so a test of other instances does not show it."""

    unsteady = False

    def roll(self):
        return super().roll() + self.unsteady


def test_a_replay_that_differs_names_the_step_and_requires_a_reset():
    env = recorded(Unsteady)
    env.step(1)
    env.step(1)
    snap = snapshot(env)
    env.unwrapped.unsteady = True
    with pytest.raises(SnapshotError, match=r"Unsteady did not repeat itself: step 1 differs .*Reset it"):
        restore(env, snap)
    with pytest.raises(SnapshotError, match="nothing of Unsteady is recorded"):
        snapshot(env)
    env.reset(seed=2)
    snapshot(env)
