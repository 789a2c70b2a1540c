"""Losses against numbers worked out by hand."""

from math import exp, log

import pytest
import torch

from tests.agents.test_batch import episode, turn
from tsr_gym.agents.batch import collate
from tsr_gym.agents.losses import clipped_policy_loss, clipped_value_loss, token_weights, whiten
from tsr_gym.agents.trajectory import Group


def three_tokens_and_one():
    """One trajectory of three sampled tokens in two rows, one of one token."""
    first = episode(turn([1], [2, 3], 0.0, -1.0, -1.0), turn([5], [6], 0.0, -1.0))
    return collate([Group(0, (first, episode(turn([1], [2], 0.0, -1.0))))])


def test_by_sequence_every_trajectory_counts_the_same():
    batch = three_tokens_and_one()
    weights = token_weights(batch, "sequence")
    assert weights[batch.sampled].tolist() == pytest.approx([1 / 6, 1 / 6, 1 / 6, 1 / 2])
    assert torch.count_nonzero(weights[~batch.sampled]) == 0


def test_by_token_every_token_counts_the_same():
    batch = three_tokens_and_one()
    weights = token_weights(batch, "token")
    assert weights[batch.sampled].tolist() == pytest.approx([1 / 4] * 4)
    assert torch.count_nonzero(weights[~batch.sampled]) == 0


def test_the_weights_of_some_trajectories_sum_to_one_as_well():
    # Rows 0 and 1 are trajectory 0; of the whole it would count half.
    part = three_tokens_and_one().rows(torch.tensor([0, 1]))
    for aggregation in ("sequence", "token"):
        assert token_weights(part, aggregation).sum().item() == pytest.approx(1.0)
    last = three_tokens_and_one().rows(torch.tensor([2]))
    assert token_weights(last, "sequence")[last.sampled].tolist() == [1.0]


def loss_of(ratios, advantages, weights, **clips):
    old = torch.full((len(ratios),), -0.7)
    new = old + torch.tensor([log(ratio) for ratio in ratios])
    return clipped_policy_loss(new, old, torch.tensor(advantages), torch.tensor(weights), **clips)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "clipped"),
    [
        (1.0, 2.0, -2.0, 0.0),
        # Between 0.8 and 1.28 nothing is held back, on either side.
        (1.25, 2.0, -2.5, 0.0),
        (0.85, -2.0, 1.7, 0.0),
        # A good token that became likelier than 1.28 times is held at 1.28.
        (1.5, 2.0, -2.56, 1.0),
        # A good token that became unlikelier is not.
        (0.5, 2.0, -1.0, 0.0),
        # A bad token that became unlikelier than 0.8 times is held at 0.8; likelier, it is not.
        (0.5, -2.0, 1.6, 1.0),
        (1.5, -2.0, 3.0, 0.0),
        (3.0, 0.0, 0.0, 0.0),
    ],
)
def test_the_clip_holds_back_only_what_would_go_on_to_gain(ratio, advantage, loss, clipped):
    found = loss_of([ratio], [advantage], [1.0])
    assert found.loss.item() == pytest.approx(loss, abs=1e-6)
    assert found.clip_fraction.item() == clipped


def test_the_bounds_are_the_ones_that_are_given():
    assert loss_of([2.0], [1.0], [1.0], clip_low=0.1, clip_high=0.5).loss.item() == pytest.approx(-1.5)
    assert loss_of([0.2], [-1.0], [1.0], clip_low=0.1, clip_high=0.5).loss.item() == pytest.approx(0.9)


def test_tokens_count_by_their_weights():
    found = loss_of([1.5, 1.0, 0.5], [2.0, -1.0, -2.0], [0.5, 0.25, 0.25])
    # -(0.5 * 2.56 + 0.25 * -1 + 0.25 * -1.6); the first and the last are clipped.
    assert found.loss.item() == pytest.approx(-(1.28 - 0.25 - 0.4), abs=1e-6)
    assert found.clip_fraction.item() == pytest.approx(0.75)


def test_a_clipped_token_pulls_no_more_and_another_one_by_ratio_times_advantage():
    new = torch.tensor([log(1.5), log(1.1), log(0.5)], requires_grad=True)
    clipped_policy_loss(new, torch.zeros(3), torch.tensor([2.0, 2.0, 2.0]), torch.full((3,), 1 / 3)).loss.backward()
    # d(-w ratio A) / d(logprob) = -w ratio A.
    assert new.grad.tolist() == pytest.approx([0.0, -1.1 * 2 / 3, -0.5 * 2 / 3], abs=1e-6)


def test_what_stands_where_nothing_was_sampled_does_not_matter():
    logprobs = torch.tensor([-0.5, -900.0, float("nan")], requires_grad=True)
    old = torch.tensor([-0.5, 0.0, 0.0])
    found = clipped_policy_loss(logprobs, old, torch.tensor([3.0, 0.0, 0.0]), torch.tensor([1.0, 0.0, 0.0]))
    assert found.loss.item() == -3.0
    found.loss.backward()
    assert logprobs.grad.tolist() == [-3.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("value", "old", "target", "clip", "loss"),
    [
        # Half the squared error where the value has moved less than the clip.
        (1.25, 1.0, 2.0, 0.5, 0.5 * 0.75**2),
        # Moved too far towards the target: its error counts as if it had stopped at 1.5.
        (1.9, 1.0, 2.0, 0.5, 0.5 * 0.5**2),
        # Moved too far away: the real error, which is the larger one.
        (0.0, 1.0, 2.0, 0.5, 0.5 * 2.0**2),
        (1.9, 1.0, 2.0, None, 0.5 * 0.1**2),
    ],
)
def test_a_value_gains_nothing_by_moving_further_than_the_clip(value, old, target, clip, loss):
    found = clipped_value_loss(*(torch.tensor([number]) for number in (value, old, target, 1.0)), clip=clip)
    assert found.item() == pytest.approx(loss, abs=1e-6)


def test_values_count_by_their_weights():
    values, targets = torch.tensor([1.0, 0.0, 50.0]), torch.tensor([0.0, 2.0, 0.0])
    weights = torch.tensor([0.25, 0.75, 0.0])
    assert clipped_value_loss(values, values, targets, weights).item() == pytest.approx(0.5 * (0.25 * 1 + 0.75 * 4))


def test_whitened_values_have_mean_0_and_variance_1_over_the_sampled_tokens():
    values = torch.tensor([[1.0, 3.0, 99.0], [5.0, -99.0, 7.0]])
    sampled = torch.tensor([[True, True, False], [True, False, True]])
    # Mean 4, variance (9 + 1 + 1 + 9) / 4 = 5.
    expected = [-3.0, -1.0, 0.0, 1.0, 0.0, 3.0]
    assert (whiten(values, sampled) * 5**0.5).flatten().tolist() == pytest.approx(expected, abs=1e-5)


def test_equal_values_whiten_to_nothing():
    assert whiten(torch.tensor([2.0, 2.0]), torch.tensor([True, True])).tolist() == [0.0, 0.0]


def test_ratios_are_taken_between_log_probabilities():
    found = clipped_policy_loss(torch.tensor([-1.0]), torch.tensor([-1.1]), torch.tensor([1.0]), torch.tensor([1.0]))
    assert found.loss.item() == pytest.approx(-exp(0.1), abs=1e-6)
