"""Advantages of whole trajectories: returns compared within a group (GRPO and its relatives)."""

from typing import Literal

from torch import Tensor

from tsr_gym.agents.learning.advantages.mechanism.estimate import estimate
from tsr_gym.agents.learning.advantages.mechanism.rules import Backup, Baseline, Contrast
from tsr_gym.agents.learning.batch import Batch


def grpo(batch: Batch, *, eps: float = 1e-6, ddof: int = 1, baseline: Baseline = "all") -> Tensor:
    """Return each trajectory's return, normalised by its group, on all of its sampled tokens (TSR Eq. 12).

    ``(R_i - mean(R)) / (std(R) + eps)`` with the standard deviation of a sample (divisor G - 1), as published code
    has it. A group of one, and a group whose returns are all equal, has advantage 0.

    Args:
        batch: Trajectories with group numbers.
        eps: Keeps nearly equal returns from being blown up; 1e-6 in verl and RAGEN, 1e-4 in TRL.
        ddof: 1 for the deviation of a sample, 0 for that of a population.
        baseline: On whom mean and deviation are fitted: all, the naive ones, or searched and naive ones apart.

    Returns:
        `[B, T]`.
    """
    return estimate(batch, Contrast(scale="std", eps=eps, ddof=ddof, baseline=baseline))


def dr_grpo(batch: Batch, *, baseline: Baseline = "all") -> Tensor:
    """Return ``R_i - mean(R)`` on all sampled tokens of each trajectory.

    Without GRPO's deviation, which makes groups that are nearly decided count more. The paper's other half, a loss that
    is not divided by each answer's length, is the loss's business. A group of one has advantage 0.

    Args:
        batch: Trajectories with group numbers.
        baseline: On whom the mean is fitted: all, the naive ones, or searched and naive ones apart.

    Returns:
        `[B, T]`.
    """
    return estimate(batch, Contrast(baseline=baseline))


def rloo(batch: Batch, *, baseline: Baseline = "all") -> Tensor:
    """Return ``R_i - mean of the other R_j`` on all sampled tokens of each trajectory: G / (G - 1) times `dr_grpo`.

    A group of one, which has no others, has advantage 0; verl leaves it its return.

    Args:
        batch: Trajectories with group numbers.
        baseline: Who the others are: all, the naive ones, or those of the same kind.

    Returns:
        `[B, T]`.
    """
    return estimate(batch, Contrast(centre="loo", baseline=baseline))


def reinforce_pp(
    batch: Batch, *, subtract: Literal["group", "nothing"] = "group", gamma: float = 1.0, baseline: Baseline = "all"
) -> Tensor:
    """Return REINFORCE++'s advantages, with the group's mean as baseline or without one.

    ``"group"`` (REINFORCE++-baseline): ``R_i - mean(R)`` of its group. ``"nothing"`` (REINFORCE++): what each turn's
    trajectory earns from that turn on. Then shifted and scaled to mean 0 and variance 1 over all sampled tokens, with
    the variance of a sample and 1e-8 in the root, as verl has it. A group of one has 0 before whitening, where verl
    leaves it its return; if all tokens are equal, all have 0.

    Args:
        batch: Trajectories with group numbers.
        subtract: What is subtracted before whitening.
        gamma: Discount of ``"nothing"``, per turn; verl's is per token.
        baseline: On whom the group's mean is fitted: all, the naive ones, or searched and naive ones apart.

    Returns:
        `[B, T]`.
    """
    if subtract == "group":
        return estimate(batch, Contrast(baseline=baseline), whiten=True)
    to_go = Backup(rewards="turn", kind="return_to_go", gamma=gamma)
    return estimate(batch, Contrast(unit="step", centre="none", of=to_go), whiten=True)
