"""Tree-GRPO's advantages: returns compared within their tree and within all trees of their prompt."""

from typing import Literal

from torch import Tensor

from tsr_gym.agents.learning.advantages.mechanism.estimate import Prefix, estimate
from tsr_gym.agents.learning.advantages.mechanism.rules import Baseline, Contrast
from tsr_gym.agents.learning.batch import Batch


def tree_grpo(
    batch: Batch,
    *,
    intra: float = 1.0,
    inter: float = 1.0,
    eps: float = 1e-6,
    alone: Literal["zero", "raw"] = "zero",
    prefix: Prefix = "duplicate",
    baseline: Baseline = "all",
) -> Tensor:
    """Return the advantages ``intra A_intra + inter A_inter``, `[B, T]`, on each leaf's path (arXiv 2509.21240).

    Both are ``(R - mean) / (std + eps)`` with the deviation of a sample: A_intra over the leaves of the same tree,
    A_inter over all leaves of the prompt. A turn that several leaves share stands in the batch once for each, so that
    its coefficient is the sum of their advantages. A_intra sums to 0 over a tree: what all of its leaves share learns
    from A_inter alone.

    Args:
        batch: One trajectory per leaf.
        intra: Weight of the comparison within a tree.
        inter: Weight of the comparison within a prompt.
        eps: Added to the deviation.
        alone: The advantage of a singleton tree or prompt: 0, or its return, as in the published code, where the mean
            of one is 0 and its deviation 1.
        prefix: How often shared turns count, see `estimate`.
        baseline: What the mean is fitted on: all, the naive ones, or searched and naive ones apart.
    """
    within_tree = Contrast("tree", scale="std", eps=eps, alone=alone, baseline=baseline, weight=intra)
    within_prompt = Contrast("prompt", scale="std", eps=eps, alone=alone, baseline=baseline, weight=inter)
    return estimate(batch, within_tree, within_prompt, prefix=prefix)
