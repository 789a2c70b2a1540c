"""GRPO's advantages: returns compared within a group."""

from torch import Tensor

from tsr_gym.agents.learning.advantages.mechanism.estimate import estimate
from tsr_gym.agents.learning.advantages.mechanism.rules import Baseline, Contrast
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
