"""What a search asks of a batch: copies of it, environments moved about, and steps without automatic resets."""

import copy
import pickle

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import InvalidAction, ResetNeeded
from hypothesis import given, settings
from hypothesis import strategies as st

from tsr_gym import ConfigError

SOKOBAN, LAKE = "tsr/Sokoban-v0", "tsr/FrozenLake-v0"
CASES = [
    (SOKOBAN, {"num_levels": 5, "max_actions": 12, "shape": (7, 8)}),
    (SOKOBAN, {"max_actions": 6}),
    (LAKE, {"num_levels": 7, "success_rate": 0.8, "max_actions": 15}),
    (LAKE, {"map_name": "4x4", "is_slippery": False, "max_actions": None}),
]
each_case = pytest.mark.parametrize(("name", "config"), CASES, ids=str)


def batch(name, num_envs=5, **config):
    env = gym.make_vec(name, num_envs=num_envs, **config)
    env.reset(seed=3)
    return env


def played(env, steps=4, seed=0):
    """Bring a batch to where its environments differ."""
    for actions in np.random.default_rng(seed).integers(4, size=(steps, env.num_envs)):
        env.step(actions)
    return env


def position(env, index):
    """Return all that decides one environment's future."""
    return env.snapshot([index])


@each_case
def test_a_taken_batch_continues_as_the_original_does(name, config):
    env = played(batch(name, **config))
    taken = env.take([2, 3])
    for actions in np.random.default_rng(5).integers(4, size=(40, 5)):
        expected, came = env.step(actions), taken.step(actions[[2, 3]])
        for whole, part in zip(expected[:4], came[:4], strict=True):
            assert np.array_equal(np.asarray(whole)[[2, 3]], part)


@each_case
def test_a_taken_batch_is_independent_also_of_its_copies(name, config):
    env = played(batch(name, **config))
    before, rows = env.snapshot(), np.array([4, 0, 4, 2, 1, 1, 3])
    taken = env.take(rows)
    assert (taken.num_envs, type(taken)) == (7, type(env))
    assert (taken.observation_space.shape[0], taken.action_space.shape) == (7, (7,))
    for index, row in enumerate(rows):
        assert position(taken, index) == position(env, row)
    for twin in (copy.deepcopy(taken), copy.copy(taken), pickle.loads(pickle.dumps(taken))):
        assert (twin.num_envs, twin.snapshot()) == (7, taken.snapshot())
    played(taken, 20, seed=1)
    assert env.snapshot() == before
    played(env, 20, seed=2)
    assert taken.take(np.arange(7)).snapshot() == taken.snapshot()
    # Whether anything is left to chance is known.
    assert env.draws_noise == (name == LAKE and config.get("is_slippery", True))


@each_case
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_select_copies_rows_all_at_once(name, config, data):
    # Copied row by row, a row could be overwritten before it is read.
    env = played(batch(name, **config))
    numbers = st.integers(0, 4)
    into = data.draw(st.none() | st.lists(numbers, unique=True))
    size = 5 if into is None else len(into)
    rows = np.array(data.draw(st.lists(numbers, min_size=size, max_size=size)), np.int64)
    before = [position(env, index) for index in range(5)]
    env.select(rows, into=into)
    expected = list(before)
    for target, row in zip(range(5) if into is None else into, rows, strict=True):
        expected[target] = before[row]
    assert [position(env, index) for index in range(5)] == expected


@each_case
def test_select_copies_from_another_batch(name, config):
    env = batch(name, **config)
    other = played(env.take(np.arange(5).repeat(3)), 6, seed=4)
    before = [position(env, index) for index in range(5)]
    env.select([14, 0], source=other, into=[1, 2])
    expected = [before[0], position(other, 14), position(other, 0), before[3], before[4]]
    assert [position(env, index) for index in range(5)] == expected


def test_fresh_random_numbers_are_those_of_a_restore():
    env = played(batch(LAKE, map_name="8x8", success_rate=0.5))
    start, seeds = env.snapshot(), [2**64 - 1, 0, 7, 7, 123456789]
    env.select(np.arange(5), seeds=np.array(seeds, np.uint64))
    config = env.snapshot()
    env.restore(start, seed=seeds)
    assert env.snapshot() == config
    env.restore(start)
    env.select([0, 0], into=[3, 1], seeds=np.array([9, 8], np.uint64))
    other = batch(LAKE, map_name="8x8", success_rate=0.5)
    other.restore(start)
    other.restore(other.snapshot([0]), [1], seed=[None, 8, None, None, None])
    other.restore(other.snapshot([0]), [3], seed=[None, None, None, 9, None])
    assert env.snapshot() == other.snapshot()


@each_case
def test_to_advance_is_to_step_until_the_episode_ends(name, config):
    env = batch(name, autoreset_mode="Disabled", **config)
    twin, over = env.take(np.arange(5)), np.zeros(5, bool)
    for actions in np.random.default_rng(6).integers(4, size=(30, 5)):
        rewards, terminated, truncated = twin.advance(actions)
        assert not any(part[over].any() for part in (rewards, terminated, truncated))
        for index in np.flatnonzero(~over):
            alone = env.take([index])
            _, reward, ended, cut, _ = alone.step(actions[[index]])
            assert (reward[0], ended[0], cut[0]) == (rewards[index], terminated[index], truncated[index])
            assert alone.snapshot() == position(twin, index)
            env.select([0], source=alone, into=[index])
        over |= terminated | truncated
        assert np.array_equal(twin.over, over)
        # Where an episode has ended nothing moves, not even its random numbers.
        assert all(position(twin, index) == position(env, index) for index in np.flatnonzero(over))
    assert over.any() or config["max_actions"] is None


def test_a_batch_that_was_never_reset_becomes_ready_by_copies():
    env = gym.make_vec(SOKOBAN, num_envs=3, num_levels=2)
    with pytest.raises(ResetNeeded):
        env.advance([0, 0, 0])
    with pytest.raises(ResetNeeded):
        env.take([0]).advance([0])
    env.select([0, 1, 2], source=batch(SOKOBAN, num_levels=2))
    env.advance([0, 0, 0])
    mixed = env.take([0, 1])
    mixed.select([0, 0], source=gym.make_vec(SOKOBAN, num_envs=1, num_levels=2))
    with pytest.raises(ResetNeeded):
        mixed.advance([0, 0])


@pytest.mark.parametrize("name", [SOKOBAN, LAKE])
def test_mistakes_are_refused_and_change_nothing(name):
    env, wider = batch(name, max_actions=9), batch(name, max_actions=8)
    other = batch({SOKOBAN: LAKE, LAKE: SOKOBAN}[name])
    before = env.snapshot()
    for rows in ([0, 5, 1, 1, 1], [-1, 0, 0, 0, 0], [0.5] * 5, 3):
        with pytest.raises(ConfigError, match="wanted"):
            env.select(rows)
    for config in ({"into": [1, 2]}, {"seeds": np.zeros(4, np.uint64)}, {"into": [0, 1, 2, 3, 9]}):
        with pytest.raises(ConfigError, match="wanted"):
            env.select([0] * 5, **config)
    for source in (wider, other):
        with pytest.raises(ConfigError, match="same settings"):
            env.select([0] * 5, source=source)
    with pytest.raises(ConfigError, match="num_envs >= 1"):
        env.take(np.array([], np.int64))
    with pytest.raises(InvalidAction):
        env.advance([0, 1, 2, 3, 4])
    assert env.snapshot() == before
