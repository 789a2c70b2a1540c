"""Backups: what each turn of a table is worth, from the rewards of the trajectories through it."""

from typing import NamedTuple

import torch
from torch import Tensor

from tsr_gym.agents.learning.advantages.mechanism.rules import Backup
from tsr_gym.agents.learning.advantages.mechanism.turn_table import TurnTable, discounted_sum, sum_by


class Worth(NamedTuple):
    """A number per entry.

    Attributes:
        values: `[E]`.
        known: `[E]` bool, False where nobody knows it; the value is then 0.
    """

    values: Tensor
    known: Tensor


def rewards_of(table: TurnTable, backup: Backup) -> Worth:
    """Return what every entry begins with."""
    if backup.rewards == "turn":
        values = table.reward
    elif backup.rewards == "last":
        values = table.last_rewards
    else:
        values = table.returns + _to_come(table, backup)[table.is_last][table.trajectory]
    known = torch.ones_like(table.finished) if backup.unfinished != "skip" else table.finished
    return Worth(torch.where(known, values, 0.0), known)


def _to_come(table: TurnTable, backup: Backup) -> Tensor:
    if backup.unfinished == "score":
        return torch.where(table.finished, 0.0, table.score)
    if backup.unfinished == "value":
        if table.value is None:
            raise ValueError("unfinished='value' needs the critic's values: wanted batch.values [B, T], got None")
        return torch.where(table.finished, 0.0, table.value)
    return torch.zeros_like(table.reward)


def back_up(table: TurnTable, start: Worth, backup: Backup) -> Worth:
    """Return what every entry is worth.

    Raises:
        ValueError: A node is told apart by its number but not by its tokens: two trees have the same number.
    """
    if backup.kind == "none":
        return start
    if backup.kind == "return_to_go":
        return Worth(discounted_sum(start.values, table.trajectory, backup.gamma), start.known)
    check_nodes(table)
    if backup.kind == "leaf_mean":
        sums = sum_by(start.values, table.node, table.num_nodes)
        counts = sum_by(start.known.to(sums.dtype), table.node, table.num_nodes)
        return Worth((sums / counts.clamp(min=1))[table.node], (counts > 0)[table.node])
    return _from_children(table, start, backup)


def _from_children(table: TurnTable, start: Worth, backup: Backup) -> Worth:
    """Return node values from the bottom up; a trajectory that ends at a node counts there as one child."""
    nodes = _nodes(table)
    ends = table.is_last & start.known
    sums = sum_by(torch.where(ends, start.values, 0.0), table.node, table.num_nodes)
    weights = sum_by(ends.to(sums.dtype), table.node, table.num_nodes)
    by = table.score if backup.by == "score" else table.surprisal
    priority = by[nodes.entry].to(sums.dtype) / backup.tau
    values = torch.zeros_like(sums)
    for depth in reversed(range(int(table.turn.max()) + 1)):
        level = nodes.turn == depth
        node, parent = nodes.node[level], nodes.parent[level]
        values[node] = sums[node] / weights[node].clamp(min=1e-12)
        known = weights[node] > 0
        node, parent = node[known], parent[known]
        share = (
            _shares(parent, priority[level][known]) if backup.kind == "child_softmax" else torch.ones_like(sums[node])
        )
        sums.index_add_(0, parent, share * values[node])
        weights.index_add_(0, parent, share)
    return Worth(values[table.node], (weights > 0)[table.node])


def _shares(parent: Tensor, priority: Tensor) -> Tensor:
    """Return siblings' softmax weights, scaled so that they sum to the number of siblings."""
    _, group, counts = torch.unique(parent, return_inverse=True, return_counts=True)
    top = torch.full((len(counts),), -torch.inf, dtype=priority.dtype, device=priority.device)
    top = top.scatter_reduce(0, group, priority, "amax")
    weights = (priority - top[group]).exp()
    shares: Tensor = weights / sum_by(weights, group, len(counts))[group] * counts[group]
    return shares


class _Nodes(NamedTuple):
    """Every node that a turn led to, once: its number, parent, turn, and an entry of it."""

    node: Tensor
    parent: Tensor
    turn: Tensor
    entry: Tensor


def _nodes(table: TurnTable) -> _Nodes:
    entry = first_entries(table)
    return _Nodes(table.node[entry], table.parent[entry], table.turn[entry], entry)


def first_entries(table: TurnTable) -> Tensor:
    """Return the first entry of every node, `[nodes]`."""
    numbers = torch.arange(len(table.node), device=table.node.device)
    first = torch.full((table.num_nodes,), len(numbers), device=numbers.device)
    first = first.scatter_reduce(0, table.node, numbers, "amin")
    return first[first < len(numbers)]


def check_nodes(table: TurnTable) -> None:
    """Check that a node is the same turn wherever it stands.

    Raises:
        ValueError: It is not.
    """
    first = torch.zeros(table.num_nodes, dtype=torch.int64, device=table.node.device)
    entry = first_entries(table)
    first[table.node[entry]] = entry
    twin = first[table.node]
    marks = (table.tokens, table.fingerprint, table.parent, table.turn)
    if not all(torch.equal(mark[twin], mark) for mark in marks):
        raise ValueError(
            "two different turns bear the number of one node: wanted trees of a group to have different numbers "
            "(harvest(tree, number=...)), got two trees with the same"
        )
