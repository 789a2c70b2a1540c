"""Correction of a sampler whose probabilities are not the learner's: other kernels, other precision, older weights."""

from typing import NamedTuple

import torch
from torch import Tensor

from tsr_gym.agents.learning.losses.importance_ratio import log_ratios
from tsr_gym.agents.learning.objective import Level


class Correction(NamedTuple):
    """Weights that make up for a sampler's mismatch.

    Attributes:
        weight: Any shape; 1 where the two agree.
        cut: As `weight`, bool, where a bound was met.
    """

    weight: Tensor
    cut: Tensor


def mismatch_weights(
    old_logprobs: Tensor,
    sampler_logprobs: Tensor,
    *,
    turn: Tensor,
    sequence: Tensor,
    mode: str,
    level: Level = "token",
    low: float = 0.0,
    high: float = 2.0,
) -> Correction:
    """Return ``pi_old(learner) / pi(sampler)`` within bounds, without gradient.

    ``"truncate"`` is truncated importance sampling (TIS: ``min(w, high)``), ``"mask"`` leaves out what lies beyond the
    bounds. Without bounds the weight makes an expectation over the sampler's tokens one over the learner's; each bound
    trades some of that for less variance.

    Args:
        old_logprobs: Any shape, by the learner's model before the update.
        sampler_logprobs: As `old_logprobs`, by the engine that sampled.
        turn: As `old_logprobs`, int64, equal for tokens of one turn; -1 where nothing was sampled.
        sequence: As `turn`, equal for tokens of one trajectory.
        mode: ``"truncate"`` or ``"mask"``.
        level: What a weight belongs to.
        low: Smallest weight.
        high: Largest weight.
    """
    difference = (old_logprobs - sampler_logprobs).detach()
    weight = torch.exp(log_ratios(difference, level, turn=turn, sequence=sequence))
    cut = (weight < low) | (weight > high)
    if mode == "mask":
        return Correction(torch.where(cut, 0.0, weight), cut)
    return Correction(weight.clamp(low, high), cut)
