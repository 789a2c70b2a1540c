"""Gymnasium's vector wrappers around tsr/ ids: what they count and change is what single environments do."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import vector

import tsr_gym  # noqa: F401

LAKE = {"obs_type": "discrete", "is_slippery": False, "max_actions": 12}
ROOM = {"obs_type": "onehot", "max_actions": 12}
CASES = [("tsr/FrozenLake-v0", LAKE), ("tsr/Sokoban-v0", ROOM)]
NUM = 3


def batch(name, settings, mode=None):
    return gym.make_vec(name, num_envs=NUM, vectorization_mode=mode, **settings)


def drawn(envs, steps=40):
    rng = np.random.default_rng(5)
    return [rng.integers(envs.single_action_space.n, size=NUM) for _ in range(steps)]


@pytest.mark.parametrize(("name", "settings"), CASES, ids=lambda value: str(value)[:20])
def test_statistics_of_episodes_are_the_sums_that_one_counts(name, settings):
    envs = vector.RecordEpisodeStatistics(batch(name, settings))
    envs.reset(seed=1)
    returns, lengths, told = np.zeros(NUM), np.zeros(NUM, int), 0
    for actions in drawn(envs):
        _, rewards, terminated, truncated, infos = envs.step(actions)
        returns, lengths = returns + rewards, lengths + 1
        over = terminated | truncated
        for number in np.flatnonzero(over):
            assert infos["episode"]["r"][number] == pytest.approx(returns[number])
            assert infos["episode"]["l"][number] in (lengths[number], lengths[number] - 1)
            told += 1
        returns[over], lengths[over] = 0, 0
    assert told >= NUM


@pytest.mark.parametrize(("name", "settings"), CASES, ids=lambda value: str(value)[:20])
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_wrappers_see_the_same_in_gymnasiums_own_vector_environments(name, settings, mode):
    ours = vector.DictInfoToList(batch(name, settings))
    theirs = vector.DictInfoToList(batch(name, settings, mode))
    try:
        assert np.array_equal(ours.reset(seed=3)[0], theirs.reset(seed=3)[0])
        for actions in drawn(ours, 20):
            seen, paid, *ends, _ = ours.step(actions)
            also, also_paid, *also_ends, _ = theirs.step(actions)
            assert np.array_equal(seen, also)
            assert np.allclose(paid, also_paid)
            assert all(np.array_equal(one, other) for one, other in zip(ends, also_ends, strict=True))
    finally:
        theirs.close()


@pytest.mark.parametrize(("name", "settings"), CASES, ids=lambda value: str(value)[:20])
def test_transforms_are_those_of_plain_functions(name, settings):
    plain, clipped = batch(name, settings), vector.ClipReward(batch(name, settings), -0.05, 0.05)
    scaled = vector.TransformObservation(batch(name, settings), lambda seen: seen + 1, plain.observation_space)
    first = plain.reset(seed=2)[0]
    clipped.reset(seed=2)
    assert np.array_equal(scaled.reset(seed=2)[0], first + 1)
    for actions in drawn(plain, 15):
        seen, paid, *_ = plain.step(actions)
        assert np.allclose(clipped.step(actions)[1], np.clip(paid, -0.05, 0.05))
        assert np.array_equal(scaled.step(actions)[0], seen + 1)


def test_flattened_rooms_are_the_rooms_in_a_row():
    plain, flat = batch("tsr/Sokoban-v0", ROOM), vector.FlattenObservation(batch("tsr/Sokoban-v0", ROOM))
    first, row = plain.reset(seed=6)[0], flat.reset(seed=6)[0]
    assert np.array_equal(row, first.reshape(NUM, -1))


def test_running_means_of_observations_are_those_of_all_that_was_seen():
    envs = vector.NormalizeObservation(batch("tsr/Sokoban-v0", ROOM))
    plain = batch("tsr/Sokoban-v0", ROOM)
    seen = [plain.reset(seed=4)[0]]
    envs.reset(seed=4)
    for actions in drawn(plain, 10):
        seen.append(plain.step(actions)[0])
        envs.step(actions)
    mean = np.concatenate(seen).mean(axis=0)
    # Gymnasium begins with a count of 1e-4 at mean 0.
    assert np.allclose(envs.obs_rms.mean, mean, atol=1e-4)
