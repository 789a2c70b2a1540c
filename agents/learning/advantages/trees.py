"""Advantages on trees: returns of leaves compared within trees, below ancestors, or backed up to siblings."""

from typing import Literal

from torch import Tensor

from tsr_gym.agents.learning.advantages.grpo import Baseline, Contrast, Prefix, Scale, estimate
from tsr_gym.agents.learning.advantages.turn_table import (
    Backup,
    Unfinished,
    back_up,
    discounted_sum,
    rewards_of,
    table_of,
)
from tsr_gym.agents.learning.batch import Batch
from tsr_gym.agents.learning.estimators import estimator


@estimator(needs={"naive": {"baseline": "naive"}})
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
    """Return Tree-GRPO's advantages `[B, T]`: within trees and within prompts, on each leaf's path (2509.21240).

    ``intra A_intra + inter A_inter``. Both are ``(R - mean) / (std + eps)`` with the deviation of a sample: A_intra
    over the leaves of the same tree, A_inter over all leaves of the prompt. A turn that several leaves share stands in
    the batch once for each, so that its coefficient is the sum of their advantages. A_intra sums to 0 over a tree, so
    that the turns that all of its leaves share learn from A_inter alone.

    Args:
        batch: One trajectory per leaf.
        intra: Weight of the comparison within a tree.
        inter: Weight of the comparison within a prompt.
        eps: Added to the deviation.
        alone: The advantage of a singleton tree or prompt: 0, or its return, as in the published code, where the mean
            of one is 0 and its deviation 1.
        prefix: How often shared turns count, see `estimate`.
        baseline: Trajectories that the mean is taken over, see `Contrast`.
    """
    within_tree = Contrast("tree", scale="std", eps=eps, alone=alone, baseline=baseline, weight=intra)
    within_prompt = Contrast("prompt", scale="std", eps=eps, alone=alone, baseline=baseline, weight=inter)
    return estimate(batch, within_tree, within_prompt, prefix=prefix)


@estimator(needs={"naive": {"baseline": "naive"}})
def treepo(
    batch: Batch,
    *,
    weighting: Literal["average", "size"] = "average",
    drop_flat: bool = False,
    alone: Literal["zero", "raw"] = "zero",
    whiten: bool = True,
    baseline: Baseline = "all",
) -> Tensor:
    """Return TreePO's advantages `[B, T]`: of a return compared below each ancestor of its path (arXiv 2508.17445).

    The mean over ancestors of ``R - mean(R below the ancestor)``, whitened, on all tokens of a leaf's path. The
    ancestors are the prompt and every turn of the path; one with no other leaf below it is left out. Whitening is that
    of `reinforce_pp`.

    Args:
        batch: One trajectory per leaf.
        weighting: ``"average"``: every ancestor counts the same, as in the published scripts. ``"size"``: each counts
            by the number of its leaves, the default of the published code.
        drop_flat: Whether to leave out of the mean also ancestors whose leaves all have the same return; the prompt
            always counts.
        alone: The advantage of a prompt's only leaf before whitening: 0, or its return, as in the published code.
        whiten: Whether to whiten.
        baseline: Trajectories that means are taken over, see `Contrast`.
    """
    # The prompt is one contrast, and every depth of the longest path another; a path has a key only at its own depths.
    depths = range(1, int(batch.turn.max()) + 1)
    counted: Literal["compared", "varied"] = "varied" if drop_flat else "compared"
    return estimate(
        batch,
        Contrast(alone=alone, baseline=baseline, counted="present"),
        *[Contrast("ancestor", depth=depth, baseline=baseline, counted=counted) for depth in depths],
        combine="mean" if weighting == "average" else "size",
        whiten=whiten,
    )


@estimator(needs={"naive": {"baseline": "naive"}})
def treerl(
    batch: Batch,
    *,
    local: Literal["parent", "ancestors"] = "parent",
    recentre: Literal["none", "step", "token"] = "none",
    prefix: Prefix = 0.5,
    baseline: Baseline = "all",
) -> Tensor:
    """Return TreeRL's advantages `[B, T]`: of a turn's leaves over the root and over its parent (arXiv 2506.11902).

    ``((V(n) - V(root)) + (V(n) - V(parent))) / sqrt(|D(n)|)`` on all tokens of turn n. V(n) is the mean over the leaves
    D(n) below n of ``R - mean of the other leaves' R``, all trees of a prompt being one under a common root, whose V is
    then 0. The root of the second term is the prompt too. A turn stands in the batch once per leaf, so that with the
    square root it counts sqrt(|D|) times. A prompt's only leaf has 0. Branches that the search left are completed as
    failures, see `Backup`.

    Args:
        batch: One trajectory per leaf.
        local: The baseline of the second term: the parent, or the mean over all ancestors.
        recentre: The number that the first term subtracts, the published code's ``overall_norm_style``: 0, or the mean
            of V over the prompt's steps or tokens, each as often as it stands in the batch.
        prefix: Power of |D(n)|: 0.5 as published, 1 and 0 as its options ``uniform`` and ``original``.
        baseline: Leaves that the means of others are taken over, see `Contrast`.
    """
    # Leaves are first compared with the other leaves, and the differences are then averaged to nodes.
    one_out = Contrast(centre="loo", baseline=baseline)
    leaves, nodes = Backup(), Backup(kind="leaf_mean")
    if recentre == "none":
        overall = Contrast(unit="step", centre="none", of=nodes, before=one_out)
    else:
        overall = Contrast(unit=recentre, of=nodes, before=one_out)
    if local == "parent":
        below = [Contrast("siblings", unit="step", of=leaves, before=one_out)]
    else:
        depths = range(int(batch.turn.max()) + 1)
        below = [
            Contrast("ancestor", on="below", depth=depth, counted="present", of=leaves, before=one_out)
            for depth in depths
        ]
    # The mean over one contrast is that contrast.
    return estimate(batch, overall, assign="node", prefix=prefix) + estimate(
        batch, *below, combine="mean", assign="node", prefix=prefix
    )


def tree_value_targets(batch: Batch, advantages: Tensor) -> Tensor:
    """Return the critic's targets for `tree_backup`, `[B, T]`: on every token of turn n the return from there on.

    ``V(n) - sum of the rewards before n on its path``, with V(n) the mean over n's children of their values, the return
    of its path for a leaf. A branch that the search left has the critic's own value, so that its target adds no
    gradient.

    Args:
        batch: One trajectory per leaf, with the critic's values.
        advantages: Not used, because they are differences between siblings.
    """
    # V(n) is the return of a whole path, and the critic's value the return to come: the rewards before n are the
    # difference.
    table, backup = table_of(batch), Backup(kind="child_mean", unfinished="value")
    before = table.returns - discounted_sum(table.reward, table.trajectory, 1.0)
    return table.spread(back_up(table, rewards_of(table, backup), backup).values - before)


@estimator(
    needs={"naive": {"baseline": "naive"}, "values": {"unfinished": "value"}}, targets=tree_value_targets, compares=True
)
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
    """Return the advantages `[B, T]` of every sampled turn over its siblings, by the value of the node it led to. Ours.

    ``A(n) = V(n) - mean of its siblings' V`` on all tokens of turn n. V of a leaf is the return of its path, V of an
    inner node the mean of its children's V: they are samples of the same policy, so this estimates what the policy
    earns from there, even where the search grew unevenly below them. It is meant for batches of `harvest_leaves`, which
    have every sampled candidate, rejected ones too. The first turns of all trees of a prompt are siblings, because they
    are taken in the same state. A turn stands in the batch once for each leaf below it, and all of its copies together
    count as often as the policy takes it (`estimate`, prefix ``"policy"``). With weights by tokens, unbiased values,
    and a search that continues siblings at random, the expected gradient of the loss is then the policy gradient. A
    search that continues siblings by a score visits later states more or less often than the policy does; no weight
    here corrects that.

    In a forest of chains this is `rloo`, or `dr_grpo` with the centre ``"mean"``.

    Args:
        batch: One trajectory per leaf.
        backup: A node's value: the mean of its children, the mean of its leaves, or the mean of its children weighted
            by ``exp(by / tau)``.
        centre: Whether a turn's siblings are the others or all of them, itself included.
        scale: Whether to divide by the siblings' standard deviation.
        only_child: The advantage of a turn without siblings: that of the turn before it, which it continues, or 0.
        unfinished: Completion of the return of a branch that the search left, see `Backup`. By default it fails as its
            group's failures did. ``"value"`` is the critic's value, with the targets `tree_value_targets`; it is the
            default of a configuration with a critic, and is less biased where the critic is good.
        by: Weights of children in ``"child_softmax"``.
        tau: Temperature of these weights.
        prefix: How often shared turns count, see `estimate`.
        baseline: Trajectories that means are taken over, see `Contrast`.
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
