"""GRPO's advantages, worked out by hand."""

from math import sqrt

import pytest
import torch

from tests.agents.learning.test_batch import episode, turn
from tsr_gym.agents.episodes.trajectory import Group
from tsr_gym.agents.learning.advantages import grpo
from tsr_gym.agents.learning.batch import collate


def worth(*rewards):
    """Return an episode of one row with some turns, two tokens each."""
    ids, turns = [1], []
    for reward in rewards:
        turns.append(turn(ids, [2, 3], reward, -1.0, -1.0))
        ids = [*ids, 2, 3, 4]
    return episode(*turns)


def groups(*returns):
    return collate([Group(number, tuple(worth(value) for value in group)) for number, group in enumerate(returns)])


def by_trajectory(batch, advantages):
    """Return each trajectory's advantage, after a look that all of its sampled tokens have it and nothing else."""
    assert torch.equal(advantages != 0, batch.sampled & (advantages != 0))
    found = []
    for number in range(batch.num_trajectories):
        rows = batch.trajectory == number
        values = advantages[rows][batch.sampled[rows]].unique()
        assert len(values) == 1
        found.append(values.item())
    return found


def test_a_return_is_compared_with_its_group():
    batch = groups([1.0, 3.0], [0.0, 2.0, 4.0, 6.0])
    # Means 2 and 3. Deviations: sqrt((1 + 1) / 1), sqrt((9 + 1 + 1 + 9) / 3).
    expected = [-1 / sqrt(2), 1 / sqrt(2), *[distance / sqrt(20 / 3) for distance in (-3, -1, 1, 3)]]
    assert by_trajectory(batch, grpo(batch)) == pytest.approx(expected, abs=1e-5)


def test_returns_are_summed_over_turns_and_rows():
    # The first episode has two turns in one row, the second has a row per turn.
    spread = episode(turn([1], [2], 1.0, -1.0), turn([5], [6], 4.0, -1.0))
    batch = collate([Group(0, (worth(0.5, 0.5), spread, worth(3.0)))])
    assert batch.ids.shape[0] == 4
    # Returns 1, 5 and 3: mean 3, deviation sqrt((4 + 4) / 2).
    assert by_trajectory(batch, grpo(batch)) == pytest.approx([-1.0, 1.0, 0.0], abs=1e-5)


def test_a_group_of_equal_returns_or_of_one_teaches_nothing():
    batch = groups([0.7, 0.7, 0.7], [5.0], [1.0, 2.0])
    assert by_trajectory(batch, grpo(batch))[:4] == [0.0] * 4


def test_equal_returns_stay_equal_where_their_mean_is_rounded():
    # In single precision the mean of ten times 0.1 is not 0.1.
    batch = groups([0.1] * 10)
    assert torch.count_nonzero(grpo(batch)) == 0


def test_eps_keeps_nearly_equal_returns_small():
    batch = groups([1.0, 1.0 + 2**-20])
    # Half of 2^-20 over (2^-20 / sqrt(2) + eps).
    step = 2.0**-20
    expected = (step / 2) / (step / sqrt(2) + 1e-3)
    assert by_trajectory(batch, grpo(batch, eps=1e-3)) == pytest.approx([-expected, expected], rel=1e-3)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_reward_that_is_not_finite_is_not_hidden(bad):
    batch = groups([1.0, bad, 2.0], [1.0, 3.0])
    assert not torch.isfinite(grpo(batch)[batch.group == 0][batch.sampled[batch.group == 0]]).any()
    assert torch.isfinite(grpo(batch)[batch.group == 1]).all()
