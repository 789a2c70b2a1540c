"""Advantages of whole trajectories: returns compared within a group (GRPO and its relatives)."""

from typing import Literal

from torch import Tensor

from tsr_gym.agents.learning.advantages.mechanism.estimate import estimate
from tsr_gym.agents.learning.advantages.mechanism.rules import Backup, Baseline, Contrast
from tsr_gym.agents.learning.batch import Batch
from tsr_gym.agents.learning.estimators import estimator


@estimator(needs={"naive": {"baseline": "naive"}})
def grpo(batch: Batch, *, eps: float = 1e-6, ddof: int = 1, baseline: Baseline = "all") -> Tensor:
    """Return the advantages `[B, T]` of each trajectory's return within its group, on its sampled tokens (TSR Eq. 12).

    ``(R_i - mean(R)) / (std(R) + eps)`` with the standard deviation of a sample (divisor G - 1), as published code
    has it. Singleton groups, and groups whose returns are all equal, have advantage 0.

    Args:
        batch: Trajectories with group numbers.
        eps: Added to the deviation; 1e-6 in verl and RAGEN, 1e-4 in TRL.
        ddof: 1 for the deviation of a sample, 0 for that of a population.
        baseline: What the mean is fitted on: all, the naive ones, or searched and naive ones apart. The deviation is
            that of all, or of those apart.
    """
    return estimate(batch, Contrast(scale="std", eps=eps, ddof=ddof, baseline=baseline))


@estimator(needs={"naive": {"baseline": "naive"}})
def dr_grpo(batch: Batch, *, baseline: Baseline = "all") -> Tensor:
    """Return the advantages ``R_i - mean(R)``, `[B, T]`, on the sampled tokens of each trajectory (arXiv 2503.20783).

    Without GRPO's deviation, which makes groups that are nearly decided count more. The paper's other half, a loss that
    is not divided by each answer's length, is `Objective.aggregation`. Singleton groups have advantage 0.

    Args:
        batch: Trajectories with group numbers.
        baseline: What the mean is fitted on: all, the naive ones, or searched and naive ones apart.
    """
    return estimate(batch, Contrast(baseline=baseline))


@estimator(needs={"naive": {"baseline": "naive"}})
def rloo(batch: Batch, *, baseline: Baseline = "all") -> Tensor:
    """Return the advantages ``R_i - mean of the other R_j``, `[B, T]`: G / (G - 1) times `dr_grpo` (arXiv 2402.14740).

    Singleton groups have advantage 0; verl leaves them their return.

    Args:
        batch: Trajectories with group numbers.
        baseline: What the mean of the others is fitted on: all, the naive ones, or those of the same kind.
    """
    return estimate(batch, Contrast(centre="loo", baseline=baseline))


@estimator(needs={"naive": {"baseline": "naive"}})
def reinforce_pp(
    batch: Batch, *, subtract: Literal["group", "nothing"] = "group", gamma: float = 1.0, baseline: Baseline = "all"
) -> Tensor:
    """Return REINFORCE++'s advantages `[B, T]`, whitened over the batch instead of within groups (arXiv 2501.03262).

    ``"group"`` (REINFORCE++-baseline): ``R_i - mean(R)`` of its group. ``"nothing"`` (REINFORCE++): what each turn's
    trajectory earns from that turn on. Then whitened over all sampled tokens, with the variance of a sample and 1e-8 in
    the root, as verl has it. Singleton groups have 0 before whitening, where verl leaves them their return; if all
    tokens are equal, all have 0.

    Args:
        batch: Trajectories with group numbers.
        subtract: What is subtracted before whitening.
        gamma: Discount of ``"nothing"``, per turn; verl's is per token.
        baseline: What the group's mean is fitted on: all, the naive ones, or searched and naive ones apart.
    """
    if subtract == "group":
        return estimate(batch, Contrast(baseline=baseline), whiten=True)
    to_go = Backup(rewards="turn", kind="return_to_go", gamma=gamma)
    return estimate(batch, Contrast(unit="step", centre="none", of=to_go), whiten=True)
