"""REINFORCE++ (arXiv 2501.03262): advantages whitened over the whole batch instead of within groups."""

from typing import Literal

from torch import Tensor

from tsr_gym.agents.learning.advantages.mechanism.estimate import estimate
from tsr_gym.agents.learning.advantages.mechanism.rules import Backup, Baseline, Contrast
from tsr_gym.agents.learning.batch import Batch


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
