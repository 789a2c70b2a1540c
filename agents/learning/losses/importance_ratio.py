"""Importance ratios of tokens, turns and sequences, as log-ratios spread over their tokens."""

import torch
from torch import Tensor

from tsr_gym.agents.learning.objective import Level

# A ratio beyond e^20 says that something is wrong, and no clip needs to tell it from e^30.
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
