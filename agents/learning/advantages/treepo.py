"""TreePO's advantages: a return against those below each of its path's ancestors (arXiv 2508.17445)."""

from typing import Literal

from torch import Tensor

from tsr_gym.agents.learning.advantages.mechanism.estimate import estimate
from tsr_gym.agents.learning.advantages.mechanism.rules import Baseline, Contrast
from tsr_gym.agents.learning.batch import Batch


def treepo(
    batch: Batch,
    *,
    weighting: Literal["average", "size"] = "average",
    drop_flat: bool = False,
    alone: Literal["zero", "raw"] = "zero",
    whiten: bool = True,
    baseline: Baseline = "all",
) -> Tensor:
    """Return the mean over ancestors of ``R - mean(R below the ancestor)``, whitened, `[B, T]`, on a leaf's path.

    The ancestors are the prompt and every turn of the path; one with no other leaf below it is left out. Whitening is
    that of `reinforce_pp`.

    Args:
        batch: One trajectory per leaf.
        weighting: ``"average"``: every ancestor counts the same, as the published scripts set it. ``"size"``: as much
            as it has leaves, as the code has it by default.
        drop_flat: Whether an ancestor all of whose leaves have the same return is left out of the mean too; the prompt
            always counts.
        alone: The advantage of a prompt's only leaf before whitening: 0, or its return, as in the published code.
        whiten: Whether to whiten.
        baseline: What means are fitted on: all, the naive ones, or searched and naive ones apart.
    """
    depths = range(1, int(batch.turn.max()) + 1)
    counted: Literal["compared", "varied"] = "varied" if drop_flat else "compared"
    return estimate(
        batch,
        Contrast(alone=alone, baseline=baseline, counted="present"),
        *[Contrast("ancestor", depth=depth, baseline=baseline, counted=counted) for depth in depths],
        combine="mean" if weighting == "average" else "size",
        whiten=whiten,
    )
