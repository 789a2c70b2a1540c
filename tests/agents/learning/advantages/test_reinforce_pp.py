"""REINFORCE++, worked out by hand; test_published_numbers compares it with verl's."""

import pytest
import torch

from tests.agents.learning.advantages.forests import Said, batch_of, by_trajectory, by_turn, path
from tsr_gym.agents.learning.advantages import reinforce_pp


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
