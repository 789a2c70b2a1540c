"""Dr. GRPO's advantages: returns less their group's mean (arXiv 2503.20783)."""

from torch import Tensor

from tsr_gym.agents.learning.advantages.mechanism.estimate import estimate
from tsr_gym.agents.learning.advantages.mechanism.rules import Baseline, Contrast
from tsr_gym.agents.learning.batch import Batch


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
