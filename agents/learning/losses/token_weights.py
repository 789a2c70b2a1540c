"""Token weights: how much each sampled token counts in a loss, computed once for all rows of an optimizer step.

The loss of an optimizer step is a weighted sum over tokens, so that it adds up over micro-batches of any size.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from tsr_gym.agents.learning.batch import Batch
from tsr_gym.agents.learning.objective import Aggregation, Objective


def token_weights(
    batch: Batch, aggregation: Aggregation, *, counts: Tensor | None = None, longest: int | None = None
) -> Tensor:
    """Return the weight of each sampled token in a mean over the batch, `[B, T]`, 0 elsewhere.

    Trajectory i has the count c_i, T_i tokens in K_i turns, T_ik of them in turn k; C is the sum of the counts and G
    the number of trajectories with a count above 0. On the right are the weights where all count 1, trajectory a has
    two turns, of two tokens and of one, and b has one turn of one token:

        aggregation  weight                               a        b
        sequence     c_i / (C T_i)                1/6 1/6 1/6    1/2     TSR Eq. 13 over tokens
        turn         c_i / (C K_i T_ik)           1/8 1/8 1/4    1/2     TSR Eq. 13 over turns
        token        c_i / sum_j c_j T_j          1/4 1/4 1/4    1/4     RAGEN; DAPO, arXiv 2503.14476
        constant     c_i / (G longest)        1 / (2 longest) each       Dr. GRPO, arXiv 2503.20783

    They sum to 1, except for ``"constant"``, which favours neither short nor long trajectories, and where all counts
    are 0.

    Args:
        batch: All trajectories of one optimizer step.
        aggregation: Units of equal weight: trajectories, turns within them, tokens, or tokens with a constant divisor.
        counts: `[B]`, c_i of each row's trajectory, equal for rows of one trajectory; None for 1 each. Trajectories
            that count 0 are ignored.
        longest: Number of tokens of the longest possible trajectory, for ``"constant"``.

    Raises:
        ValueError: The aggregation is constant and there is no `longest`.
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
    """The weights of the tokens of an optimizer step.

    Attributes:
        policy: `[B, T]`, in the surrogate, the entropy bonus and the divergence.
        imitation: `[B, T]`, in the imitation loss; None where there is none.
    """

    policy: Tensor
    imitation: Tensor | None = None


def policy_counts(objective: Objective, batch: Batch) -> Tensor:
    """Return the count of each row's trajectory in the policy gradient, `[B]`; 0 where it carries none.

    `Batch.counts`, times `Objective.searched_weight` where a search selected the trajectory.
    """
    return torch.where(batch.searched, objective.searched_weight, 1.0) * batch.counts


def imitation_counts(objective: Objective, batch: Batch) -> Tensor:
    """Return the count of each row's trajectory in the imitation loss, `[B]`; 0 for all but searched successes.

    With ``imitated="expansions"`` a solution n counts as the N nodes that its search expanded: the loss of LevinTS and
    PHS* (Orseau and Lelis, arXiv 2103.11505). Their bound on N is d0(n) / pi(n), with d0 the depth plus one. Its
    gradient is d0(n) / pi(n) times that of -log pi(n). Replacing the factor, which is the bound, by N itself makes a
    step lower the real cost of the search:

        sum_n N(n) * -log pi(n),  log pi(n) = sum_t log pi_t over the tokens of n

    That is the aggregation ``"constant"``, up to its divisor. ``"sequence"`` takes the mean over a solution's tokens in
    place of the sum, as `LevinLoss` in the authors' code (github.com/levilelis/h-levin, loss_functions.py), and divides
    by the sum of all N, so that the size of a step does not depend on the difficulty of its tasks. Two solutions of two
    tokens and of one, after 30 and 10 expansions, with -log pi_t of 1, 3 and 4:

        alike       sequence ((1 + 3) / 2 + 4) / 2 = 3               token (1 + 3 + 4) / 3 = 8 / 3
        expansions  sequence (30 (1 + 3) / 2 + 10 * 4) / 40 = 2.5    token (30 (1 + 3) + 10 * 4) / 70 = 16 / 7
    """
    solutions = (batch.searched & batch.solved).float()
    return solutions if objective.imitated == "alike" else solutions * batch.expansions


def step_weights(objective: Objective, batch: Batch) -> StepWeights:
    """Return the weights of the tokens of one optimizer step under an objective, see `policy_counts`."""
    counts = policy_counts(objective, batch)
    policy = token_weights(batch, objective.aggregation, counts=counts, longest=objective.longest)
    if objective.imitation == 0:
        return StepWeights(policy)
    imitated = imitation_counts(objective, batch)
    return StepWeights(policy, token_weights(batch, objective.aggregation, counts=imitated, longest=objective.longest))


def _divided(weights: Tensor, total: Tensor) -> Tensor:
    return weights / torch.where(total == 0, 1, total)


def _by_trajectory(batch: Batch, values: Tensor) -> Tensor:
    size = int(batch.trajectory.max()) + 1
    return torch.zeros(size, device=values.device).index_add(0, batch.trajectory, values)


def _in_turn(batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the length of each token's turn, `[B, T]`, 1 where nothing was sampled, and turns by trajectory, `[N]`."""
    number = turn_units(batch)[batch.sampled]
    units, where, tokens = torch.unique(number, return_inverse=True, return_counts=True)
    inside = torch.ones_like(batch.old_logprobs)
    inside[batch.sampled] = tokens[where].float()
    turns = torch.bincount(units // _stride(batch), minlength=int(batch.trajectory.max()) + 1)
    return inside, turns


def _stride(batch: Batch) -> int:
    """Return the factor by which turns of different trajectories get different numbers."""
    return int(batch.turn.max()) + 1


def turn_units(batch: Batch) -> Tensor:
    """Return a number for every turn of every trajectory on its sampled tokens, -1 elsewhere, `[B, T]`."""
    return torch.where(batch.sampled, batch.trajectory[:, None] * _stride(batch) + batch.turn, -1)


def sequence_units(batch: Batch) -> Tensor:
    """Return the number of the trajectory on its sampled tokens, -1 elsewhere, `[B, T]`."""
    return torch.where(batch.sampled, batch.trajectory[:, None], -1)
