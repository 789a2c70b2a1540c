"""Contrasting: put every turn of a table beside those that a contrast compares it with."""

from typing import NamedTuple

import torch
from torch import Tensor

from tsr_gym.agents.learning.advantages.mechanism.backups import Worth, back_up, rewards_of
from tsr_gym.agents.learning.advantages.mechanism.comparison import compare
from tsr_gym.agents.learning.advantages.mechanism.rules import Contrast
from tsr_gym.agents.learning.advantages.mechanism.turn_table import TurnTable, sum_by


class Contrasted(NamedTuple):
    """What one contrast says of every entry.

    Attributes:
        advantage: `[E]`, 0 where it says nothing.
        counted: `[E]` bool, True where it says something.
        size: `[E]`, with how many the entry was compared.
    """

    advantage: Tensor
    counted: Tensor
    size: Tensor


def contrast_entries(table: TurnTable, contrast: Contrast) -> Contrasted:
    """Return what a contrast says of every entry: its rewards backed up, then compared."""
    backup = contrast.of
    start = rewards_of(table, backup)
    if backup.before is not None:
        start = Worth(_contrasted(table, start, backup.before).advantage, start.known)
    return _contrasted(table, back_up(table, start, backup), contrast)


class _Items(NamedTuple):
    """The I units that are compared; the first of them stand for entries, others only for missing turns."""

    value: Tensor
    key: Tensor
    searched: Tensor
    weight: Tensor


def _contrasted(table: TurnTable, worth: Worth, contrast: Contrast) -> Contrasted:
    keys, member = _keys(table, contrast)
    member = member & worth.known & _chosen(table, contrast)
    entry = member.nonzero()[:, 0]
    advantage = torch.zeros_like(worth.values)
    counted, size = torch.zeros_like(member), torch.zeros_like(table.turn)
    if len(entry) == 0:
        return Contrasted(advantage, counted, size)
    of, first = _units(table, entry, contrast)
    items = _Items(worth.values[first], keys[first], table.searched[first], _weights(table, first, contrast))
    if contrast.ragged != "present":
        items = _with_missing(table, worth.values, member, items, contrast)
    if contrast.baseline == "per_kind":
        items = items._replace(key=2 * items.key + items.searched)
    compared = compare(
        items.value,
        items.key,
        _fitted(items, contrast),
        items.weight,
        centre=contrast.centre,
        scale=contrast.scale,
        ddof=contrast.ddof,
        eps=contrast.eps,
    )
    needs_others = contrast.centre != "none" or contrast.scale != "none"
    alone = torch.zeros_like(member)
    alone[entry] = compared.alone[of] & needs_others
    advantage[entry] = compared.advantage[of]
    size[entry] = compared.size[of]
    counted[entry] = ~compared.flat[of] if contrast.counted == "varied" else True
    return _settle_alone(table, worth, Contrasted(advantage, counted, size), alone, contrast)


def _settle_alone(
    table: TurnTable, worth: Worth, contrasted: Contrasted, alone: Tensor, contrast: Contrast
) -> Contrasted:
    advantage, counted, size = contrasted
    if contrast.alone == "raw":
        advantage = torch.where(alone, worth.values, advantage)
    elif contrast.alone == "inherit":
        numbers = torch.arange(len(alone), device=alone.device)
        source = torch.where(alone & ~table.is_first, -1, numbers).cummax(0).values
        advantage = torch.where(alone, torch.where(alone[source], 0.0, advantage[source]), advantage)
    else:
        advantage = torch.where(alone, 0.0, advantage)
        counted = counted & (~alone | (contrast.counted == "present"))
    return Contrasted(contrast.weight * advantage, counted, size)


def _keys(table: TurnTable, contrast: Contrast) -> tuple[Tensor, Tensor]:
    """Return every entry's key, and whether it has one."""
    everyone = torch.ones_like(table.is_last)
    many = int(table.turn.max()) + 1
    if contrast.key == "prompt":
        return table.group, everyone
    if contrast.key == "tree":
        return table.tree, everyone
    if contrast.key == "parent":
        return table.parent, everyone
    if contrast.key == "siblings":
        return torch.where(table.is_first, table.num_nodes + table.group, table.parent), everyone
    if contrast.key == "depth":
        return table.tree * many + table.turn, everyone
    if contrast.key == "turn":
        return table.group * many + table.turn, everyone
    if contrast.key == "state":
        return table.state, table.state >= 0
    return _ancestors(table, contrast.depth)


def _ancestors(table: TurnTable, depth: int) -> tuple[Tensor, Tensor]:
    if depth == 0:
        return table.group, torch.ones_like(table.is_last)
    there = table.turn == depth - 1
    ancestor = torch.full((table.num_trajectories,), -1, device=table.node.device)
    ancestor[table.trajectory[there]] = table.node[there]
    return ancestor[table.trajectory], ancestor[table.trajectory] >= 0


def _chosen(table: TurnTable, contrast: Contrast) -> Tensor:
    if contrast.on == "not_last":
        return ~table.is_last
    if contrast.on == "below":
        return table.turn >= contrast.depth
    return torch.ones_like(table.is_last)


def _units(table: TurnTable, entry: Tensor, contrast: Contrast) -> tuple[Tensor, Tensor]:
    """Return which unit each of some entries belongs to, and an entry of every unit."""
    if contrast.unit in ("step", "token"):
        return torch.arange(len(entry), device=entry.device), entry
    unit = table.node if contrast.unit == "node" else table.trajectory
    names, of = torch.unique(unit[entry], return_inverse=True)
    first = torch.full((len(names),), len(unit), device=entry.device).scatter_reduce(0, of, entry, "amin")
    return of, first


def _weights(table: TurnTable, first: Tensor, contrast: Contrast) -> Tensor:
    weights = torch.ones_like(table.reward[first])
    return weights * table.tokens[first] if contrast.unit == "token" else weights


def _fitted(items: _Items, contrast: Contrast) -> Tensor:
    if contrast.baseline != "naive":
        return torch.ones_like(items.searched)
    _, group = torch.unique(items.key, return_inverse=True)
    naive = sum_by((~items.searched).long(), group, int(group.max()) + 1)[group]
    return ~items.searched | (naive == 0)


def _with_missing(table: TurnTable, values: Tensor, member: Tensor, items: _Items, contrast: Contrast) -> _Items:
    """Return the items and, behind them, one for every turn that some of the group have and a trajectory lacks."""
    first = table.is_first
    group, searched = table.group[first], table.searched[first]
    many = int(table.turn.max()) + 1
    there = torch.zeros((len(group), many), dtype=torch.bool, device=values.device)
    there[table.trajectory[member], table.turn[member]] = True
    filled = torch.zeros(there.shape, dtype=values.dtype, device=values.device)
    filled[table.trajectory[member], table.turn[member]] = values[member]
    turns = torch.arange(many, device=values.device).expand(there.shape)
    if contrast.ragged == "last":
        before = torch.where(there, turns, 0).cummax(dim=1).values
        filled = filled.gather(1, before)
    longest = torch.full((int(group.max()) + 1,), -1, device=values.device)
    longest = longest.scatter_reduce(0, table.group[member], table.turn[member], "amax")
    row, turn = (~there & (turns <= longest[group][:, None])).nonzero(as_tuple=True)
    return _Items(
        torch.cat([items.value, filled[row, turn]]),
        torch.cat([items.key, group[row] * many + turn]),
        torch.cat([items.searched, searched[row]]),
        torch.cat([items.weight, torch.ones_like(filled[row, turn])]),
    )
