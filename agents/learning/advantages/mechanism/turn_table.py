"""TurnTable: a batch as one entry per turn of a trajectory, and sums over entries and tokens.

Trajectory a samples the tokens (5 6) and, after what the environment answers, (7); trajectory b samples (5 6) in the
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

import torch
from torch import Tensor

from tsr_gym.agents.learning.batch import Batch


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
        state: `[E]`, state in which it was taken, -1 unknown.
        move: `[E]`, move of that state, -1 unknown.
        reward: `[E]`, of the turn.
        score: `[E]`, of the turn, by the search's guide.
        tokens: `[E]`, how many tokens it has.
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
        """How many trajectories there are."""
        return int(self.trajectory[-1]) + 1

    @property
    def num_nodes(self) -> int:
        """How many numbers of nodes there are, roots included."""
        return int(torch.maximum(self.node.max(), self.parent.max())) + 1

    @property
    def is_first(self) -> Tensor:
        """`[E]` bool, True for the first turn of a trajectory."""
        return self.step == 0

    @property
    def starts(self) -> Tensor:
        """`[E]`, which of the S sampled tokens is the turn's first."""
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
        """`[E]`, how many trajectories have the entry's turn in common."""
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
    row, column = batch.sampled.nonzero(as_tuple=True)
    trajectory, turn = batch.trajectory[row], batch.turn[row, column]
    many_turns, many_columns = int(turn.max()) + 1, batch.ids.shape[1]
    # Rows of a trajectory stand apart where the batch was shuffled; all that follows relies on this order.
    order = ((trajectory * many_turns + turn) * many_columns + column).argsort()
    row, column, trajectory, turn = row[order], column[order], trajectory[order], turn[order]
    _, entry, tokens = torch.unique_consecutive(trajectory * many_turns + turn, return_inverse=True, return_counts=True)
    ends = tokens.cumsum(0) - 1
    row_of, column_of, trajectory = row[ends], column[ends], trajectory[ends]
    size = len(tokens)
    # Trajectories are numbered densely here, because the rows may be some of a batch.
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
    """Return ``sum_p id_p (2 p + 1)`` over the places p of each entry's tokens, `[E]` int64."""
    place = torch.arange(len(ids), device=ids.device) - (tokens.cumsum(0) - tokens)[entry]
    return sum_by(ids * (2 * place + 1), entry, len(tokens))


def sum_by(values: Tensor, index: Tensor, size: int) -> Tensor:
    """Return the sums of the values that have the same index, `[size]`."""
    return torch.zeros(size, dtype=values.dtype, device=values.device).index_add(0, index, values)


def discounted_sum(values: Tensor, sequence: Tensor, discount: float) -> Tensor:
    """Return ``sum_l discount^l values[t + l]`` over the later items of t's sequence, `[S]`.

    Every pass doubles how far ahead each item has looked, so that there are ``log2(longest)`` of them.

    Args:
        values: `[S]`.
        sequence: `[S]`, which sequence an item belongs to; items of one sequence stand together.
        discount: Per item.
    """
    total, reach = values.clone(), 1
    while reach < len(values) and discount**reach != 0:
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
