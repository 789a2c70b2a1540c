"""GRPO's advantages: returns compared within a group."""

import torch
from torch import Tensor

from tsr_gym.agents.batch import Batch


def grpo(batch: Batch, *, eps: float = 1e-6) -> Tensor:
    """Return each trajectory's return, normalised by its group, on all of its sampled tokens (TSR Eq. 12).

    ``(R_i - mean(R)) / (std(R) + eps)`` with the standard deviation of a sample (divisor G - 1), as published code
    has it. A group of one, and a group whose returns are all equal, has advantage 0.

    Args:
        batch: Trajectories with group numbers.
        eps: Keeps nearly equal returns from being blown up.

    Returns:
        `[B, T]`.
    """
    returns = trajectory_returns(batch)
    groups = torch.zeros(batch.num_trajectories, dtype=torch.int64, device=returns.device)
    groups[batch.trajectory] = batch.group
    num_groups = int(groups.max()) + 1
    counts = torch.bincount(groups, minlength=num_groups)
    means = _sum_by(returns, groups, num_groups) / counts
    centred = returns - means[groups]
    deviations = (_sum_by(centred**2, groups, num_groups) / (counts - 1).clamp(min=1)).sqrt()
    # Equal returns differ from their mean by rounding alone, which must not become an advantage.
    spread = _spread(returns, groups, num_groups)
    advantages = torch.where(spread[groups] == 0, 0.0, centred / (deviations[groups] + eps))
    return advantages[batch.trajectory][:, None] * batch.sampled


def trajectory_returns(batch: Batch) -> Tensor:
    """Return the summed reward of every trajectory, `[N]`."""
    return _sum_by(batch.rewards.sum(dim=1), batch.trajectory, batch.num_trajectories)


def _sum_by(values: Tensor, index: Tensor, size: int) -> Tensor:
    return torch.zeros(size, dtype=values.dtype, device=values.device).index_add(0, index, values)


def _spread(values: Tensor, index: Tensor, size: int) -> Tensor:
    top = torch.full((size,), -torch.inf, device=values.device).scatter_reduce(0, index, values, "amax")
    bottom = torch.full((size,), torch.inf, device=values.device).scatter_reduce(0, index, values, "amin")
    return top - bottom
