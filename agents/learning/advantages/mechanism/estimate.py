"""The mechanism of all group-relative estimators: back up, contrast, combine, assign, whiten."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from tsr_gym.agents.learning.advantages.mechanism.backups import check_nodes, first_entries, nodes_of
from tsr_gym.agents.learning.advantages.mechanism.comparison import are_equal_bounds
from tsr_gym.agents.learning.advantages.mechanism.contrasting import Contrasted, contrast_entries
from tsr_gym.agents.learning.advantages.mechanism.rules import Contrast
from tsr_gym.agents.learning.advantages.mechanism.turn_table import TurnTable, sum_by, table_of
from tsr_gym.agents.learning.batch import Batch

Combine = Literal["sum", "mean", "size"]
Assign = Literal["path", "node"]
Prefix = Literal["duplicate", "once", "policy"] | float


def estimate(
    batch: Batch,
    *contrasts: Contrast,
    combine: Combine = "sum",
    assign: Assign = "path",
    prefix: Prefix = "duplicate",
    whiten: bool = False,
) -> Tensor:
    """Return the advantages `[B, T]` that some contrasts make together, 0 where nothing was sampled.

    Args:
        batch: Trajectories in groups and trees.
        contrasts: What is compared with what.
        combine: How the advantages A_c of a turn under several contrasts become one: ``"sum"``: ``sum_c A_c``.
            ``"mean"``: their mean over contrasts in which it counts. ``"size"``: that mean weighted by the number of
            units it was compared with.
        assign: ``"path"``: a turn that several trajectories share has in each the advantage of that trajectory.
            ``"node"``: it has the mean of these in all of them.
        prefix: How often a turn counts that D trajectories share, and which therefore stands in the batch D times.
            ``"duplicate"``: D times, so that it weighs more the more leaves the search grew below it. A number p:
            every copy is multiplied by ``D^-p``, so that 1 counts every node once, which in a full tree weighs early
            turns too little. ``"policy"``: as often as the policy comes to take it (`policy_weights`). ``"once"``: the
            sum of the copies' advantages stands on the first and 0 on the others; the gradient before any clip is that
            of ``"duplicate"``.
        whiten: Whether to shift and scale the advantages of all sampled tokens to mean 0 and variance 1.

    Raises:
        ValueError: Nodes are compared, and two trees of a group have the same number.
    """
    table = table_of(batch)
    if assign == "node" or prefix != "duplicate" or any(_looks_at_nodes(contrast) for contrast in contrasts):
        check_nodes(table)
    advantages = _combined([contrast_entries(table, contrast) for contrast in contrasts], combine)
    if assign == "node":
        sums = sum_by(advantages, table.node, table.num_nodes)
        advantages = sums[table.node] / table.sharers
    advantages = _with_prefix(table, advantages, prefix)
    return table.spread(_whitened(table, advantages) if whiten else advantages)


def _looks_at_nodes(contrast: Contrast) -> bool:
    return contrast.unit == "node" or contrast.key in ("parent", "siblings", "ancestor")


def _combined(parts: Sequence[Contrasted], combine: Combine) -> Tensor:
    """Return ``sum_c A_c``, or ``sum_c w_c A_c / sum_c w_c`` with w = 1 or the size where it counts, `[E]`."""
    total = torch.stack([part.advantage * part.counted for part in parts])
    if combine == "sum":
        return total.sum(dim=0)
    # A contrast in which an entry does not count is left out of its mean; where none counts, the advantage is 0.
    weights = torch.stack([part.counted * (part.size if combine == "size" else 1) for part in parts]).to(total.dtype)
    return (total * weights).sum(dim=0) / weights.sum(dim=0).clamp(min=1)


def _with_prefix(table: TurnTable, advantages: Tensor, prefix: Prefix) -> Tensor:
    if prefix == "duplicate":
        return advantages
    if prefix == "policy":
        return advantages * policy_weights(table)
    if prefix == "once":
        # Copies have the same log-probability, so its gradient sees their sum alone.
        sums, first = sum_by(advantages, table.node, table.num_nodes), first_entries(table)
        once = torch.zeros_like(advantages)
        once[first] = sums[table.node[first]]
        return once
    return advantages * table.sharers.to(advantages.dtype) ** -prefix


def policy_weights(table: TurnTable) -> Tensor:
    """Return factors that let a node count as often as the policy comes to take it, `[E]`; 1 in a forest of chains.

    A state s has a share, that of all episodes that pass through it, which its m sampled children divide evenly. Only
    the children that the search did not leave, c of them, go on, and these stand for all:

        w(n) = share(s) / m        share(n) = share(s) / c, 0 where n was left        share(root of a prompt) = 1

    For a prompt of G leaves, D(n) of them below n, each of the node's D(n) copies has the factor ``G w(n) / D(n)``.
    """
    nodes, (roots, size) = nodes_of(table), (table.num_nodes, table.num_nodes + int(table.group.max()) + 1)
    # All first turns of a prompt are taken in one state, in all of its trees.
    parent = torch.where(table.is_first, roots + table.group, table.parent)[nodes.entry]
    children = torch.bincount(parent, minlength=size).to(table.reward.dtype)
    ended = torch.bincount(table.node[table.is_last & table.finished], minlength=size) > 0
    goes_on = (ended | (children > 0))[nodes.node].to(children.dtype)
    going_on = sum_by(goes_on, parent, size).clamp(min=1)
    share, weight = torch.ones_like(children), torch.zeros_like(children)
    for depth in range(int(table.turn.max()) + 1):
        level = nodes.turn == depth
        node, above = nodes.node[level], parent[level]
        weight[node] = share[above] / children[above]
        share[node] = goes_on[level] * share[above] / going_on[above]
    # G leaves of weight 1 / G each are a chain's w; so the factor is 1 there, and advantages keep their size.
    leaves = torch.bincount(table.group[table.is_last])
    return leaves[table.group] * weight[table.node] / table.sharers


def _whitened(table: TurnTable, advantages: Tensor, eps: float = 1e-8) -> Tensor:
    """Return ``(A - mean) / sqrt(var + eps)`` over tokens, with the variance of a sample; all 0 where all are equal."""
    tokens = advantages[table.entry]
    if are_equal_bounds(tokens.max(), tokens.min()):
        return torch.zeros_like(advantages)
    return (advantages - tokens.mean()) / (tokens.var() + eps).sqrt()
