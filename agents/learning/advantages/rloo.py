"""RLOO's advantages: returns less the mean of the others (arXiv 2402.14740)."""

from torch import Tensor

from tsr_gym.agents.learning.advantages.mechanism.estimate import estimate
from tsr_gym.agents.learning.advantages.mechanism.rules import Baseline, Contrast
from tsr_gym.agents.learning.batch import Batch


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
