"""Weights for a sampler that is not the learner, by hand and over a whole distribution."""

from math import log

import pytest
import torch

from tsr_gym.agents.learning.losses import mismatch_weights

# Two turns of a sequence, a token of the environment, another sequence.
TURN = torch.tensor([[0, 0, -1, 1], [2, -1, -1, -1]])
SEQUENCE = torch.tensor([[0, 0, -1, 0], [1, -1, -1, -1]])
SAMPLER = torch.zeros(2, 4)
OLD = torch.tensor([[log(1.5), log(0.9), 7.0, log(4.0)], [log(0.25), 7.0, 7.0, 7.0]])


@pytest.mark.parametrize(
    ("mode", "level", "expected"),
    [
        ("truncate", "token", [1.5, 0.9, 2.0, 0.5]),
        ("mask", "token", [1.5, 0.9, 0.0, 0.0]),
        ("truncate", "turn", [1.35, 1.35, 2.0, 0.5]),
        ("mask", "turn", [1.35, 1.35, 0.0, 0.0]),
        ("truncate", "sequence", [2.0, 2.0, 2.0, 0.5]),
        ("mask", "sequence", [0.0, 0.0, 0.0, 0.0]),
        # The geometric mean of 1.5, 0.9 and 4.
        ("mask", "sequence_mean", [5.4 ** (1 / 3)] * 3 + [0.0]),
    ],
)
def test_weights_stay_within_bounds(mode, level, expected):
    found = mismatch_weights(OLD, SAMPLER, turn=TURN, sequence=SEQUENCE, mode=mode, level=level, low=0.5, high=2.0)
    assert found.weight[TURN >= 0].tolist() == pytest.approx(expected)
    assert found.weight[TURN < 0].tolist() == [1.0] * 4
    changed = [share in (0.0, 0.5, 2.0) for share in expected]
    assert found.cut[TURN >= 0].tolist() == changed


def test_without_bounds_a_mean_over_the_samplers_tokens_is_one_over_the_learners():
    sampler = torch.log_softmax(torch.tensor([0.5, -1.0, 0.2]), dim=0)
    learner = torch.log_softmax(torch.tensor([0.1, 0.4, -0.3]), dim=0)
    worth = torch.tensor([3.0, -1.0, 0.5])
    units = torch.arange(3)
    free = mismatch_weights(learner, sampler, turn=units, sequence=units, mode="truncate", high=float("inf"))
    assert (sampler.exp() * free.weight * worth).sum().item() == pytest.approx((learner.exp() * worth).sum().item())
    bounded = mismatch_weights(learner, sampler, turn=units, sequence=units, mode="truncate", high=1.5)
    assert (sampler.exp() * bounded.weight * worth).sum().item() != pytest.approx(
        (learner.exp() * worth).sum().item(), rel=1e-2
    )


def test_no_gradient_goes_through_a_weight():
    old = OLD.clone().requires_grad_()
    assert not mismatch_weights(old, SAMPLER, turn=TURN, sequence=SEQUENCE, mode="truncate").weight.requires_grad
