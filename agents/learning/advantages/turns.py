"""Advantages of turns: rewards of turns, or what followed them, compared with those of like turns."""

from typing import Literal

import torch
from torch import Tensor

from tsr_gym.agents.learning.advantages.grpo import grpo
from tsr_gym.agents.learning.advantages.mechanism.comparison import Scale
from tsr_gym.agents.learning.advantages.mechanism.estimate import estimate
from tsr_gym.agents.learning.advantages.mechanism.rules import Backup, Baseline, Contrast
from tsr_gym.agents.learning.advantages.mechanism.turn_table import table_of
from tsr_gym.agents.learning.batch import Batch
from tsr_gym.agents.learning.estimators import estimator


@estimator(needs={"naive": {"baseline": "naive"}, "whole_groups": {"groups": "all_wrong"}})
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
    """Return TSPO's advantages `[B, T]`: of turns where a group only failed, of trajectories elsewhere (2601.22776).

    On turn k of trajectory i of a group without a success ``(r_{i,k} - mean_i r_{i,k}) / (std_i r_{i,k} + eps)``; in
    other groups ``(R_i - mean(R)) / (std(R) + eps)`` on every turn, as in `grpo`. Which groups have a success is read
    off outcomes and not off rewards, so that a format penalty changes no comparison. With
    `tsr_gym.agents.lessons.credit.first_occurrence`, which writes the r_{i,k} of exactly the groups without one, this
    is the paper's method.

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


@estimator(needs={"naive": {"baseline": "naive"}})
def mt_grpo(
    batch: Batch,
    *,
    turn_weight: float = 1.0,
    ragged: Literal["present", "zero", "last"] = "zero",
    single_turn: Literal["combined", "outcome"] = "combined",
    eps: float = 1e-4,
    baseline: Baseline = "all",
) -> Tensor:
    """Return MT-GRPO's advantages `[B, T]`: outcomes everywhere, rewards of turns on their own turns (2505.11821).

    On turn k ``A_outcome + turn_weight A_turn,k``, and A_outcome on the last turn. Both parts are ``(r - mean) / (std +
    eps)`` over the group with the deviation of a sample. The outcome is the reward of a trajectory's last turn, and the
    reward of turn k is compared with that of the same turn of the others. The published code has one reward before the
    first tool's result, which is that of turn 0; comparing every turn before the last with its like is our extension to
    more than two turns.

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


@estimator(needs={"naive": {"baseline": "naive"}})
def gigpo(
    batch: Batch,
    *,
    gamma: float = 0.95,
    step_weight: float = 1.0,
    scale: Scale = "std",
    eps: float = 1e-6,
    episodes: Literal["trajectory", "step"] = "trajectory",
    alone: Literal["zero", "raw"] = "zero",
    baseline: Baseline = "all",
) -> Tensor:
    """Return GiGPO's advantages `[B, T]`: of whole episodes, and of steps taken in the same state (2505.10978).

    On all tokens of a step ``A_episode + step_weight A_step``. A_episode is ``(R - mean) / (std + eps)`` over the
    group's episodes. A_step is the same over all steps of the group that were taken in the same state (its anchor), of
    what each earns from there on, ``sum_l gamma^l r_{t+l}``. States are the same where the environment's `state_key`
    is; grouping by similar text, which the published search experiments use, is not offered. A step whose state no
    other step visited, or whose state is unknown, has A_step 0.

    Args:
        batch: Trajectories with states.
        gamma: Discount per turn, 0.95 in the published scripts.
        step_weight: Weight of A_step, 1 in the published scripts.
        scale: Deviation of a sample, or nothing; the paper has both, as ``F_norm``.
        eps: Added to the deviation.
        episodes: What counts once in A_episode's mean and deviation: a trajectory, as the paper writes it, or each of
            its steps, as the published code does by default, where long episodes weigh more.
        alone: The advantage of a singleton group: 0, or its return, as in the published code.
        baseline: What the mean is fitted on: all, the naive ones, or searched and naive ones apart.
    """
    to_go = Backup(rewards="turn", kind="return_to_go", gamma=gamma)
    return estimate(
        batch,
        Contrast(unit=episodes, scale=scale, eps=eps, alone=alone, baseline=baseline),
        Contrast("state", unit="step", scale=scale, eps=eps, baseline=baseline, weight=step_weight, of=to_go),
    )
