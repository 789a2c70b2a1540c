"""Losses as pure functions of tensors."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from tsr_gym.agents.batch import Batch

Aggregation = Literal["sequence", "token"]


class PolicyLoss(NamedTuple):
    """A policy loss and how often the clip held it back.

    Attributes:
        loss: Scalar.
        clip_fraction: Weighted share of tokens whose ratio was clipped, scalar.
    """

    loss: Tensor
    clip_fraction: Tensor


def token_weights(batch: Batch, aggregation: Aggregation) -> Tensor:
    """Return what each sampled token counts in a mean over the batch; the weights sum to 1.

    Args:
        batch: All trajectories of one optimizer step.
        aggregation: ``"sequence"``: every trajectory counts the same, ``(1/G) sum_i (1/T_i) sum_t`` (TSR Eq. 13).
            ``"token"``: every token counts the same (RAGEN).

    Returns:
        `[B, T]`.
    """
    sampled = batch.sampled.float()
    if aggregation == "token":
        return sampled / sampled.sum()
    tokens = torch.zeros(int(batch.trajectory.max()) + 1, device=sampled.device)
    tokens = tokens.index_add(0, batch.trajectory, sampled.sum(dim=1))
    return sampled / tokens[batch.trajectory].clamp(min=1)[:, None] / (tokens > 0).sum()


def clipped_policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    weights: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
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
    """
    ratio = torch.exp(torch.where(weights > 0, logprobs - old_logprobs, 0.0))
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    gain, held = ratio * advantages, clipped * advantages
    loss = -(weights * torch.minimum(gain, held)).sum()
    return PolicyLoss(loss, (weights * (held < gain)).sum().detach())


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
    """Return values shifted and scaled to mean 0 and variance 1 over the sampled tokens, 0 elsewhere."""
    chosen = values[sampled]
    centred = values - chosen.mean()
    return centred / (chosen.var(unbiased=False) + eps).sqrt() * sampled
