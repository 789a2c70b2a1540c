"""Surrogates of the policy gradient: PPO's clipped ratio and CISPO's clipped weight, negated."""

from typing import NamedTuple

import torch
from torch import Tensor

from tsr_gym.agents.learning.losses.importance_ratio import bounded


class PolicyLoss(NamedTuple):
    """A policy loss and how often the clip held it back.

    Attributes:
        loss: Scalar.
        clip_fraction: Weighted share of tokens whose ratio was clipped, scalar.
    """

    loss: Tensor
    clip_fraction: Tensor


class Gains(NamedTuple):
    """What a surrogate gains with each token, and where a bound held it back.

    Attributes:
        gain: Any shape.
        clipped: As `gain`, bool.
    """

    gain: Tensor
    clipped: Tensor


def clipped_policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    weights: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    dual_clip: float | None = None,
) -> PolicyLoss:
    """Return PPO's clipped surrogate, negated, with its own bound on either side (TSR Eqs. 11 and 13).

    ``-sum w min(ratio A, clip(ratio, 1 - low, 1 + high) A)`` with ``ratio = exp(logprob - old_logprob)`` per token.

    Args:
        logprobs: `[B, T]` under the parameters that are trained.
        old_logprobs: `[B, T]` under those that sampled.
        advantages: `[B, T]`.
        weights: `[B, T]`, 0 where nothing was sampled.
        clip_low: How far the ratio may fall below 1.
        clip_high: How far it may rise above 1.
        dual_clip: Largest ratio of a token whose advantage is negative; None for no bound.
    """
    ratio = torch.exp(bounded(torch.where(weights != 0, logprobs - old_logprobs, 0.0)))
    found = ppo_gains(ratio, advantages, clip_low=clip_low, clip_high=clip_high, dual_clip=dual_clip)
    return PolicyLoss(-(weights * found.gain).sum(), (weights * found.clipped).sum().detach())


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
