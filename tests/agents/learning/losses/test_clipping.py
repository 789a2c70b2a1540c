"""Clipped gains, the policy loss that is made of them, and the critic's loss, against numbers worked out by hand."""

from math import exp, inf, log

import pytest
import torch

from tsr_gym.agents.learning.losses import Given, cispo_gains, clipped_value_loss, policy_loss, ppo_gains, whiten
from tsr_gym.agents.learning.objective import Objective


def loss_between(new, old, advantages, weights, **clips):
    """Return the loss of tokens that are a turn each; a weight of 0 is a token that was not sampled."""
    weights = torch.tensor(weights)
    units = torch.where(weights > 0, torch.arange(len(weights)), -1)
    given = Given(old, torch.tensor(advantages), weights, units, units)
    return policy_loss(Objective(entropy=0.0, **clips), new, torch.zeros(len(weights)), given)


def loss_of(ratios, advantages, weights, **clips):
    old = torch.full((len(ratios),), -0.7)
    return loss_between(old + torch.tensor([log(ratio) for ratio in ratios]), old, advantages, weights, **clips)


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
    assert found.parts["clip_fraction"].item() == clipped


def test_the_bounds_are_the_ones_that_are_given():
    assert loss_of([2.0], [1.0], [1.0], clip_low=0.1, clip_high=0.5).loss.item() == pytest.approx(-1.5)
    assert loss_of([0.2], [-1.0], [1.0], clip_low=0.1, clip_high=0.5).loss.item() == pytest.approx(0.9)


def test_tokens_count_by_their_weights():
    found = loss_of([1.5, 1.0, 0.5], [2.0, -1.0, -2.0], [0.5, 0.25, 0.25])
    # -(0.5 * 2.56 + 0.25 * -1 + 0.25 * -1.6); the first and the last are clipped.
    assert found.loss.item() == pytest.approx(-(1.28 - 0.25 - 0.4), abs=1e-6)
    assert found.parts["clip_fraction"].item() == pytest.approx(0.75)


def test_a_clipped_token_pulls_no_more_and_another_one_by_ratio_times_advantage():
    new = torch.tensor([log(1.5), log(1.1), log(0.5)], requires_grad=True)
    loss_between(new, torch.zeros(3), [2.0, 2.0, 2.0], [1 / 3] * 3).loss.backward()
    # d(-w ratio A) / d(logprob) = -w ratio A.
    assert new.grad.tolist() == pytest.approx([0.0, -1.1 * 2 / 3, -0.5 * 2 / 3], abs=1e-6)


def test_what_stands_where_nothing_was_sampled_does_not_matter():
    logprobs = torch.tensor([-0.5, -900.0, float("nan")], requires_grad=True)
    old = torch.tensor([-0.5, 0.0, 0.0])
    found = loss_between(logprobs, old, [3.0, 0.0, 0.0], [1.0, 0.0, 0.0])
    assert found.loss.item() == -3.0
    found.loss.backward()
    assert logprobs.grad.tolist() == [-3.0, 0.0, 0.0]


def test_ratios_are_taken_between_log_probabilities():
    found = loss_between(torch.tensor([-1.0]), torch.tensor([-1.1]), [1.0], [1.0])
    assert found.loss.item() == pytest.approx(-exp(0.1), abs=1e-6)


@pytest.mark.parametrize("value", [float("nan"), inf, -inf])
def test_a_log_probability_that_is_not_finite_is_not_hidden(value):
    found = loss_between(torch.tensor([value]), torch.zeros(1), [0.0], [1.0])
    assert found.loss.isnan()


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "clipped"),
    [
        # A bad token that became more than 3 times likelier pushes as one of 3 times, and pulls no more.
        (5.0, -2.0, 6.0, 1.0),
        (2.5, -2.0, 5.0, 0.0),
        # The second bound is for bad tokens only; the others are as before.
        (5.0, 2.0, -2.56, 1.0),
        (0.5, -2.0, 1.6, 1.0),
        (0.5, 2.0, -1.0, 0.0),
    ],
)
def test_dual_clip_bounds_what_a_bad_token_may_cost(ratio, advantage, loss, clipped):
    found = loss_of([ratio], [advantage], [1.0], dual_clip=3.0)
    assert found.loss.item() == pytest.approx(loss, abs=1e-5)
    assert found.parts["clip_fraction"].item() == clipped
    new = torch.tensor([log(ratio)], requires_grad=True)
    ppo_gains(new.exp(), torch.tensor([advantage]), clip_low=0.2, clip_high=0.28, dual_clip=3.0).gain.backward()
    assert new.grad.item() == pytest.approx(0.0 if clipped else ratio * advantage, rel=1e-5)


@pytest.mark.parametrize(
    ("ratio", "advantage", "weight", "clipped"),
    [
        (1.1, 2.0, 1.1, False),
        # Clipped tokens still pull, by the bound; whichever way they moved and whatever they were worth.
        (1.5, 2.0, 1.28, True),
        (0.5, 2.0, 0.8, True),
        (1.5, -2.0, 1.28, True),
        (0.5, -2.0, 0.8, True),
        # What is worth nothing is not held back.
        (1.5, 0.0, 1.28, False),
    ],
)
def test_cispo_shortens_the_pull_of_a_clipped_token(ratio, advantage, weight, clipped):
    new = torch.tensor([-0.4 + log(ratio)], requires_grad=True)
    found = cispo_gains((new + 0.4).exp(), new, torch.tensor([advantage]), clip_low=0.2, clip_high=0.28)
    assert found.gain.item() == pytest.approx(weight * advantage * new.item(), abs=1e-6)
    assert found.clipped.item() is clipped
    found.gain.backward()
    assert new.grad.item() == pytest.approx(weight * advantage, abs=1e-6)


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
