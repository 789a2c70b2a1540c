"""Preference loss and the rows of pairs, by hand."""

from math import exp, log

import pytest
import torch

from tsr_gym.agents.bridges.preferences import Pair
from tsr_gym.agents.learning.losses import collate_pairs, dpo_loss

PAIRS = [
    Pair((1, 2), (3, 4), (5,), (-0.5, -1.0), (-0.25,), gap=1.0, node=0),
    Pair((9,), (7,), (8, 6), (-2.0,), (-1.5, -0.125), gap=0.5, node=4),
]


def test_chosen_candidates_are_the_first_rows_and_rejected_ones_the_last():
    batch = collate_pairs(PAIRS)
    assert batch.ids.tolist() == [[1, 2, 3, 4], [9, 7, 0, 0], [1, 2, 5, 0], [9, 8, 6, 0]]
    assert batch.present.sum(dim=1).tolist() == [4, 2, 3, 3]
    assert [row.nonzero()[:, 0].tolist() for row in batch.sampled] == [[2, 3], [1], [2], [1, 2]]
    assert batch.sampler_logprobs[batch.sampled].tolist() == [-0.5, -1.0, -2.0, -0.25, -1.5, -0.125]
    with pytest.raises(ValueError, match="at least one pair"):
        collate_pairs([])


def loss(chosen, rejected, sampled, **settings):
    """Log-ratios by token; the reference is 0."""
    logprobs = torch.tensor([*chosen, *rejected], requires_grad=True)
    return logprobs, dpo_loss(logprobs, torch.zeros_like(logprobs), torch.tensor(sampled), **settings)


def test_a_pair_costs_the_log_loss_of_its_margin():
    # Log-ratios: 0.2 + 0.4 for the chosen one, -0.4 for the rejected one (nothing stands in its second place).
    _, found = loss([[0.2, 0.4]], [[-0.4, 9.0]], [[True, True], [True, False]], beta=0.5)
    assert found.loss.item() == pytest.approx(log(1 + exp(-0.5 * 1.0)), abs=1e-6)
    assert (found.accuracy.item(), found.margin.item()) == (1.0, pytest.approx(0.5))
    _, by_length = loss([[0.2, 0.4]], [[-0.4, 9.0]], [[True, True], [True, False]], beta=0.5, per_token=True)
    assert by_length.loss.item() == pytest.approx(log(1 + exp(-0.5 * 0.7)), abs=1e-6)


def test_pairs_count_alike_and_a_wrong_preference_pulls_harder():
    # One token a row; pair 0 is right by 2, pair 1 wrong by 2.
    logprobs, found = loss([[1.0], [-1.0]], [[-1.0], [1.0]], [[True]] * 4, beta=1.0)
    assert found.loss.item() == pytest.approx((log(1 + exp(-2)) + log(1 + exp(2))) / 2, abs=1e-6)
    assert (found.accuracy.item(), found.margin.item()) == (0.5, pytest.approx(0.0))
    found.loss.backward()
    # The gradient by the margin is -sigmoid(-margin) / pairs.
    right, wrong = -1 / (1 + exp(2)) / 2, -1 / (1 + exp(-2)) / 2
    assert logprobs.grad[:, 0].tolist() == pytest.approx([right, wrong, -right, -wrong], abs=1e-6)


def test_at_the_reference_the_loss_is_that_of_not_knowing():
    _, found = loss([[0.0]], [[0.0]], [[True], [True]])
    assert found.loss.item() == pytest.approx(log(2))
    assert found.accuracy.item() == 0.0
