"""StateEnv and TextEnv: episodes, counters, limits, random numbers, turns of several actions, and teaching."""

import sys
from dataclasses import dataclass
from fractions import Fraction
from pathlib import PurePath
from typing import NamedTuple

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded

from tests.abuse.attacks import changed
from tests.tsr_gym.testing.worlds import Board, Dice, Walk
from tsr_gym import (
    ConfigError,
    Episode,
    EpisodeOver,
    Limits,
    Snapshot,
    SnapshotError,
    StateEnv,
    Step,
    Teaching,
    TsrGymError,
    restore,
    snapshot,
)
from tsr_gym.random_stream import Drawn, Seeded
from tsr_gym.snapshots import Layer
from tsr_gym.state_env import episode_of, left, unbegun
from tsr_gym.teaching import random_turn, taught_by_oracle
from tsr_gym.text_env import MAX_TEXT, split_turn


class Counter(StateEnv):
    """Adds the action to the state; the episode ends at ten."""

    draws_noise = False

    def __init__(self, limits=None, rules="counter"):
        super().__init__(rules, limits=limits)
        self.observation_space = gym.spaces.Discrete(1000)
        self.action_space = gym.spaces.Discrete(10)

    def initial(self, rng, options):
        return options.get("start", 0)

    def transition(self, state, action, rng):
        return Step(state + action, float(action), state + action >= 10, {"added": action})

    def observe(self, state):
        return state


def test_reset_and_step_return_what_the_three_functions_give():
    env = Counter(Limits(max_turns=5))
    assert env.reset(seed=1) == (0, {"turns_left": 5})
    assert env.step(4) == (4, 4.0, False, False, {"added": 4, "turns_left": 4})
    assert env.step(6) == (10, 6.0, True, False, {"added": 6, "turns_left": 3})
    assert env.state == 10
    assert env.episode == (10, 2, 2, True, False)
    assert Counter().reset(options={"start": 7})[0] == 7


@pytest.mark.parametrize(
    ("limits", "turns"), [(Limits(max_turns=3), 3), (Limits(max_actions=2), 2), (Limits(4, None, 3), 3)]
)
def test_an_episode_is_truncated_exactly_at_its_limit(limits, turns):
    env = Counter(limits)
    env.reset(seed=1)
    assert [env.step(1)[3] for _ in range(turns)] == [False] * (turns - 1) + [True]
    with pytest.raises(EpisodeOver, match="Counter has ended"):
        env.step(1)


def test_ends_without_limits_are_no_truncation_and_ansi_is_the_observation():
    env = Counter(Limits(max_turns=1))
    env.reset(options={"start": 9})
    assert env.step(1)[2:4] == (True, False)
    env = Counter()
    env.reset(seed=1)
    assert not any(env.step(0)[3] for _ in range(500))
    with pytest.raises(ConfigError, match=r"wanted a render_mode of \['ansi'\], got 'human'"):
        StateEnv(render_mode="human")
    env = gym.make("tsr/FrozenLake-v0", render_mode="ansi", desc=["SFG"]).unwrapped
    env.reset(seed=1)
    assert env.render() == "P_G"


def test_a_reset_without_a_seed_continues_the_stream_or_draws_a_known_seed():
    env, stream = Dice(), gym.utils.seeding.np_random(5)[0]
    for _ in range(2):
        assert env.reset(seed=5)[0] == stream.integers(10)
        assert [env.reset()[0] for _ in range(5)] == [stream.integers(10) for _ in range(5)]
        stream = gym.utils.seeding.np_random(5)[0]
    starts = {Board().reset()[0].tobytes() for _ in range(12)}
    assert len(starts) > 1
    env = Board()
    first = env.reset()[0]
    assert np.array_equal(Board().reset(seed=env.np_random_seed)[0], first)
    env = Dice()
    assert env.np_random is env.np_random
    first = env.np_random_seed
    assert env.reset(seed=None)[0] == gym.utils.seeding.np_random(first)[0].integers(10)


def test_drew_noise_reports_whether_a_turn_drew_and_a_promise_of_none_is_held():
    class Liar(Counter):
        def transition(self, state, action, rng):
            return Step(state + int(rng.integers(3)), 0.0, False, {})

    env = Liar()
    env.reset(seed=1)
    with pytest.raises(TsrGymError, match=r"rng\.integers.*draws_noise = False"):
        env.step(1)
    env = Dice()
    env.reset(seed=1)
    snap = env.snapshot()
    assert not env.drew_noise
    env.step(0)
    assert env.drew_noise
    env.restore(snap)
    assert not env.drew_noise
    counter = Counter()
    counter.reset(seed=1)
    counter.snapshot()
    counter.step(1)
    assert not counter.drew_noise


def test_a_restored_environment_reports_an_unknown_seed_and_snapshots_of_stacks_are_refused():
    env = Dice()
    env.reset(seed=6)
    assert env.np_random_seed == 6
    snap = env.snapshot()
    env.restore(snap)
    assert env.np_random_seed == -1
    env.restore(snap, seed=8)
    assert env.np_random_seed == 8
    env = gym.wrappers.TimeLimit(Counter(), 3)
    env.reset(seed=1)
    with pytest.raises(SnapshotError, match=r"bare Counter, got one of a stack of 2 layers: use tsr_gym\.restore"):
        env.unwrapped.restore(snapshot(env))


def test_what_an_episode_needs_is_refused_without_it():
    for name in ("max_turns", "max_actions_per_turn", "max_actions"):
        with pytest.raises(ConfigError, match=f"wanted {name} as a whole number >= 1, got 0"):
            Limits(**{name: 0})
    env = Counter()
    for use in (lambda: env.step(1), lambda: env.state, lambda: env.episode):
        with pytest.raises(ResetNeeded, match="Counter has no episode"):
            use()
    with pytest.raises(SnapshotError, match="call reset"):
        env.snapshot()
    env.reset(seed=1)
    env.step(3)
    for other, message in ((Counter(rules="other"), "other rules"), (Dice(), "wanted a snapshot of .*Counter")):
        other.reset(seed=1)
        with pytest.raises(SnapshotError, match=message):
            env.restore(other.snapshot())
    assert env.state == 3


def test_a_clone_is_separate_and_infos_are_never_shared():
    env = Dice()
    env.reset(seed=1)
    twin = env.clone()
    assert [env.step(1)[0] for _ in range(3)] == [twin.step(1)[0] for _ in range(3)]
    env.step(2)
    assert twin.episode.turns == 3
    for twin in (Dice().clone(), unbegun(env)):
        with pytest.raises(ResetNeeded):
            twin.step(1)
        assert twin.reset(seed=2)[0] == Dice().reset(seed=2)[0]
    env = Walk()
    infos = [env.reset(seed=1)[1], *(env.step("Left")[4] for _ in range(3))]
    assert len({id(info) for info in infos}) == 4


def test_the_episode_of_a_snapshot_is_the_one_that_restoring_it_brings():
    env = gym.wrappers.TimeLimit(Walk(), 9)
    env.reset(seed=1)
    snaps = [snapshot(env)]
    for action in ("Right", "Left"):
        env.step(action)
        snaps.append(snapshot(env))
    for snap in [*snaps, Snapshot.from_bytes(snaps[1].to_bytes())]:
        episode = episode_of(snap)
        restore(env, snap)
        assert episode == env.unwrapped.episode


@pytest.mark.parametrize(("snap", "came"), [(None, "NoneType"), (Snapshot((Layer("elsewhere:Env", (1, 2)),)), "tuple")])
def test_without_a_snapshot_or_of_other_peoples_environments_there_is_no_episode_to_read(snap, came):
    with pytest.raises(TsrGymError, match=f"wanted the snapshot of a StateEnv, got {came}"):
        episode_of(snap)


@pytest.mark.parametrize(
    "parts",
    [
        {"episode": 5},
        {"episode": (0, 1, 1, False, False)},
        {"episode": Episode(3, -1)},
        {"episode": Episode(3, 1, "1")},
        {"episode": Episode(3, True, 1)},
        {"episode": Episode(3, 1, 1, 0)},
        {"episode": Episode(3, 1, 1, False, None)},
        # More than the limit of eight turns allows, and as many where the episode should have ended.
        {"episode": Episode(3, 9, 1, True)},
        {"episode": Episode(3, 8, 1)},
        {"position": 5},
        {"position": Seeded(-1)},
        {"position": Seeded("1")},
        {"position": Drawn("PCG64", (1, 2, 3))},
        {"position": Drawn("PCG64", (1 << 128, 1, 0, 0))},
        {"position": Drawn("PCG64", (1, 1, 0, "0"))},
        {"position": Drawn("MT19937", (("bit_generator", "MT19937"),))},
        {"position": Drawn("Dice", (1, 2, 3, 4))},
        {"rules": np.zeros(3)},
        {"rules": (10**5000, 1)},
    ],
    ids=lambda parts: str(parts)[:60] if "rules" not in parts else "rules",
)
def test_a_restore_refuses_what_no_play_brings_and_changes_nothing(parts):
    env = gym.wrappers.TimeLimit(Dice(), 20)
    env.reset(seed=1)
    env.step(1)
    before = snapshot(env)
    hand_made = Snapshot((before.layers[0], before.layers[1]._replace(state=before.layers[1].state._replace(**parts))))
    for snap in (changed(before, **parts), hand_made):
        env.step(2)
        there = snapshot(env)
        with pytest.raises(SnapshotError):
            restore(env, snap)
        with pytest.raises(SnapshotError):
            env.unwrapped.restore(Snapshot(snap.layers[-1:]))
        with pytest.raises(SnapshotError):
            env.unwrapped.reset(options={"snapshot": snap})
        assert snapshot(env) == there
    restore(env, changed(before, episode=before.layers[-1].state.episode._replace(turns=7)))
    assert env.step(1)[3]


@pytest.mark.parametrize("kind", [np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64])
def test_a_restore_takes_every_position_that_a_generator_has(kind):
    env = Dice()
    env.reset(seed=1)
    env.np_random = np.random.Generator(kind(3))
    env.np_random.random(3, dtype=np.float32)
    snap = Snapshot.from_bytes(snapshot(env).to_bytes())
    wanted = [env.step(1)[0] for _ in range(3)]
    restore(env, snap)
    assert [env.step(1)[0] for _ in range(3)] == wanted


@pytest.mark.parametrize(
    ("text", "separator", "actions"),
    [
        ("", "||", ()), ("  \n ", "||", ()), ("Up", "||", ("Up",)), (" Up ||\tRight||", "||", ("Up", "Right")),
        ("|| || ||", "||", ()), ("Up | Down", "||", ("Up | Down",)),
        ("search[red || shoes]", None, ("search[red || shoes]",)), ("  ", None, ()), ("Up,Down", ",", ("Up", "Down")),
    ],
)  # fmt: skip
def test_a_turn_is_split_at_its_separator(text, separator, actions):
    assert split_turn(text, separator) == actions


def started(*limits):
    env = Walk(*limits)
    env.reset(seed=1)
    # The goal of seed 1 is three fields away or more, and the start is 0.
    return env


def test_a_turn_ends_with_limits_or_the_episode_and_drops_the_rest():
    env = started()
    assert env.step("Right || Left")[4]["action_is_effective"] is False
    assert env.step("Left")[4]["action_is_effective"] is True
    env = started()
    info = env.step("Left || Left || Left || Fly || Left")[4]
    assert info["executed"] == ("Left", "Left", "Left")
    assert info["action_is_valid"] is True
    env = started(Limits(max_actions=4))
    assert env.step("Left || Left || Left")[3] is False
    _, _, terminated, truncated, info = env.step("Left || Left || Left")
    assert (terminated, truncated, info["executed"]) == (False, True, ("Left",))
    assert info["actions_left"] == 0
    env = Walk(Limits())
    env.reset(seed=1)
    goal = env.state.goal
    _, reward, terminated, truncated, info = env.step(" || ".join(["Right"] * (goal + 3)))
    assert (terminated, truncated, info["success"]) == (True, False, True)
    assert len(info["executed"]) == goal
    assert reward == pytest.approx(1 - 0.1 * goal)


def test_a_turn_carries_out_its_valid_actions_in_order_and_adds_up_their_rewards():
    env = started()
    observation, reward, terminated, truncated, info = env.step("Right || Right || Left")
    assert observation == f"You are at 1, the goal is at {env.state.goal}."
    assert (reward, terminated, truncated) == (pytest.approx(-0.3), False, False)
    left, flags = {"turns_left": 5, "actions_left": 7}, {"action_is_valid": True, "action_is_effective": True}
    executed = {"executed": ("Right", "Right", "Left"), "success": False, "invalid_reason": ""}
    assert info == {"moved": -1, **left, **flags, **executed}
    env = started()
    _, reward, _, _, info = env.step("Right || Fly || Right")
    assert (env.state.position, reward, info["executed"]) == (2, pytest.approx(-0.2), ("Right", "Right"))
    assert (info["action_is_valid"], info["actions_left"]) == (False, 8)
    for text in ("", "Fly", "||", "\x00", "\ud800", "Right " * 100_000):
        env = started()
        before = env.state
        _, reward, terminated, truncated, info = env.step(text)
        assert (reward, terminated, truncated) == (0.0, False, False)
        assert (env.state, info["turns_left"], info["actions_left"]) == (before, 5, 10)
        assert (info["executed"], info["action_is_valid"], info["action_is_effective"]) == ((), False, False)


def test_spaces_hold_any_text_and_samples_are_turns():
    env = started()
    assert "x" * MAX_TEXT in env.action_space
    assert "x" * (MAX_TEXT + 1) not in env.action_space
    env.action_space.seed(3)
    samples = [env.action_space.sample() for _ in range(50)]
    assert all(set(split_turn(sample, "||")) <= set(Walk.actions) for sample in samples)
    assert {len(split_turn(sample, "||")) for sample in samples} == {1, 2, 3}


def test_what_a_long_turn_remembers_grows_and_is_never_copied():
    class Watched(Walk):
        """Records the local variables of the function that executes the turn, now and then."""

        seen = ()

        def transition(self, state, action, rng):
            if state.position % 1000 == 999:
                held = sys._getframe(1).f_locals.values()
                # Kept alive, so that no two of them have the same identity.
                self.seen += tuple(item for item in held if isinstance(item, tuple | list) and len(item) >= 999)
            return super().transition(state, action, rng)

        def is_success(self, state):
            return False

    env = Watched(Limits())
    env.reset(seed=1)
    assert env.step(" || ".join(["Right"] * 40_000))[4]["executed"] == ("Right",) * 40_000
    # The requested and the executed actions, each made once: copies at every action would take quadratic time.
    assert len(env.seen) == 80
    assert len({id(item) for item in env.seen}) == 2


class Waiting(Walk):
    """A walk in which "Left" is valid, pays and is not executed, and every info has the position."""

    def transition(self, state, action, rng):
        if action == "Left":
            return Step(state, 0.5, False, {"action_is_executed": False})
        return super().transition(state, action, rng)

    def _facts(self, state):
        return {**super()._facts(state), "position": state.position}


def test_an_action_that_is_not_carried_out_pays_and_costs_no_action():
    env = Waiting(Limits(4, 3, 4))
    env.reset(seed=1)
    reward, info = env.step("Left || Right")[1::3]
    assert (reward, info["executed"], info["actions_left"], info["action_is_valid"]) == (0.5 - 0.1, ("Right",), 3, True)
    assert info["position"] == env.step("nonsense")[4]["position"] == env.state.position


def test_only_a_class_that_allows_it_continues_after_the_end_and_an_error_changes_nothing():
    class Endless(Walk):
        continues_after_end = True

        def observe(self, state):
            if state.position == -2:
                raise OSError("gone")
            return super().observe(state)

    env = Walk(Limits())
    env.reset(seed=1)
    assert env.step(" || ".join(["Right"] * 9))[2]
    with pytest.raises(EpisodeOver):
        env.step("Left")
    env = Endless(Limits())
    env.reset(seed=1)
    before = env.episode
    with pytest.raises(OSError, match="gone"):
        env.step("Left || Left")
    assert env.episode is before
    assert env.step(" || ".join(["Right"] * 9))[2]
    assert env.step("Left")[2] is False


class Shown(Walk):
    """Walk with an oracle that always goes right, solved from the start."""

    def optimal_turn(self, state, turns_left, actions_left):
        return "Right" if turns_left else None

    def is_success(self, state):
        return True


def test_a_world_with_an_oracle_is_taught_by_it_or_by_a_legal_action():
    env, rng = started(), np.random.default_rng(0)
    assert (env.optimal_turn(env.state, 5, 10), env.success_bars(env.state), env.teaching()) == (None, None, None)
    assert env.legal_actions(env.state) == ("Left", "Right", "Jump")
    env = Shown(Limits(5, 2, 8))
    # Success is reported at reset, too.
    info = env.reset(seed=1)[1]
    assert (info["turns_left"], info["actions_left"], info["success"], info["executed"]) == (5, 8, True, ())
    teaching = env.teaching()
    assert isinstance(teaching, Teaching)
    assert (teaching.words, teaching.copying, teaching.env_settings) == (None, False, {})
    assert taught_by_oracle(obs_type="compact").env_settings == {"obs_type": "compact"}
    assert teaching.teacher_turn(env, rng) == "Right"
    without_limit = Shown(Limits())
    without_limit.reset(seed=1)
    assert left(without_limit) == (None, None)
    assert teaching.teacher_turn(without_limit, rng) == without_limit.legal_actions(None)[0]
    env = Walk(Limits(5, 2, 8))
    env.reset(seed=1)
    env.step("Right || Left")
    assert left(env) == (4, 6)


def test_random_turns_hold_every_number_of_actions_equally_often_unless_they_are_single():
    env = Shown(Limits(5, 3))
    env.reset(seed=1)
    rng = np.random.default_rng(0)
    counts = np.bincount([random_turn(env, rng).count("||") + 1 for _ in range(600)], minlength=4)
    assert counts[1:] == pytest.approx([200, 200, 200], abs=45)
    assert {random_turn(env, rng, p_single=1.0) for _ in range(50)} == set(env.actions)
    # Half of the turns are single at random, and a third of the others.
    single = np.mean(["||" not in random_turn(env, rng, p_single=0.5) for _ in range(600)])
    assert single == pytest.approx(0.5 + 0.5 / 3, abs=0.06)


@pytest.mark.parametrize("name", ["tsr/Sokoban-v0", "tsr/FrozenLake-v0"])
def test_grid_worlds_are_taught_in_compact_form_by_their_oracles(name):
    teaching = gym.make(name).unwrapped.teaching()
    assert teaching.env_settings == {"obs_type": "compact"}
    env = gym.make(name, **teaching.env_settings).unwrapped
    rng, solved = np.random.default_rng(0), 0
    for seed in range(5):
        env.reset(seed=seed)
        ended = False
        while not ended:
            *_, terminated, truncated, info = env.step(teaching.teacher_turn(env, rng))
            ended = terminated or truncated
        solved += info["success"]
        assert teaching.accepts(env)
        env.reset(seed=seed)
        *_, info = env.step(teaching.poor_turn(env, rng))
        assert info["action_is_valid"]
    assert solved >= 3


class Plank(NamedTuple):
    parts: tuple
    extra: object = None


class Loose:
    def __init__(self):
        self.moves = 0


@dataclass(frozen=True)
class Fixed:
    value: object


def read_only(values):
    mixed = any(value is None for value in values)
    array = np.array([*values, 0], dtype=object)[:-1] if mixed else np.array(values)
    array.flags.writeable = False
    return array


MUTABLE = {
    "list": ([1], "got a list in Plank.parts"),
    "dictionary": ({"a": 1}, "got a dict in Plank.parts"),
    "set": ({1, 2}, "got a set in Plank.parts"),
    "array": (np.zeros(2), "got an array that is not read-only in Plank.parts"),
    "generator": (np.random.default_rng(1), "got a Generator in Plank.parts"),
    "object": (Loose(), "got a Loose with attributes that can be set in Plank.parts"),
    "deep inside": ((1, Fixed((2, Plank((), bytearray())))), r"got a bytearray in Plank.parts\[1\].value\[1\].extra"),
    "in an array": (read_only([None, [1], None]), r"got a list in Plank.parts\[1\]"),
}
IMMUTABLE = [1.5, (1, ("a", b"b"), None), frozenset({1, (2,)}), read_only([1, 2]), Fixed((1, Fixed(2))), Plank(())]


IMMUTABLE += [Limits, len, np.int64(3), Fraction(1, 3), PurePath("a"), Seeded(1)]


class Holds(Counter):
    """Its state holds the value from its `late`-th turn on."""

    def __init__(self, value, late=0):
        super().__init__(Limits(max_turns=9))
        self.value, self.late = value, late

    def initial(self, rng, options):
        return Plank((), 0) if self.late else Plank(self.value)

    def transition(self, state, action, rng):
        count = (state.extra or 0) + 1
        return Step(Plank(self.value if count >= self.late else (), count), 0.0, False, {})

    def observe(self, state):
        return 0


@pytest.mark.parametrize("name", MUTABLE)
@pytest.mark.parametrize("late", [0, 3])
def test_a_state_that_can_be_changed_in_place_is_refused_by_the_first_snapshot_that_sees_it(name, late):
    value, culprit = MUTABLE[name]
    env = Holds(value, late)
    for _ in range(2):
        env.reset(seed=1)
        for turn in range(late):
            snapshot(env)
            env.step(turn)
        for take in (snapshot, StateEnv.snapshot, StateEnv.clone):
            with pytest.raises(SnapshotError, match=f"immutable state of Holds, {culprit}"):
                take(env)


@pytest.mark.parametrize("value", IMMUTABLE, ids=repr)
def test_a_state_of_immutable_parts_is_accepted(value):
    env = Holds(value)
    env.reset(seed=1)
    assert snapshot(env.clone()).layers[0].state.episode.state.parts is value
    snapshot(env)


def test_a_state_is_inspected_once_in_an_episode_and_at_its_later_turns(monkeypatch):
    inspected = []
    monkeypatch.setattr("tsr_gym.state_env.mutable_part", inspected.append)
    env = Holds(1)
    for num_inspected in (5, 1):
        env.reset(seed=1)
        start = snapshot(env)
        for turn in range(4):
            env.step(turn)
            snapshot(env)
            snapshot(env)
        restore(env, start)
        snapshot(env)
        assert len(inspected) == num_inspected
        inspected.clear()
