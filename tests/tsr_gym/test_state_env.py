"""StateEnv: the base that owns episodes, counters, limits and random numbers."""

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
    TsrGymError,
    restore,
    snapshot,
)
from tsr_gym.random_stream import Drawn, Seeded
from tsr_gym.snapshots import Layer
from tsr_gym.state_env import episode_of, unbegun


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


def test_reset_and_step_return_what_the_three_functions_say():
    env = Counter(Limits(max_turns=5))
    assert env.reset(seed=1) == (0, {"turns_left": 5, "actions_left": None})
    assert env.step(4) == (4, 4.0, False, False, {"added": 4, "turns_left": 4, "actions_left": None})
    assert env.step(6) == (10, 6.0, True, False, {"added": 6, "turns_left": 3, "actions_left": None})
    assert env.state == 10
    assert env.episode == (10, 2, 2, True, False)


def test_options_reach_the_start_of_the_episode():
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


def test_an_episode_that_terminates_at_its_limit_is_not_truncated():
    env = Counter(Limits(max_turns=1))
    env.reset(options={"start": 9})
    assert env.step(1)[2:4] == (True, False)


def test_without_limits_nothing_is_truncated():
    env = Counter()
    env.reset(seed=1)
    assert not any(env.step(0)[3] for _ in range(500))


def test_an_impossible_limit_is_refused_by_name():
    for name in ("max_turns", "max_actions_per_turn", "max_actions"):
        with pytest.raises(ConfigError, match=f"wanted {name} >= 1 or None, got 0"):
            Limits(**{name: 0})


def test_an_unknown_render_mode_is_refused():
    with pytest.raises(ConfigError, match=r"wanted a render_mode of \['ansi'\], got 'human'"):
        StateEnv(render_mode="human")


def test_ansi_is_the_observation_as_text():
    env = gym.make("tsr/FrozenLake-v0", render_mode="ansi", desc=["SFG"]).unwrapped
    env.reset(seed=1)
    assert env.render() == "P_G"


def test_before_reset_there_is_no_episode():
    env = Counter()
    for use in (lambda: env.step(1), lambda: env.state, lambda: env.episode):
        with pytest.raises(ResetNeeded, match="Counter has no episode"):
            use()
    with pytest.raises(SnapshotError, match="call reset"):
        env.snapshot()


def test_the_seed_decides_the_episode_and_the_ones_that_follow():
    def play(env):
        first = env.reset(seed=3)[0]
        return [first, *(env.step(0)[0] for _ in range(4)), env.reset()[0], env.reset()[0]]

    assert play(Dice()) == play(Dice())
    env = Dice()
    assert play(env) == play(env)


def test_a_reset_without_a_seed_continues_the_stream():
    env, stream = Dice(), gym.utils.seeding.np_random(5)[0]
    assert env.reset(seed=5)[0] == stream.integers(10)
    assert [env.reset()[0] for _ in range(5)] == [stream.integers(10) for _ in range(5)]


def test_a_first_reset_without_a_seed_is_random_and_knows_its_seed():
    starts = {Board().reset()[0].tobytes() for _ in range(12)}
    assert len(starts) > 1
    env = Board()
    first = env.reset()[0]
    assert np.array_equal(Board().reset(seed=env.np_random_seed)[0], first)


def test_an_environment_that_promises_no_noise_may_not_draw_any():
    class Liar(Counter):
        def transition(self, state, action, rng):
            return Step(state + int(rng.integers(3)), 0.0, False, {})

    env = Liar()
    env.reset(seed=1)
    with pytest.raises(TsrGymError, match=r"rng\.integers.*draws_noise = False"):
        env.step(1)


def test_drew_noise_reports_whether_a_turn_drew():
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


def test_a_restored_environment_reports_an_unknown_seed():
    env = Dice()
    env.reset(seed=6)
    assert env.np_random_seed == 6
    snap = env.snapshot()
    env.restore(snap)
    assert env.np_random_seed == -1
    env.restore(snap, seed=8)
    assert env.np_random_seed == 8


def test_a_snapshot_of_a_stack_is_not_taken_for_one_of_the_bare_environment():
    env = gym.wrappers.TimeLimit(Counter(), 3)
    env.reset(seed=1)
    with pytest.raises(SnapshotError, match=r"bare Counter, got one of a stack of 2 layers: use tsr_gym\.restore"):
        env.unwrapped.restore(snapshot(env))


def test_a_snapshot_under_other_rules_or_of_another_class_is_refused():
    env = Counter()
    env.reset(seed=1)
    env.step(3)
    for other, message in ((Counter(rules="other"), "other rules"), (Dice(), "wanted a snapshot of .*Counter")):
        other.reset(seed=1)
        with pytest.raises(SnapshotError, match=message):
            env.restore(other.snapshot())
    assert env.state == 3


def test_a_clone_goes_its_own_way():
    env = Dice()
    env.reset(seed=1)
    twin = env.clone()
    assert [env.step(1)[0] for _ in range(3)] == [twin.step(1)[0] for _ in range(3)]
    env.step(2)
    assert twin.episode.turns == 3


def test_a_clone_of_an_unreset_environment_is_unreset():
    twin = Counter().clone()
    with pytest.raises(ResetNeeded):
        twin.step(1)
    assert twin.reset(seed=2)[0] == 0


def test_infos_are_never_shared():
    env = Walk()
    infos = [env.reset(seed=1)[1], *(env.step("Left")[4] for _ in range(3))]
    assert len({id(info) for info in infos}) == 4


def test_reading_the_generator_of_an_unreset_environment_is_gymnasiums_business():
    env = Dice()
    assert env.np_random is env.np_random
    first = env.np_random_seed
    assert env.reset(seed=None)[0] == gym.utils.seeding.np_random(first)[0].integers(10)


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


def test_an_unbegun_copy_is_as_before_the_first_reset():
    env = Dice()
    env.reset(seed=1)
    fresh = unbegun(env)
    with pytest.raises(ResetNeeded):
        fresh.step(1)
    assert fresh.reset(seed=1)[0] == env.reset(seed=1)[0]


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
