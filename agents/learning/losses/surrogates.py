"""Surrogates of the policy gradient: PPO's clipped ratio and CISPO's clipped weight."""

from typing import NamedTuple

import torch
from torch import Tensor


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
