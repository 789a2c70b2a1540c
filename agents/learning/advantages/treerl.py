"""TreeRL's advantages: what a turn's leaves are worth against the root and against its parent (arXiv 2506.11902)."""

from typing import Literal

from torch import Tensor

from tsr_gym.agents.learning.advantages.mechanism.estimate import Prefix, estimate
from tsr_gym.agents.learning.advantages.mechanism.rules import Backup, Baseline, Contrast
from tsr_gym.agents.learning.batch import Batch


def treerl(
    batch: Batch,
    *,
    local: Literal["parent", "ancestors"] = "parent",
    recentre: Literal["none", "step", "token"] = "none",
    prefix: Prefix = 0.5,
    baseline: Baseline = "all",
) -> Tensor:
    """Return the advantages ``((V(n) - V(root)) + (V(n) - V(parent))) / sqrt(|D(n)|)`` of turns n, `[B, T]`.

    V(n) is the mean over the leaves D(n) below n of ``R - mean of the other leaves' R``, all trees of a prompt being
    one under a common root, whose V is then 0. The root of the second term is the prompt too. A turn stands in the
    batch once per leaf, so the square root makes it count sqrt(|D|) times. A prompt's only leaf has 0. Branches that
    the search left are completed as failures, see `Backup`.

    Args:
        batch: One trajectory per leaf.
        local: What the second term compares with: the parent, or the mean over all ancestors.
        recentre: What the first term subtracts, as the published code's ``overall_norm_style``: nothing, or the mean of
            V over the prompt's steps or tokens, each as often as it stands in the batch.
        prefix: Power of |D(n)|: 0.5 as published, 1 and 0 as its options ``uniform`` and ``original``.
        baseline: Which the other leaves are: all, the naive ones, or those of the same kind.
    """
    one_out = Contrast(centre="loo", baseline=baseline)
    leaves, nodes = Backup(before=one_out), Backup(before=one_out, kind="leaf_mean")
    if recentre == "none":
        overall = Contrast(unit="step", centre="none", of=nodes)
    else:
        overall = Contrast(unit=recentre, of=nodes)
    if local == "parent":
        below = [Contrast("siblings", unit="step", of=leaves)]
    else:
        depths = range(int(batch.turn.max()) + 1)
        below = [Contrast("ancestor", on="below", depth=depth, counted="present", of=leaves) for depth in depths]
    # The mean over one contrast is that contrast.
    return estimate(batch, overall, assign="node", prefix=prefix) + estimate(
        batch, *below, combine="mean", assign="node", prefix=prefix
    )
