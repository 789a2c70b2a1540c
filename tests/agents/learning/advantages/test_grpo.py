"""GRPO, Dr. GRPO, RLOO and REINFORCE++, worked out by hand; test_published_numbers compares them with others'."""

from math import sqrt

import pytest
import torch

from tests.agents.learning.advantages.forests import Said, batch_of, by_trajectory, by_turn, path
from tests.agents.learning.test_batch import episode, turn
from tsr_gym.agents.episodes.trajectory import Group
from tsr_gym.agents.learning.advantages import dr_grpo, grpo, reinforce_pp, rloo
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


SIZES = [[1.0, 3.0], [0.0, 2.0, 4.0, 6.0], [5.0]]


def three_groups():
    return batch_of(*[[path((-1, worth - 1.0), (-1, 1.0)) for worth in group] for group in SIZES])


def test_returns_less_their_mean():
    # Means 2 and 3; one alone has nothing to be compared with.
    assert by_trajectory(three_groups(), dr_grpo(three_groups())) == [-1, 1, -3, -1, 1, 3, 0]


def test_returns_less_the_mean_of_the_others():
    # 1 - 3 and 3 - 1; 0 - 12/3, 2 - 10/3, 4 - 8/3, 6 - 6/3.
    assert by_trajectory(three_groups(), rloo(three_groups())) == pytest.approx([-2, 2, -4, -4 / 3, 4 / 3, 4, 0])


def test_what_is_left_of_the_groups_mean_is_whitened_over_all_tokens():
    batch = batch_of([path(Said(reward=1.0, tokens=1)), path(Said(reward=3.0, tokens=1))], [path(Said(reward=9.0))])
    # -1, 1, 0, 0 on four tokens: mean 0, squares 2 over 3.
    expected = [-1 / (2 / 3) ** 0.5, 1 / (2 / 3) ** 0.5, 0]
    assert by_trajectory(batch, reinforce_pp(batch)) == pytest.approx(expected, abs=1e-6)


def test_without_a_baseline_turns_have_what_comes_with_and_after_them():
    batch = batch_of([path(Said(reward=1.0, tokens=1), Said(reward=2.0, tokens=1), Said(reward=0.0, tokens=1))])
    # gamma 1/2: 2, 2, 0: mean 4/3, squares 4/9 + 4/9 + 16/9 over 2.
    found = by_turn(batch, reinforce_pp(batch, subtract="nothing", gamma=0.5))
    assert found == [pytest.approx([(2 / 3) / (4 / 3) ** 0.5] * 2 + [(-4 / 3) / (4 / 3) ** 0.5], abs=1e-6)]


def test_a_batch_whose_tokens_are_all_worth_the_same_teaches_nothing():
    batch = batch_of([path((-1, 0.1)), path((-1, 0.1)), path((-1, 0.1))])
    assert torch.count_nonzero(reinforce_pp(batch)) == 0
    assert torch.count_nonzero(reinforce_pp(batch, subtract="nothing")) == 0
