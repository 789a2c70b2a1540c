"""Tree backup: what every sampled candidate led to, compared with its siblings."""

from typing import Literal

from torch import Tensor

from tsr_gym.agents.learning.advantages.mechanism.comparison import Scale
from tsr_gym.agents.learning.advantages.mechanism.estimate import Prefix, estimate
from tsr_gym.agents.learning.advantages.mechanism.rules import Backup, Baseline, Contrast, Unfinished
from tsr_gym.agents.learning.batch import Batch


def tree_backup(
    batch: Batch,
    *,
    backup: Literal["child_mean", "leaf_mean", "child_softmax"] = "child_mean",
    centre: Literal["loo", "mean"] = "loo",
    scale: Scale = "none",
    only_child: Literal["inherit", "zero"] = "inherit",
    unfinished: Unfinished = "failure",
    by: Literal["surprisal", "score"] = "surprisal",
    tau: float = 1.0,
    prefix: Prefix = "policy",
    baseline: Baseline = "all",
) -> Tensor:
    """Return the advantages ``V(n) - mean of its siblings' V``, `[B, T]`, of every sampled turn n. Ours.

    V of a leaf is the return of its path, V of an inner node the mean of its children's V: they are samples of the same
    policy, so this estimates what the policy earns from there, even where the search went on unevenly below them. For
    batches of `harvest_leaves`, in which every sampled candidate is, rejected ones too. The first turns of all trees of
    a prompt are siblings, because they are taken in the same state. A turn stands in the batch once for each leaf below
    it, and all of its copies together count as often as the policy comes to take it (`estimate`, prefix ``"policy"``).
    With weights by tokens, values that are right on average, and a search that goes on from siblings by lot, the loss
    then has the policy gradient as its mean. A search that goes on by a score visits later states more or less often
    than the policy does; no weight here undoes that.

    In a forest of chains this is `rloo`, or `dr_grpo` with the centre ``"mean"``.

    Args:
        batch: One trajectory per leaf.
        backup: How a node's value comes of what is below it: the mean of its children, the mean of its leaves, or
            children weighted by ``exp(by / tau)``.
        centre: Whether a turn's siblings are the others or all of them, itself included.
        scale: Whether to divide by the siblings' standard deviation.
        only_child: The advantage of a turn without siblings: that of the turn before it, whose continuation it is, or
            0.
        unfinished: What completes the return of a branch that the search left, see `Backup`. By default it failed as
            its group's failures did; ``"value"`` is less biased where there is a good critic.
        by: What weighs children in ``"child_softmax"``.
        tau: Its temperature.
        prefix: How often shared turns count, see `estimate`.
        baseline: What means are fitted on: all, the naive ones, or searched and naive ones apart.
    """
    contrast = Contrast(
        "siblings",
        unit="node",
        centre=centre,
        scale=scale,
        alone=only_child,
        baseline=baseline,
        of=Backup(kind=backup, by=by, tau=tau, unfinished=unfinished),
    )
    return estimate(batch, contrast, prefix=prefix)
