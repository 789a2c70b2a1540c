"""Contrasting: from the entries of a table to the units that a contrast compares, and back.

Two trajectories a and b share their first turn, node 1; they go on to node 2 and earn 4, and to node 3 and earn 0. Of
the whole trajectories (key prompt, unit trajectory), and of nodes among siblings (unit node, values by child_mean):

    entry  trajectory  node  parent | key     unit  value  mean  advantage | key     unit  value  mean  advantage
    0      a           1     root   | prompt  a     4      2     +2        | root    1     2      -     0 (singleton)
    1      a           2     1      | prompt  a     4      2     +2        | node 1  2     4      2     +2
    2      b           1     root   | prompt  b     0      2     -2        | root    1     2      -     0 (singleton)
    3      b           3     1      | prompt  b     0      2     -2        | node 1  3     0      2     -2

Entries 0 and 1 are one unit on the left, entries 0 and 2 are one on the right: a unit counts once in the mean, and all
of its entries have its advantage.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from tsr_gym.agents.learning.advantages.mechanism.backups import Worth, back_up, rewards_of
from tsr_gym.agents.learning.advantages.mechanism.comparison import compare
from tsr_gym.agents.learning.advantages.mechanism.rules import Contrast
from tsr_gym.agents.learning.advantages.mechanism.turn_table import TurnTable, sum_by


class Contrasted(NamedTuple):
    """The outcome of one contrast.

    Attributes:
        advantage: `[E]`, 0 where the entry is not compared.
        counted: `[E]` bool, True where it counts in a mean of several contrasts.
        size: `[E]` int64, number of units that its mean is fitted on.
    """

    advantage: Tensor
    counted: Tensor
    size: Tensor


class _Items(NamedTuple):
    """The I units that are compared: those of entries first, and behind them those that stand for missing turns."""

    value: Tensor
    key: Tensor
    searched: Tensor
    weight: Tensor


def contrast_entries(table: TurnTable, contrast: Contrast) -> Contrasted:
    """Return the advantage of every entry under one contrast: its rewards backed up, then compared."""
    backup = contrast.of
    start = rewards_of(table, backup)
    if backup.before is not None:
        start = Worth(_compared(table, start, backup.before).advantage, start.known)
    return _compared(table, back_up(table, start, backup), contrast)


def _compared(table: TurnTable, worth: Worth, contrast: Contrast) -> Contrasted:
    keys, member = _keys(table, contrast)
    member = member & worth.known & _is_on(table, contrast)
    entry = member.nonzero()[:, 0]
    advantage, alone = torch.zeros_like(worth.values), torch.zeros_like(member)
    counted, size = torch.zeros_like(member), torch.zeros_like(table.turn)
    if len(entry) == 0:
        return Contrasted(advantage, counted, size)
    unit, first = _units(table, entry, contrast)
    items = _Items(worth.values[first], keys[first], table.searched[first], _weights(table, first, contrast))
    if contrast.ragged != "present":
        items = _with_missing(table, worth.values, member, items, contrast)
    if contrast.baseline == "per_kind":
        items = items._replace(key=2 * items.key + items.searched)
    found = compare(
        items.value,
        items.key,
        _fitted(items, contrast),
        items.weight,
        centre=contrast.centre,
        scale=contrast.scale,
        ddof=contrast.ddof,
        eps=contrast.eps,
    )
    advantage[entry], size[entry] = found.advantage[unit], found.size[unit]
    # A value from which nothing is subtracted and that nothing divides needs no others.
    alone[entry] = found.alone[unit] & ((contrast.centre, contrast.scale) != ("none", "none"))
    counted[entry] = ~found.flat[unit] if contrast.counted == "varied" else True
    return _with_singletons(table, worth, Contrasted(advantage, counted, size), alone, contrast)


def _with_singletons(
    table: TurnTable, worth: Worth, contrasted: Contrasted, alone: Tensor, contrast: Contrast
) -> Contrasted:
    """Return the outcome of a comparison with the advantages of singletons put in."""
    advantage, counted, size = contrasted
    if contrast.alone == "raw":
        advantage = torch.where(alone, worth.values, advantage)
    elif contrast.alone == "inherit":
        # Entries of a trajectory stand in the order of its turns, so the running maximum of the numbers of those that
        # are no singletons is the last one before; a first turn has none and keeps 0.
        numbers = torch.arange(len(alone), device=alone.device)
        source = torch.where(alone & ~table.is_first, -1, numbers).cummax(0).values
        advantage = torch.where(alone, torch.where(alone[source], 0.0, advantage[source]), advantage)
    else:
        advantage = torch.where(alone, 0.0, advantage)
        counted = counted & (~alone | (contrast.counted == "present"))
    return Contrasted(contrast.weight * advantage, counted, size)


def _keys(table: TurnTable, contrast: Contrast) -> tuple[Tensor, Tensor]:
    """Return every entry's key, `[E]` int64, and where it has one, `[E]` bool."""
    if contrast.key == "state":
        return table.state, table.state >= 0
    if contrast.key == "ancestor" and contrast.depth > 0:
        # The node that the trajectory was at after so many turns; -1 where it had ended before.
        there = table.turn == contrast.depth - 1
        ancestor = torch.full((table.num_trajectories,), -1, device=table.node.device)
        ancestor[table.trajectory[there]] = table.node[there]
        return ancestor[table.trajectory], ancestor[table.trajectory] >= 0
    turns = int(table.turn.max()) + 1
    keys = {
        "prompt": table.group,
        "ancestor": table.group,
        "tree": table.tree,
        "parent": table.parent,
        # First turns of all trees of a prompt are taken in the same state; numbers from num_nodes on are of no node.
        "siblings": torch.where(table.is_first, table.num_nodes + table.group, table.parent),
        "depth": table.tree * turns + table.turn,
        "turn": table.group * turns + table.turn,
    }
    return keys[contrast.key], torch.ones_like(table.is_last)


def _is_on(table: TurnTable, contrast: Contrast) -> Tensor:
    if contrast.on == "not_last":
        return ~table.is_last
    if contrast.on == "below":
        return table.turn >= contrast.depth
    return torch.ones_like(table.is_last)


def _units(table: TurnTable, entry: Tensor, contrast: Contrast) -> tuple[Tensor, Tensor]:
    """Return the unit of each of some entries, and an entry of every unit."""
    if contrast.unit in ("step", "token"):
        return torch.arange(len(entry), device=entry.device), entry
    owner = table.node if contrast.unit == "node" else table.trajectory
    names, unit = torch.unique(owner[entry], return_inverse=True)
    first = torch.full((len(names),), len(owner), device=entry.device).scatter_reduce(0, unit, entry, "amin")
    return unit, first


def _weights(table: TurnTable, first: Tensor, contrast: Contrast) -> Tensor:
    weights = torch.ones_like(table.reward[first])
    return weights * table.tokens[first] if contrast.unit == "token" else weights


def _fitted(items: _Items, contrast: Contrast) -> Tensor:
    """Return a mask of the items that the mean is fitted on, `[I]`: all of a group without naive ones."""
    if contrast.baseline != "naive":
        return torch.ones_like(items.searched)
    _, group = torch.unique(items.key, return_inverse=True)
    naive = sum_by((~items.searched).long(), group, int(group.max()) + 1)[group]
    return ~items.searched | (naive == 0)


def _with_missing(table: TurnTable, values: Tensor, member: Tensor, items: _Items, contrast: Contrast) -> _Items:
    """Return the items and, behind them, one for every turn that some of the group have and a trajectory lacks.

    Of trajectories with values (3), (1, 5) and (2, 4, 6) the second turn is compared as x, 5, 4 and the third as x, y,
    6, with x = y = 0 for ``"zero"``, and x = 3, y = 5 for ``"last"``.
    """
    first, turns = table.is_first, int(table.turn.max()) + 1
    group, searched = table.group[first], table.searched[first]
    there = torch.zeros((len(group), turns), dtype=torch.bool, device=values.device)
    there[table.trajectory[member], table.turn[member]] = True
    filled = torch.zeros(there.shape, dtype=values.dtype, device=values.device)
    filled[table.trajectory[member], table.turn[member]] = values[member]
    numbers = torch.arange(turns, device=values.device).expand(there.shape)
    if contrast.ragged == "last":
        filled = filled.gather(1, torch.where(there, numbers, 0).cummax(dim=1).values)
    longest = torch.full((int(group.max()) + 1,), -1, device=values.device)
    longest = longest.scatter_reduce(0, table.group[member], table.turn[member], "amax")
    row, turn = (~there & (numbers <= longest[group][:, None])).nonzero(as_tuple=True)
    return _Items(
        torch.cat([items.value, filled[row, turn]]),
        torch.cat([items.key, group[row] * turns + turn]),
        torch.cat([items.searched, searched[row]]),
        torch.cat([items.weight, torch.ones_like(filled[row, turn])]),
    )
