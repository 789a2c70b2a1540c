"""The critic's loss and whitening, by hand."""

import pytest
import torch

from tsr_gym.agents.learning.losses import clipped_value_loss, whiten


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
