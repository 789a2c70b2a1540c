"""Estimators of the divergence from a reference policy, per token (Schulman, "Approximating KL Divergence", 2020)."""

from typing import Literal

import torch
from torch import Tensor

from tsr_gym.agents.learning.losses.importance_ratio import bounded


def kl_estimate(logprobs: Tensor, reference: Tensor, kind: Literal["k1", "k2", "k3"]) -> Tensor:
    """Return an estimate of KL(policy, reference) from tokens that the policy sampled.

    With ``x = log reference - log policy``: ``k1 = -x``, ``k2 = x^2 / 2``, ``k3 = e^x - 1 - x``. As values, k1 and k3
    are unbiased, k2 is not. As loss terms, their mean gradients are those of nothing (k1: 0), of KL(policy, reference)
    (k2) and of KL(reference, policy) (k3). Multiplied by the ratio of policy to sampler all three have k1's and k3's
    right value, and k1 and k3 the gradient of KL(policy, reference).

    Args:
        logprobs: Any shape, under the policy.
        reference: As `logprobs`, under the reference.
        kind: Which estimator.
    """
    x = bounded(reference - logprobs)
    if kind == "k1":
        return -x
    return x**2 / 2 if kind == "k2" else torch.expm1(x) - x
