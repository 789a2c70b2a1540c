"""The critic's loss, and whitening of advantages."""

import torch
from torch import Tensor


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
