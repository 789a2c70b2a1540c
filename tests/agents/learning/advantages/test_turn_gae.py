"""Advantages of turns by GAE, worked out by hand."""

from dataclasses import replace

import pytest
import torch

from tests.agents.learning.advantages.forests import Said, batch_of, by_turn, path
from tests.agents.learning.test_batch import episode, turn
from tsr_gym.agents.episodes.trajectory import Group
from tsr_gym.agents.learning.advantages import gae, turn_gae, turn_value_targets
from tsr_gym.agents.learning.batch import collate


def with_values(batch, *values):
    """Return the batch with values on its sampled tokens, in their order, and traps everywhere else."""
    filled = torch.full(batch.rewards.shape, 1000.0)
    filled[batch.sampled] = torch.tensor(values)
    return replace(batch, values=filled)


def two():
    """Turns of 2, 1 and 2 tokens with rewards 1, 0, 2; and one turn of 2 tokens with reward -1."""
    first = path(Said(reward=1.0), Said(reward=0.0, tokens=1), Said(reward=2.0))
    batch = batch_of([first, path(Said(reward=-1.0))])
    # Values at first tokens: 0.5, 1, 2 and 0.25; those behind them do not count.
    return with_values(batch, 0.5, 7.0, 1.0, 2.0, 8.0, 0.25, 9.0)


def test_with_gamma_and_lambda_1_it_is_the_return_to_come_minus_the_value_before_the_turn():
    batch = two()
    assert by_turn(batch, turn_gae(batch)) == [[3 - 0.5, 2 - 1.0, 2 - 2.0], [-1 - 0.25]]


def test_with_other_gamma_and_lambda_by_hand():
    batch = two()
    # gamma 1/2, lambda 1/2, so gamma lambda is 1/4:
    #   delta_2 = 2 - 2 = 0                        A_2 = 0
    #   delta_1 = 0 + 0.5 * 2 - 1 = 0              A_1 = 0
    #   delta_0 = 1 + 0.5 * 1 - 0.5 = 1            A_0 = 1
    assert by_turn(batch, turn_gae(batch, gamma=0.5, lam=0.5)) == [[1.0, 0.0, 0.0], [-1.25]]
    # gamma 1, lambda 1/2: delta_2 = 0; delta_1 = 2 - 1 = 1; delta_0 = 1 + 1 - 0.5 = 1.5; A_0 = 1.5 + 0.5 * 1.
    assert by_turn(batch, turn_gae(batch, lam=0.5)) == [[2.0, 1.0, 0.0], [-1.25]]


def test_a_trajectory_with_a_row_per_turn_is_one_sequence():
    spread = episode(turn([1], [2, 3], 1.0, -1, -1), turn([9], [4], 0.0, -1), turn([8], [5, 6], 2.0, -1, -1))
    batch = with_values(collate([Group(0, (spread,))]), 0.5, 7.0, 1.0, 2.0, 8.0)
    assert by_turn(batch, turn_gae(batch, lam=0.5)) == [[2.0, 1.0, 0.0]]


def test_turns_of_one_token_are_tokens():
    batch = batch_of([path(*[Said(reward=reward, tokens=1) for reward in (1.0, -0.5, 2.0)])])
    batch = with_values(batch, 0.3, 0.7, -0.2)
    for settings in ({}, {"gamma": 0.9, "lam": 0.8}):
        torch.testing.assert_close(turn_gae(batch, **settings), gae(batch, **settings))


def test_the_critic_should_have_said_the_same_at_every_token_of_a_turn():
    batch = two()
    targets = turn_value_targets(batch, turn_gae(batch))
    assert by_turn(batch, targets) == [[3.0, 2.0, 2.0], [-1.0]]


def test_without_values_it_says_what_it_needs():
    with pytest.raises(ValueError, match=r"wanted batch\.values"):
        turn_gae(replace(two(), values=None))
