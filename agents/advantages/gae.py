"""Generalised advantage estimation over the tokens that the model said (arXiv 1506.02438)."""

from typing import NamedTuple

import torch
from torch import Tensor

from tsr_gym.agents.batch import Batch


def gae(batch: Batch, *, gamma: float = 1.0, lam: float = 1.0) -> Tensor:
    """Return advantages along each trajectory's sampled tokens; prompts and observations in between are skipped.

    ``A_t = sum_l (gamma lam)^l delta_{t+l}`` with ``delta_t = r_t + gamma V_{t+1} - V_t`` and V = 0 after the last
    token. A trajectory that is spread over several rows is one sequence. With gamma = lam = 1 this is R - V.

    Args:
        batch: Trajectories with the critic's values.
        gamma: Discount per token, 1 in the paper.
        lam: Decay of the estimates, 1 in the paper.

    Returns:
        `[B, T]`.

    Raises:
        ValueError: The batch has no values.
    """
    if batch.values is None:
        raise ValueError("GAE needs the critic's values: wanted batch.values [B, T], got None")
    place = _places(batch)
    rewards, values = _line_up(batch.rewards, place), _line_up(batch.values, place)
    advantages = torch.zeros_like(rewards)
    later = torch.zeros(len(rewards), device=rewards.device)
    following = torch.zeros_like(later)
    for step in reversed(range(rewards.shape[1])):
        delta = rewards[:, step] + gamma * following - values[:, step]
        later = delta + gamma * lam * later
        advantages[:, step] = later
        following = values[:, step]
    spread = torch.zeros_like(batch.rewards)
    spread[batch.sampled] = advantages[place.trajectory, place.step]
    return spread


def value_targets(batch: Batch, advantages: Tensor) -> Tensor:
    """Return what the critic should have said, ``A + V``, `[B, T]`; advantages before whitening."""
    assert batch.values is not None
    return (advantages + batch.values) * batch.sampled


class _Places(NamedTuple):
    """Where each sampled token of a batch stands in its trajectory, aligned to the trajectory's end.

    Aligning the ends leaves the padding in front, where the backward recursion never reaches a token again.
    """

    trajectory: Tensor
    step: Tensor
    shape: tuple[int, int]
    sampled: Tensor


def _places(batch: Batch) -> _Places:
    trajectory = batch.trajectory[:, None].expand(batch.sampled.shape)[batch.sampled]
    counts = torch.bincount(trajectory, minlength=batch.num_trajectories)
    ends = counts.cumsum(dim=0)
    longest = int(counts.max())
    step = torch.arange(len(trajectory), device=trajectory.device) - ends[trajectory] + longest
    return _Places(trajectory, step, (batch.num_trajectories, longest), batch.sampled)


def _line_up(values: Tensor, place: _Places) -> Tensor:
    lined = torch.zeros(place.shape, dtype=values.dtype, device=values.device)
    lined[place.trajectory, place.step] = values[place.sampled]
    return lined
