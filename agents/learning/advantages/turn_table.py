"""TurnTable: a batch as one entry per turn of a trajectory, sums over entries and tokens, and the value of each turn.

Trajectory a samples the tokens (5 6) and, after the answer of the environment, (7); trajectory b samples (5 6) in the
same node and then (8 9). Rewards are 0, 4 and 0, 0. Of S = 7 sampled tokens there are E = 4 entries:

    entry  trajectory  turn  node  parent  reward  return  tokens  starts  is_last  sharers
    0      0           0     1     0       0       4       2       0       no       2
    1      0           1     2     1       4       4       1       2       yes      1
    2      1           0     1     0       0       0       2       3       no       2
    3      1           1     3     1       0       0       2       5       yes      1

    token  0  1  2  3  4  5  6
    ids    5  6  7  5  6  8  9
    entry  0  0  1  2  2  3  3
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from tsr_gym.agents.learning.batch import Batch

Unfinished = Literal["failure", "return", "score", "value", "skip"]


@dataclass(frozen=True, slots=True)
class TurnTable:
    """E entries, each a turn of a trajectory, and S sampled tokens; both in the order of trajectories, turns, tokens.

    A turn that two trajectories share is two entries with the same node, see the example above.

    Attributes:
        shape: Of the batch, ``(B, T)``.
        row: `[S]`, the row of each sampled token.
        column: `[S]`, its column.
        entry: `[S]`, its entry.
        trajectory: `[E]`, number of the trajectory.
        turn: `[E]`, number of the turn in its trajectory.
        step: `[E]`, the same, counting only turns with tokens.
        group: `[E]`, number of the group.
        tree: `[E]`, number of the tree.
        node: `[E]`, node that the turn led to.
        parent: `[E]`, node in which it was taken.
        state: `[E]`, state in which it was taken, -1 if unknown.
        move: `[E]`, move of that state, -1 if unknown.
        reward: `[E]`, of the turn.
        score: `[E]`, the search's score of the turn.
        tokens: `[E]`, number of its tokens.
        fingerprint: `[E]` int64, the same for the same token ids.
        surprisal: `[E]`, mean of minus the log-probability of its tokens.
        value: `[E]`, the critic's value at its last token; None without a critic.
        is_last: `[E]` bool, True for the last turn of a trajectory.
        searched: `[E]` bool, True where a search selected the trajectory.
        finished: `[E]` bool, True where the trajectory's episode ended.
        solved: `[E]` bool, True where the trajectory solved its task.
    """

    shape: tuple[int, int]
    row: Tensor
    column: Tensor
    entry: Tensor
    trajectory: Tensor
    turn: Tensor
    step: Tensor
    group: Tensor
    tree: Tensor
    node: Tensor
    parent: Tensor
    state: Tensor
    move: Tensor
    reward: Tensor
    score: Tensor
    tokens: Tensor
    fingerprint: Tensor
    surprisal: Tensor
    value: Tensor | None
    is_last: Tensor
    searched: Tensor
    finished: Tensor
    solved: Tensor

    @property
    def num_trajectories(self) -> int:
        """Number of trajectories, N."""
        return int(self.trajectory[-1]) + 1

    @property
    def num_nodes(self) -> int:
        """Number of nodes, roots included."""
        return int(torch.maximum(self.node.max(), self.parent.max())) + 1

    @property
    def is_first(self) -> Tensor:
        """`[E]` bool, True for the first turn of a trajectory."""
        return self.step == 0

    @property
    def starts(self) -> Tensor:
        """`[E]`, place of the turn's first token among the S sampled tokens."""
        return self.tokens.cumsum(0) - self.tokens

    @property
    def returns(self) -> Tensor:
        """`[E]`, the summed reward of the entry's trajectory."""
        return sum_by(self.reward, self.trajectory, self.num_trajectories)[self.trajectory]

    @property
    def last_rewards(self) -> Tensor:
        """`[E]`, the reward of the last turn of the entry's trajectory."""
        return self.reward[self.is_last][self.trajectory]

    @property
    def sharers(self) -> Tensor:
        """`[E]`, number of trajectories that share the entry's turn."""
        return torch.bincount(self.node, minlength=self.num_nodes)[self.node]

    def write(self, values: Tensor) -> Tensor:
        """Return values `[S]` of sampled tokens where these stand in the batch, `[B, T]` float32, 0 elsewhere."""
        written = torch.zeros(self.shape, device=values.device)
        written[self.row, self.column] = values.float()
        return written

    def spread(self, values: Tensor) -> Tensor:
        """Return values `[E]` of entries on all of their tokens, `[B, T]` float32, 0 where nothing was sampled."""
        return self.write(values[self.entry])


def table_of(batch: Batch) -> TurnTable:
    """Return the table of a batch, whose rows may stand in any order."""
    # Everything is read off the sampled tokens; a turn's properties are those of its last token.
    row, column = batch.sampled.nonzero(as_tuple=True)
    trajectory, turn = batch.trajectory[row], batch.turn[row, column]
    many_turns, many_columns = int(turn.max()) + 1, batch.ids.shape[1]
    # A shuffled batch has the rows of a trajectory apart; everything below relies on this order.
    order = ((trajectory * many_turns + turn) * many_columns + column).argsort()
    row, column, trajectory, turn = row[order], column[order], trajectory[order], turn[order]
    _, entry, tokens = torch.unique_consecutive(trajectory * many_turns + turn, return_inverse=True, return_counts=True)
    ends = tokens.cumsum(0) - 1
    row_of, column_of, trajectory = row[ends], column[ends], trajectory[ends]
    size = len(tokens)
    # The rows may be part of a batch, and their trajectories are numbered anew without gaps.
    _, trajectory, lengths = torch.unique_consecutive(trajectory, return_inverse=True, return_counts=True)
    last = lengths.cumsum(0) - 1
    is_last = torch.zeros(size, dtype=torch.bool, device=row.device)
    is_last[last] = True
    return TurnTable(
        shape=(batch.ids.shape[0], many_columns),
        row=row,
        column=column,
        entry=entry,
        trajectory=trajectory,
        turn=turn[ends],
        step=torch.arange(size, device=row.device) - (last - lengths + 1)[trajectory],
        group=batch.group[row_of],
        tree=batch.tree[row_of],
        node=batch.node[row_of, column_of],
        parent=batch.parent[row_of, column_of],
        state=batch.state[row_of, column_of],
        move=torch.full_like(row_of, -1) if batch.move is None else batch.move[row_of, column_of],
        reward=sum_by(batch.rewards[row, column], entry, size),
        score=sum_by(batch.scores[row, column], entry, size),
        tokens=tokens,
        fingerprint=_fingerprint(batch.ids[row, column], entry, tokens),
        surprisal=-sum_by(batch.old_logprobs[row, column], entry, size) / tokens,
        value=None if batch.values is None else batch.values[row_of, column_of],
        is_last=is_last,
        searched=batch.searched[row_of],
        finished=batch.finished[row_of],
        solved=batch.solved[row_of],
    )


def _fingerprint(ids: Tensor, entry: Tensor, tokens: Tensor) -> Tensor:
    """Return ``sum_p id_p (2 p + 1)`` over the places p of each entry's tokens, `[E]` int64.

    Different tokens or another order almost always give another sum, which is enough for `check_nodes`.
    """
    place = torch.arange(len(ids), device=ids.device) - (tokens.cumsum(0) - tokens)[entry]
    return sum_by(ids * (2 * place + 1), entry, len(tokens))


def sum_by(values: Tensor, index: Tensor, size: int) -> Tensor:
    """Return the sums of the values that have the same index, `[size]`."""
    return torch.zeros(size, dtype=values.dtype, device=values.device).index_add(0, index, values)


def discounted_sum(values: Tensor, sequence: Tensor, discount: float) -> Tensor:
    """Return ``sum_l discount^l values[t + l]`` over the later items of t's sequence, `[S]`.

    After pass p an item has the sum over the next ``2^p`` items, so that there are ``log2(longest)`` passes and no loop
    over tokens.

    Args:
        values: `[S]`.
        sequence: `[S]`, which sequence an item belongs to; items of one sequence stand together.
        discount: Per item.
    """
    # Total of the next `reach` items of each item's sequence; doubled in every pass.
    total, reach = values.clone(), 1
    while reach < len(values) and discount**reach != 0:
        # Items of a sequence stand together: where two that are so far apart belong to it, all between them do.
        together = sequence[:-reach] == sequence[reach:]
        if not together.any():
            break
        total[:-reach] = total[:-reach] + discount**reach * torch.where(together, total[reach:], 0.0)
        reach *= 2
    return total


def later(values: Tensor, sequence: Tensor) -> Tensor:
    """Return the value of the next item of each item's sequence, `[S]`; 0 for a last one."""
    following = torch.where(sequence[:-1] == sequence[1:], values[1:], 0.0)
    return torch.cat([following, torch.zeros_like(values[:1])])


@dataclass(frozen=True, slots=True)
class Backup:
    """The value of a turn before it is compared.

    Attributes:
        rewards: The number that every turn starts from. ``"return"``: the return of its trajectory. ``"turn"``: its own
            reward. ``"last"``: the reward of the trajectory's last turn, its outcome.
        kind: ``"none"``: the numbers stay. ``"return_to_go"``: each turn adds the later rewards of its trajectory,
            discounted. ``"leaf_mean"``: the mean over all trajectories through its node. ``"child_mean"``: the mean
            over its node's children of their values, down to the leaves. ``"child_softmax"``: the same, children
            weighted by ``exp(by / tau)``.
        gamma: Discount per turn of ``"return_to_go"``.
        by: Weights of children in ``"child_softmax"``: mean surprisal of their tokens, or the search's score.
        tau: Temperature of these weights.
        unfinished: Completion of the return of a trajectory whose episode did not end. ``"failure"``: the mean of the
            rewards that the failures of its group earned after its last turn, 0 where there are none; a branch that
            the search left stopped paying for its actions, and would otherwise be worth more than one that continued
            and failed. ``"return"``: 0. ``"score"``: the score of its last turn, for scores that rate what is to come.
            ``"value"``: the critic's value at its last token, which stands for the last turn's reward and all later
            ones, in place of that reward. ``"skip"``: the return is unknown and takes part in nothing.
    """

    rewards: Literal["return", "turn", "last"] = "return"
    kind: Literal["none", "return_to_go", "leaf_mean", "child_mean", "child_softmax"] = "none"
    gamma: float = 1.0
    by: Literal["surprisal", "score"] = "surprisal"
    tau: float = 1.0
    unfinished: Unfinished = "failure"


class Worth(NamedTuple):
    """A number per entry.

    Attributes:
        values: `[E]`.
        known: `[E]` bool; where False the value is 0 and takes part in nothing.
    """

    values: Tensor
    known: Tensor


def rewards_of(table: TurnTable, backup: Backup) -> Worth:
    """Return the number that each entry starts from, before anything is compared or backed up.

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
    is_known = torch.ones_like(table.finished) if backup.unfinished != "skip" else table.finished
    return Worth(torch.where(is_known, values, 0.0), is_known)


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
    """Return the mean rewards after turn k of the failures of a group that continued after it, `[groups, turns]`.

        rest[g, k] = mean over the finished, unsolved trajectories i of g with last turn K_i > k of sum_{j > k} r_ij

    0 where no failure continued.
    """
    last, turns = table.is_last, int(table.turn.max()) + 1
    rewards = torch.zeros((table.num_trajectories, turns), dtype=table.reward.dtype, device=table.reward.device)
    rewards[table.trajectory, table.turn] = table.reward
    # `[N, turns]`: sum_{j > k} r_ij, and whether trajectory i is a failure with a turn after k.
    to_come = rewards.sum(dim=1, keepdim=True) - rewards.cumsum(dim=1)
    continues = torch.arange(turns, device=rewards.device) < table.turn[last][:, None]
    continues &= (table.finished & ~table.solved)[last][:, None]
    sums = torch.zeros((int(table.group.max()) + 1, turns), dtype=rewards.dtype, device=rewards.device)
    counts = torch.zeros_like(sums).index_add(0, table.group[last], continues.to(sums.dtype))
    return sums.index_add(0, table.group[last], to_come * continues) / counts.clamp(min=1)


def back_up(table: TurnTable, start: Worth, backup: Backup) -> Worth:
    """Return the backed-up value of every entry.

    Raises:
        ValueError: Two different turns have the number of one node: two trees have the same number.
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
    tau`` over siblings times their number, so that ends and children have the same weight on average.
    """
    nodes = nodes_of(table)
    # Begin with the trajectories that end at each node; the loop then adds its children, deepest turns first.
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
        # A node without a known leaf below it has no value, and is left out of its parent's mean.
        is_known = weights[node] > 0
        node, parent = node[is_known], parent[is_known]
        if backup.kind == "child_softmax":
            share = _shares(parent, priority[level][is_known])
        else:
            share = torch.ones_like(sums[node])
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
        ValueError: A node is two different turns.
    """
    first = torch.zeros(table.num_nodes, dtype=torch.int64, device=table.node.device)
    entry = first_entries(table)
    first[table.node[entry]] = entry
    # The parent and the turn distinguish nodes of different trees whose tokens happen to be the same.
    twin = first[table.node]
    marks = (table.tokens, table.fingerprint, table.parent, table.turn)
    if not all(torch.equal(mark[twin], mark) for mark in marks):
        raise ValueError(
            "two different turns have the number of one node: wanted trees of a group to have different numbers "
            "(harvest(tree, number=...)), got two trees with the same"
        )
