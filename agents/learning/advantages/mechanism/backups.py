"""Backups: the value of each turn of a table, from the rewards of the trajectories through it."""

from typing import NamedTuple

import torch
from torch import Tensor

from tsr_gym.agents.learning.advantages.mechanism.rules import Backup
from tsr_gym.agents.learning.advantages.mechanism.turn_table import TurnTable, discounted_sum, sum_by


class Worth(NamedTuple):
    """A number per entry.

    Attributes:
        values: `[E]`.
        known: `[E]` bool; where False the value is 0 and takes part in nothing.
    """

    values: Tensor
    known: Tensor


def rewards_of(table: TurnTable, backup: Backup) -> Worth:
    """Return the numbers that a backup starts from, before anything is compared or backed up.

    With R the return of an entry's trajectory and c what completes it (`_completion`): ``R + c`` for returns; for
    rewards of turns ``r_k``, and ``r_K + c`` on the last turn K where they are added up; ``r_K`` for outcomes.
    """
    if backup.rewards == "last":
        values = table.last_rewards
    elif backup.rewards == "return":
        values = table.returns + _completion(table, backup)[table.trajectory]
    elif backup.kind == "return_to_go":
        values = torch.where(table.is_last, table.reward + _completion(table, backup)[table.trajectory], table.reward)
    else:
        values = table.reward
    known = torch.ones_like(table.finished) if backup.unfinished != "skip" else table.finished
    return Worth(torch.where(known, values, 0.0), known)


def _completion(table: TurnTable, backup: Backup) -> Tensor:
    """Return the completion of each trajectory's return, `[N]`; 0 where its episode ended."""
    last = table.is_last
    if backup.unfinished == "failure":
        beyond = _rest_of_failures(table)[table.group[last], table.turn[last]]
    elif backup.unfinished == "score":
        beyond = table.score[last]
    elif backup.unfinished == "value":
        if table.value is None:
            raise ValueError("unfinished='value' needs the critic's values: wanted batch.values [B, T], got None")
        # The state before the last token, whose value holds the turn's own reward as well.
        beyond = table.value[last].to(table.reward.dtype) - table.reward[last]
    else:
        beyond = torch.zeros_like(table.reward[last])
    return torch.where(table.finished[last], 0.0, beyond)


def _rest_of_failures(table: TurnTable) -> Tensor:
    """Return the mean rewards after turn k of the failures of a group that went on after it, `[groups, turns]`.

        rest[g, k] = mean over the finished, unsolved trajectories i of g with last turn K_i > k of sum_{j > k} r_ij

    0 where no failure went on.
    """
    last, turns = table.is_last, int(table.turn.max()) + 1
    rewards = torch.zeros((table.num_trajectories, turns), dtype=table.reward.dtype, device=table.reward.device)
    rewards[table.trajectory, table.turn] = table.reward
    # `[N, turns]`: sum_{j > k} r_ij, and whether trajectory i is a failure with a turn after k.
    to_come = rewards.sum(dim=1, keepdim=True) - rewards.cumsum(dim=1)
    goes_on = torch.arange(turns, device=rewards.device) < table.turn[last][:, None]
    goes_on &= (table.finished & ~table.solved)[last][:, None]
    sums = torch.zeros((int(table.group.max()) + 1, turns), dtype=rewards.dtype, device=rewards.device)
    counts = torch.zeros_like(sums).index_add(0, table.group[last], goes_on.to(sums.dtype))
    return sums.index_add(0, table.group[last], to_come * goes_on) / counts.clamp(min=1)


def back_up(table: TurnTable, start: Worth, backup: Backup) -> Worth:
    """Return the backed-up value of every entry.

    Raises:
        ValueError: A node is told apart by its number but not by its tokens: two trees have the same number.
    """
    if backup.kind == "none":
        return start
    if backup.kind == "return_to_go":
        return Worth(discounted_sum(start.values, table.trajectory, backup.gamma), start.known)
    check_nodes(table)
    if backup.kind == "leaf_mean":
        # V(n) = mean of the values of the D(n) trajectories through n.
        sums = sum_by(start.values, table.node, table.num_nodes)
        counts = sum_by(start.known.to(sums.dtype), table.node, table.num_nodes)
        return Worth((sums / counts.clamp(min=1))[table.node], (counts > 0)[table.node])
    return _from_children(table, start, backup)


def _from_children(table: TurnTable, start: Worth, backup: Backup) -> Worth:
    """Return ``V(n) = sum_c w_c V(c) / sum_c w_c`` over the children c of n, from the deepest turns up.

    A trajectory that ends at n is one child of weight 1 with its own value. Weights are 1, or the softmax of ``by /
    tau`` over siblings times their number, so that ends and children weigh alike on average.
    """
    nodes = nodes_of(table)
    ends = table.is_last & start.known
    sums = sum_by(torch.where(ends, start.values, 0.0), table.node, table.num_nodes)
    weights = sum_by(ends.to(sums.dtype), table.node, table.num_nodes)
    by = table.score if backup.by == "score" else table.surprisal
    priority = by[nodes.entry].to(sums.dtype) / backup.tau
    values = torch.zeros_like(sums)
    for depth in reversed(range(int(table.turn.max()) + 1)):
        # A child stands at a later turn than its parent, so the sums of this level are complete.
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
    # The largest exponent is 0, so that none overflows.
    top = top.scatter_reduce(0, group, priority, "amax")
    weights = (priority - top[group]).exp()
    shares: Tensor = weights / sum_by(weights, group, len(counts))[group] * counts[group]
    return shares


class Nodes(NamedTuple):
    """Every node that a turn led to, once: its number, its parent's, its turn, and an entry of it, each `[nodes]`."""

    node: Tensor
    parent: Tensor
    turn: Tensor
    entry: Tensor


def nodes_of(table: TurnTable) -> Nodes:
    """Return the different nodes of a table."""
    entry = first_entries(table)
    return Nodes(table.node[entry], table.parent[entry], table.turn[entry], entry)


def first_entries(table: TurnTable) -> Tensor:
    """Return the first entry of every node, `[nodes]`."""
    numbers = torch.arange(len(table.node), device=table.node.device)
    first = torch.full((table.num_nodes,), len(numbers), device=numbers.device)
    first = first.scatter_reduce(0, table.node, numbers, "amin")
    return first[first < len(numbers)]


def check_nodes(table: TurnTable) -> None:
    """Check that a node is the same turn in every trajectory.

    Raises:
        ValueError: It is not.
    """
    first = torch.zeros(table.num_nodes, dtype=torch.int64, device=table.node.device)
    entry = first_entries(table)
    first[table.node[entry]] = entry
    # A parent and a turn of its own tell apart nodes of different trees whose tokens happen to be the same.
    twin = first[table.node]
    marks = (table.tokens, table.fingerprint, table.parent, table.turn)
    if not all(torch.equal(mark[twin], mark) for mark in marks):
        raise ValueError(
            "two different turns bear the number of one node: wanted trees of a group to have different numbers "
            "(harvest(tree, number=...)), got two trees with the same"
        )
