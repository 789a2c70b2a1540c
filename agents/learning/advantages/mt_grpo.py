"""MT-GRPO's advantages: outcomes compared everywhere, rewards of turns on their own turns (arXiv 2505.11821)."""

from typing import Literal

import torch
from torch import Tensor

from tsr_gym.agents.learning.advantages.grpo import grpo
from tsr_gym.agents.learning.advantages.mechanism.estimate import estimate
from tsr_gym.agents.learning.advantages.mechanism.rules import Backup, Baseline, Contrast
from tsr_gym.agents.learning.advantages.mechanism.turn_table import table_of
from tsr_gym.agents.learning.batch import Batch


def mt_grpo(
    batch: Batch,
    *,
    turn_weight: float = 1.0,
    ragged: Literal["present", "zero", "last"] = "zero",
    single_turn: Literal["combined", "outcome"] = "combined",
    eps: float = 1e-4,
    baseline: Baseline = "all",
) -> Tensor:
    """Return the advantages ``A_outcome + turn_weight A_turn,k``, `[B, T]`, on turn k; A_outcome on the last turn.

    Both parts are ``(r - mean) / (std + eps)`` over the group with the deviation of a sample. The outcome is the reward
    of a trajectory's last turn, and the reward of turn k is compared with that of the same turn of the others. The
    published code has one reward before the first tool's result, which is that of turn 0; comparing every turn before
    the last with its like is our extension to more than two turns.

    Args:
        batch: Trajectories with rewards of turns.
        turn_weight: ``turn_advantage_coef``, 1 in the published code.
        ragged: What a trajectory without a turn k before its last counts as: absent, a 0, as the published reward
            functions give one without a tool call, or the reward of the turn before.
        single_turn: What a trajectory of one turn has, which called no tool: the comparison of whole returns, as
            published, or that of outcomes.
        eps: 1e-4 in the published code.
        baseline: What the mean is fitted on: all, the naive ones, or searched and naive ones apart.
    """
    outcome = Contrast(scale="std", eps=eps, baseline=baseline, of=Backup(rewards="last"))
    turns = Contrast(
        "turn",
        unit="step",
        scale="std",
        eps=eps,
        ragged=ragged,
        baseline=baseline,
        on="not_last",
        weight=turn_weight,
        of=Backup(rewards="turn"),
    )
    advantages = estimate(batch, outcome, turns)
    if single_turn == "outcome":
        return advantages
    table = table_of(batch)
    single = table.spread((table.is_first & table.is_last).to(advantages.dtype)) > 0
    return torch.where(single, grpo(batch, eps=eps, baseline=baseline), advantages)
