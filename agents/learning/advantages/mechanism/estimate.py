"""The one mechanism under all group-relative estimators: back up, contrast, combine, assign."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from tsr_gym.agents.learning.advantages.mechanism.backups import check_nodes, first_entries
from tsr_gym.agents.learning.advantages.mechanism.comparison import are_equal_bounds
from tsr_gym.agents.learning.advantages.mechanism.contrasting import Contrasted, contrast_entries
from tsr_gym.agents.learning.advantages.mechanism.rules import Contrast
from tsr_gym.agents.learning.advantages.mechanism.turn_table import TurnTable, sum_by, table_of
from tsr_gym.agents.learning.batch import Batch

Combine = Literal["sum", "mean", "size"]
Assign = Literal["path", "node"]
Prefix = Literal["duplicate", "once"] | float


def estimate(
    batch: Batch,
    *contrasts: Contrast,
    combine: Combine = "sum",
    assign: Assign = "path",
    prefix: Prefix = "duplicate",
    whiten: bool = False,
) -> Tensor:
    """Return the advantages that some contrasts make together.

    Args:
        batch: Trajectories in groups and trees.
        contrasts: What is compared with what.
        combine: How several contrasts of a turn become one advantage: their sum, the mean of those that say something
            of it, or that mean weighted by with how many it was compared.
        assign: ``"path"``: a turn that several trajectories share has in each the advantage of that trajectory.
            ``"node"``: it has the mean of these in all of them.
        prefix: What a turn counts that D trajectories share, and which therefore stands in the batch D times.
            ``"duplicate"``: D times. A number p: every copy is multiplied by ``D^-p``, so that 1 counts it once.
            ``"once"``: the sum of the copies' advantages stands on the first and 0 on the others; the gradient before
            any clip is that of ``"duplicate"``.
        whiten: Whether to shift and scale the advantages of all sampled tokens to mean 0 and variance 1.

    Returns:
        `[B, T]`, 0 where nothing was sampled.

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
    total = torch.stack([part.advantage * part.counted for part in parts])
    if combine == "sum":
        return total.sum(dim=0)
    weights = torch.stack([part.counted * (part.size if combine == "size" else 1) for part in parts]).to(total.dtype)
    return (total * weights).sum(dim=0) / weights.sum(dim=0).clamp(min=1)


def _with_prefix(table: TurnTable, advantages: Tensor, prefix: Prefix) -> Tensor:
    if prefix == "duplicate":
        return advantages
    if prefix == "once":
        sums, first = sum_by(advantages, table.node, table.num_nodes), first_entries(table)
        once = torch.zeros_like(advantages)
        once[first] = sums[table.node[first]]
        return once
    return advantages * table.sharers.to(advantages.dtype) ** -prefix


def _whitened(table: TurnTable, advantages: Tensor, eps: float = 1e-8) -> Tensor:
    """Return advantages whitened over tokens, with the variance of a sample; all 0 where all are equal."""
    tokens = advantages[table.entry]
    if are_equal_bounds(tokens.max(), tokens.min()):
        return torch.zeros_like(advantages)
    return (advantages - tokens.mean()) / (tokens.var() + eps).sqrt()
