"""Ratios of probabilities: importance ratios and their clipped gains, weights for another sampler, divergence."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from tsr_gym.agents.learning.objective import Level

# A ratio beyond e^20 is a sign of an error, and no clip needs to tell it from e^30.
MAX_LOG_RATIO = 20.0


def log_ratios(differences: Tensor, level: Level, *, turn: Tensor, sequence: Tensor) -> Tensor:
    """Return the logarithm of the ratio of each token's unit.

    With ``d_t = log pi(t) - log pi_old(t)``: ``"token"`` is ``d_t``; ``"turn"`` the sum of ``d`` over the token's turn,
    which is the ratio of the turn as one action (TSR Eq. 11); ``"turn_mean"`` their mean; ``"sequence"`` and
    ``"sequence_mean"`` the same over the whole trajectory, the latter being GSPO's (arXiv 2507.18071).

    Args:
        differences: Any shape, of log-probabilities.
        level: What a ratio belongs to.
        turn: As `differences`, int64, equal for tokens of one turn; -1 where nothing was sampled.
        sequence: As `turn`, equal for tokens of one trajectory.

    Returns:
        As `differences`; within plus or minus 20, 0 where nothing was sampled, NaN where a ratio is not finite.
    """
    sampled = turn >= 0
    inside = torch.where(sampled, differences, 0.0)
    if level != "token":
        units = turn if level.startswith("turn") else sequence
        inside = _over_units(inside, units, sampled, mean=level.endswith("mean"))
    return bounded(inside)


def bounded(log_ratio: Tensor) -> Tensor:
    """Return a log-ratio within plus or minus 20; NaN where it is infinite, which a bound would hide."""
    return torch.where(log_ratio.isfinite(), log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO), torch.nan)


def per_token_gradient(log_ratio: Tensor, logprobs: Tensor) -> Tensor:
    """Return a log-ratio of the same value whose gradient reaches only its own token (GSPO-token)."""
    return log_ratio.detach() + (logprobs - logprobs.detach())


def _over_units(values: Tensor, units: Tensor, sampled: Tensor, *, mean: bool) -> Tensor:
    numbers, place, tokens = torch.unique(units[sampled], return_inverse=True, return_counts=True)
    totals = values.new_zeros(len(numbers)).index_add(0, place, values[sampled])
    if mean:
        totals = totals / tokens
    return torch.zeros_like(values).masked_scatter(sampled, totals[place])


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


class Gains(NamedTuple):
    """The gain of a surrogate with each token, and where a bound held it back.

    Attributes:
        gain: Any shape.
        clipped: As `gain`, bool.
    """

    gain: Tensor
    clipped: Tensor


def ppo_gains(
    ratio: Tensor, advantages: Tensor, *, clip_low: float, clip_high: float, dual_clip: float | None = None
) -> Gains:
    """Return ``min(ratio A, clip(ratio, 1 - low, 1 + high) A)``, for ``A < 0`` at least ``dual_clip A``.

    The second bound is dual clip (arXiv 1912.09729), and TRL's two-sided clip ``delta``.
    """
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    gain, held = ratio * advantages, clipped * advantages
    is_held = held < gain
    gain = torch.minimum(gain, held)
    if dual_clip is not None:
        floor = torch.where(advantages < 0, dual_clip * advantages, -torch.inf)
        is_held = is_held | (floor > gain)
        gain = torch.maximum(gain, floor)
    return Gains(gain, is_held)


def cispo_gains(ratio: Tensor, logprobs: Tensor, advantages: Tensor, *, clip_low: float, clip_high: float) -> Gains:
    """Return ``sg[clip(ratio, 1 - low, 1 + high)] A log pi`` (CISPO, arXiv 2506.13585).

    A bound shortens the pull of a token, where PPO's clip ends it. The paper has no lower bound (`clip_low` = 1) and
    tunes the upper one.
    """
    weight = ratio.clamp(1 - clip_low, 1 + clip_high).detach()
    outside = (weight != ratio.detach()) & (advantages != 0)
    return Gains(weight * advantages * logprobs, outside)


def clipped_value_loss(
    values: Tensor, old_values: Tensor, targets: Tensor, weights: Tensor, *, clip: float | None = 0.5
) -> Tensor:
    """Return half the squared error of the critic, its step clipped around the old values (PPO).

    Args:
        values: `[B, T]` by the critic that is trained.
        old_values: `[B, T]` by the critic before the update.
        targets: `[B, T]`.
        weights: `[B, T]`, 0 where nothing was sampled.
        clip: How far a value may move in one update and still be rewarded for it; None for no clip.
    """
    error = (values - targets) ** 2
    if clip is not None:
        error = torch.maximum(error, (old_values + (values - old_values).clamp(-clip, clip) - targets) ** 2)
    return 0.5 * (weights * error).sum()


def whiten(values: Tensor, sampled: Tensor, *, eps: float = 1e-8) -> Tensor:
    """Return values shifted and scaled to mean 0 and variance 1 over the sampled tokens, `[B, T]`, 0 elsewhere."""
    chosen = values[sampled]
    if len(chosen) == 0:
        return torch.zeros_like(values)
    centred = values - chosen.mean()
    return centred / (chosen.var(unbiased=False) + eps).sqrt() * sampled
