"""TSPO's advantages: each turn compared with the same turn of the group's other trajectories (arXiv 2601.22776)."""

from typing import Literal

import torch
from torch import Tensor

from tsr_gym.agents.learning.advantages.grpo import dr_grpo, grpo
from tsr_gym.agents.learning.advantages.mechanism.comparison import Scale
from tsr_gym.agents.learning.advantages.mechanism.estimate import estimate
from tsr_gym.agents.learning.advantages.mechanism.rules import Backup, Baseline, Contrast
from tsr_gym.agents.learning.advantages.mechanism.turn_table import table_of
from tsr_gym.agents.learning.batch import Batch


def tspo(
    batch: Batch,
    *,
    ragged: Literal["present", "zero", "last"] = "present",
    scale: Scale = "std",
    eps: float = 1e-6,
    ddof: int = 1,
    outcome_groups: Literal["turn", "trajectory"] = "turn",
    baseline: Baseline = "all",
) -> Tensor:
    """Return ``A_{i,k} = (r_{i,k} - mean_i r_{i,k}) / (std_i r_{i,k} + eps)`` on all tokens of turn k.

    The rewards r_{i,k} of turns come from `tsr_gym.agents.lessons.credit.first_occurrence`. The publication leaves open
    what becomes of trajectories without a turn k, eps and ddof. Chosen here: statistics over those that have the
    turn, and verl's numbers, on which TSPO is built. A turn that only one trajectory has, or for which all were
    rewarded equally, has advantage 0.

    Args:
        batch: Trajectories with rewards of turns.
        ragged: What a trajectory without turn k is: not there, a 0, or the reward of its last turn.
        scale: Deviation or nothing.
        eps: Keeps nearly equal rewards from being blown up.
        ddof: 1 for the deviation of a sample, 0 for that of a population.
        outcome_groups: How a group is compared in which nothing but last turns was rewarded: like the others, or by
            whole trajectories as in `grpo`. The latter is meant where `first_occurrence` rewrites only groups in which
            all failed, because the others' earlier turns would learn nothing.
        baseline: On whom mean and deviation are fitted: all, the naive ones, or searched and naive ones apart.

    Returns:
        `[B, T]`.
    """
    contrast = Contrast(
        "turn",
        unit="step",
        scale=scale,
        eps=eps,
        ddof=ddof,
        ragged=ragged,
        baseline=baseline,
        of=Backup(rewards="turn"),
    )
    by_turn = estimate(batch, contrast)
    if outcome_groups == "turn":
        return by_turn
    whole = grpo(batch, eps=eps, ddof=ddof, baseline=baseline) if scale == "std" else dr_grpo(batch, baseline=baseline)
    return torch.where(_has_turn_rewards(batch)[:, None], by_turn, whole)


def _has_turn_rewards(batch: Batch) -> Tensor:
    """Return for every row whether some turn of its group that is not a last one was rewarded, `[B]` bool."""
    table = table_of(batch)
    rewarded = torch.zeros(int(batch.group.max()) + 1, dtype=torch.bool, device=batch.group.device)
    rewarded[table.group[(table.reward != 0) & ~table.is_last]] = True
    return rewarded[batch.group]
