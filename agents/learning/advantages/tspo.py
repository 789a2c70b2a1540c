"""TSPO's advantages: turns compared where a group only failed, whole trajectories elsewhere (arXiv 2601.22776)."""

from typing import Literal

import torch
from torch import Tensor

from tsr_gym.agents.learning.advantages.mechanism.comparison import Scale
from tsr_gym.agents.learning.advantages.mechanism.estimate import estimate
from tsr_gym.agents.learning.advantages.mechanism.rules import Backup, Baseline, Contrast
from tsr_gym.agents.learning.batch import Batch


def tspo(
    batch: Batch,
    *,
    groups: Literal["all_wrong", "all"] = "all_wrong",
    ragged: Literal["present", "zero", "last"] = "present",
    scale: Scale = "std",
    eps: float = 1e-6,
    ddof: int = 1,
    baseline: Baseline = "all",
) -> Tensor:
    """Return ``A_{i,k} = (r_{i,k} - mean_i r_{i,k}) / (std_i r_{i,k} + eps)`` on turn k of failed groups, `[B, T]`.

    In a group with a success every turn has its trajectory's advantage, ``(R_i - mean(R)) / (std(R) + eps)`` as in
    `grpo`. Which groups have a success is read off outcomes and not off rewards, so that a format penalty changes no
    comparison. With `tsr_gym.agents.lessons.credit.first_occurrence`, which writes the r_{i,k} of exactly the groups
    without one, this is the paper's method.

    The publication leaves open how trajectories without a turn k are treated, eps and ddof. Chosen here: statistics
    over trajectories that have the turn, and verl's numbers, on which TSPO is built. A turn that only one trajectory
    has, or for which all have the same reward, has advantage 0.

    Args:
        batch: Trajectories with rewards of turns.
        groups: Which groups are compared by turns: those in which every trajectory failed, or all, for credit rules
            that reward the turns of every group, such as ``first_occurrence(groups='all')``.
        ragged: What a trajectory without turn k counts as: absent, a 0, or the reward of its last turn.
        scale: Deviation or nothing.
        eps: Added to the deviation.
        ddof: 1 for the deviation of a sample, 0 for that of a population.
        baseline: What the mean is fitted on: all, the naive ones, or searched and naive ones apart.
    """
    turns = Contrast(
        "turn",
        unit="step",
        scale=scale,
        eps=eps,
        ddof=ddof,
        ragged=ragged,
        baseline=baseline,
        of=Backup(rewards="turn"),
    )
    by_turn = estimate(batch, turns)
    if groups == "all":
        return by_turn
    whole = estimate(batch, Contrast(scale=scale, eps=eps, ddof=ddof, baseline=baseline))
    has_success = torch.zeros(int(batch.group.max()) + 1, dtype=torch.bool, device=batch.group.device)
    has_success[batch.group[batch.solved]] = True
    return torch.where(has_success[batch.group][:, None], whole, by_turn)
