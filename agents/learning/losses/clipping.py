"""Clipped losses of PPO and its relatives: gains of the policy, error of the critic, and whitened advantages."""

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
