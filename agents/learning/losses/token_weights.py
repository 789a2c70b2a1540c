"""What each sampled token counts in a loss; decided once for all rows of an optimizer step."""

from typing import NamedTuple

import torch
from torch import Tensor

from tsr_gym.agents.learning.batch import Batch
from tsr_gym.agents.learning.objective import Aggregation, Objective


def token_weights(
    batch: Batch, aggregation: Aggregation, *, counts: Tensor | None = None, longest: int | None = None
) -> Tensor:
    """Return what each sampled token counts in a mean over the batch; the weights sum to 1, except for ``"constant"``.

    Args:
        batch: All trajectories of one optimizer step.
        aggregation: ``"sequence"``: every trajectory counts the same, ``(1/G) sum_i (1/T_i) sum_t`` (TSR Eq. 13 over
            tokens). ``"turn"``: every trajectory, and in it every turn, counts the same (Eq. 13 over turns).
            ``"token"``: every token counts the same (RAGEN; DAPO, arXiv 2503.14476). ``"constant"``: every token counts
            ``1 / (G longest)``, so that neither short nor long trajectories are favoured (Dr. GRPO, arXiv
            2503.20783).
        counts: `[B]`, how much the trajectory of each row counts beside others, equal for rows of one trajectory; None
            for 1 each. Trajectories that count 0 are as if they were not there.
        longest: Tokens of the longest trajectory there can be, for ``"constant"``.

    Returns:
        `[B, T]`; 0 everywhere where nothing counts.
    """
    sampled = batch.sampled.float()
    counted = sampled if counts is None else sampled * counts[:, None]
    if aggregation == "token":
        return _divided(counted, counted.sum())
    tokens = _by_trajectory(batch, sampled.sum(dim=1))
    share = torch.ones_like(tokens) if counts is None else torch.zeros_like(tokens).scatter(0, batch.trajectory, counts)
    if aggregation == "constant":
        if not longest:
            raise ValueError(f"the aggregation constant divides by longest: wanted at least 1, got {longest}")
        return _divided(counted / longest, ((tokens > 0) & (share > 0)).sum())
    total = (share * (tokens > 0)).sum()
    if aggregation == "turn":
        inside, turns = _in_turn(batch)
        return _divided(counted / inside / turns[batch.trajectory].clamp(min=1)[:, None], total)
    return _divided(counted / tokens[batch.trajectory].clamp(min=1)[:, None], total)


class StepWeights(NamedTuple):
    """What the tokens of an optimizer step count.

    Attributes:
        policy: `[B, T]`, in the surrogate, the entropy bonus and the divergence.
        imitation: `[B, T]`, in the imitation loss; None where there is none.
    """

    policy: Tensor
    imitation: Tensor | None = None


def policy_counts(objective: Objective, batch: Batch) -> Tensor:
    """Return what each row's trajectory counts in the policy gradient, `[B]`; 0 where it carries none.

    `Batch.counts`, times `Objective.searched_weight` where a search has chosen the trajectory.
    """
    return torch.where(batch.searched, objective.searched_weight, 1.0) * batch.counts


def step_weights(objective: Objective, batch: Batch) -> StepWeights:
    """Return the weights that an objective gives to the tokens of one optimizer step, see `policy_counts`.

    Args:
        objective: Says what counts the same, what searched trajectories count, and whether some are imitated.
        batch: All trajectories of the step.
    """
    counts = policy_counts(objective, batch)
    policy = token_weights(batch, objective.aggregation, counts=counts, longest=objective.longest)
    if objective.imitation == 0:
        return StepWeights(policy)
    imitated = (batch.searched & batch.solved).float()
    return StepWeights(policy, token_weights(batch, objective.aggregation, counts=imitated, longest=objective.longest))


def _divided(weights: Tensor, total: Tensor) -> Tensor:
    return weights / torch.where(total == 0, 1, total)


def _by_trajectory(batch: Batch, values: Tensor) -> Tensor:
    size = int(batch.trajectory.max()) + 1
    return torch.zeros(size, device=values.device).index_add(0, batch.trajectory, values)


def _in_turn(batch: Batch) -> tuple[Tensor, Tensor]:
    """Return how many tokens each token's turn has, `[B, T]` (1 where nothing was sampled), and turns by trajectory."""
    number = turn_units(batch)[batch.sampled]
    units, where, tokens = torch.unique(number, return_inverse=True, return_counts=True)
    inside = torch.ones_like(batch.old_logprobs)
    inside[batch.sampled] = tokens[where].float()
    turns = torch.bincount(units // _stride(batch), minlength=int(batch.trajectory.max()) + 1)
    return inside, turns


def _stride(batch: Batch) -> int:
    return int(batch.turn.max()) + 1


def turn_units(batch: Batch) -> Tensor:
    """Return a number for every turn of every trajectory on its sampled tokens, -1 elsewhere, `[B, T]`."""
    return torch.where(batch.sampled, batch.trajectory[:, None] * _stride(batch) + batch.turn, -1)


def sequence_units(batch: Batch) -> Tensor:
    """Return the number of the trajectory on its sampled tokens, -1 elsewhere, `[B, T]`."""
    return torch.where(batch.sampled, batch.trajectory[:, None], -1)
