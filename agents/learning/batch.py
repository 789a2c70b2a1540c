"""Batch: trajectories as padded tensors, with exactly the ids that were sampled, for estimators and losses."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from tsr_gym.agents.episodes.trajectory import Edge, Group, Trajectory, Turn, edges_along

LayoutChoice = Literal["auto", "padded", "packed", "shared"]


class Edges(NamedTuple):
    """M tries of moves for the tasks of a batch; see `Edge`.

    They are evidence of where moves lead, and are not learned from.

    Attributes:
        move: `[M]` int64, number of the move, as in `Batch.move`.
        state: `[M]` int64, number of its state, as in `Batch.state`.
        after: `[M]` int64, number of the state that it led to; -1 if unknown.
        actions: `[M]` int64, number of its actions.
        solved: `[M]` bool, True where it solved the task.
        ended: `[M]` bool, True where the episode ended.
    """

    move: Tensor
    state: Tensor
    after: Tensor
    actions: Tensor
    solved: Tensor
    ended: Tensor


@dataclass(frozen=True, slots=True)
class Batch:
    """B rows of T tokens; the rows of one trajectory are neighbours, in the order of its turns.

    Nodes, tree roots and states are numbers, unique over the batch, so that estimators can compare turns: the same node
    in two rows is one sampled turn that two trajectories share.

    Attributes:
        ids: `[B, T]` int64, padded on the right with 0.
        present: `[B, T]` bool, True where there is a token.
        sampled: `[B, T]` bool, True where the model sampled the token; only these are learned from.
        old_logprobs: `[B, T]`, log-probability of each token when it was sampled; 0 elsewhere.
        rewards: `[B, T]` float64, each turn's reward on its last sampled token; 0 elsewhere. The reward of a turn
            without tokens is added to that of the turn before it, or after it if it is the first.
        turn: `[B, T]` int64, number of the turn in its trajectory; -1 where nothing was sampled.
        trajectory: `[B]` int64, number of the row's trajectory, from 0 without gaps.
        group: `[B]` int64, number of its group, from 0 without gaps.
        tree: `[B]` int64, number of its tree, from 0 without gaps.
        node: `[B, T]` int64, node that the sampled turn led to; -1 elsewhere.
        parent: `[B, T]` int64, node in which it was taken, a tree's root for first turns; -1 elsewhere.
        state: `[B, T]` int64, state in which it was taken, equal only within a group; -1 if unknown or not sampled.
        scores: `[B, T]` float64, the search's score of each turn on its last sampled token; 0 elsewhere.
        searched: `[B]` bool, True where the trajectory was selected by a search, False for plain play.
        finished: `[B]` bool, True where the trajectory's episode ended.
        solved: `[B]` bool, True where the trajectory solved its task.
        counts: `[B]`, weight of the trajectory in a loss, relative to others.
        expansions: `[B]`, of the search that selected the trajectory; 0 for plain play.
        values: `[B, T]`, the critic's value of the state in which each token was sampled; None without a critic.
        layout: How a model reads the rows, see `tsr_gym.agents.learning.layouts`: with padding, one after the other
            without padding, or as a trie in which equal beginnings are computed once; ``"auto"`` for the cheapest. Only
            memory and speed depend on it.
        move: `[B, T]` int64, number of the turn's move, equal where state and action are; -1 if unknown or not sampled.
        edges: All moves that were tried for its tasks, on the CPU.
    """

    ids: Tensor
    present: Tensor
    sampled: Tensor
    old_logprobs: Tensor
    rewards: Tensor
    turn: Tensor
    trajectory: Tensor
    group: Tensor
    tree: Tensor
    node: Tensor
    parent: Tensor
    state: Tensor
    scores: Tensor
    searched: Tensor
    finished: Tensor
    solved: Tensor
    counts: Tensor
    expansions: Tensor
    values: Tensor | None = None
    layout: LayoutChoice = "padded"
    move: Tensor | None = None
    edges: Edges | None = None

    @property
    def num_trajectories(self) -> int:
        """Number of trajectories."""
        return int(self.trajectory.max()) + 1

    def to(self, device: torch.device | str) -> "Batch":
        """Return the batch on a device."""
        return self._map(lambda part: part.to(device))

    def rows(self, index: Tensor) -> "Batch":
        """Return some rows, cut to their longest; trajectories, groups and nodes keep their numbers."""
        longest = int(self.present[index].sum(dim=1).max())
        return self._map(lambda part: part[index, :longest] if part.dim() == 2 else part[index])

    def _map(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        parts = {name: attrgetter(name)(self) for name in Batch.__dataclass_fields__}
        changed: dict[str, Any] = {name: change(part) for name, part in parts.items() if isinstance(part, Tensor)}
        return replace(self, **changed)


def collate(
    groups: Sequence[Group], *, layout: LayoutChoice = "padded", edges: Mapping[int, Sequence[Edge]] | None = None
) -> Batch:
    """Return the batch of some groups.

    A turn whose prompt extends the sequence before it continues the same row, so that an episode with full history is
    one row; otherwise it begins a new row.

    Args:
        groups: Trajectories; one without sampled tokens has no row.
        layout: How a model reads the rows, see `Batch.layout`.
        edges: The moves that were tried, by task; a task that is missing gets those of its trajectories.

    Raises:
        ValueError: There are no sampled tokens, or the layout is unknown.
    """
    if layout not in get_args(LayoutChoice):
        raise ValueError(f"wanted layout of {get_args(LayoutChoice)}, got {layout!r}")
    numbers = _Numbers()
    rows: list[_Row] = []
    tried: list[tuple[int, ...]] = []
    number, group_number = 0, 0
    for group in groups:
        before = number
        for trajectory in group.trajectories:
            if turns := numbers.turns_of(group_number, trajectory, number):
                rows += _rows_of(
                    turns, _Source(number, group_number, numbers.tree(group_number, trajectory), trajectory)
                )
                number += 1
        # Groups are numbered without gaps: one in which nothing was sampled has no number.
        if number > before:
            of_task = (edges or {}).get(group.task)
            tried += numbers.edges(group_number, edges_along(group.trajectories) if of_task is None else of_task)
            group_number += 1
    if not rows:
        raise ValueError("wanted at least one trajectory with sampled tokens, got none")
    return replace(_padded(rows), layout=layout, edges=_edges(tried))


def _edges(tried: Sequence[tuple[int, ...]]) -> Edges:
    move, state, after, actions, solved, ended = torch.tensor(tried, dtype=torch.int64).reshape(-1, 6).unbind(dim=1)
    return Edges(move, state, after, actions, solved > 0, ended > 0)


class _Sampled(NamedTuple):
    """A turn with sampled tokens, and its numbers."""

    turn: Turn
    number: int
    reward: float
    node: int
    parent: int
    state: int
    move: int


class _Source(NamedTuple):
    """The properties that all rows of a trajectory share."""

    number: int
    group: int
    tree: int
    trajectory: Trajectory


class _Row(NamedTuple):
    """A training sequence under construction."""

    source: _Source
    ids: list[int]
    # Each turn with the column at which its tokens begin.
    turns: list[tuple[_Sampled, int]]


@dataclass(slots=True)
class _Numbers:
    """The numbers of trees, nodes, states and moves of a batch, assigned in the order of first occurrence."""

    trees: dict[tuple[int, int], int] = field(default_factory=dict)
    nodes: dict[tuple[Any, ...], int] = field(default_factory=dict)
    states: dict[tuple[int, bytes], int] = field(default_factory=dict)
    moves: dict[tuple[int, Hashable], int] = field(default_factory=dict)

    def tree(self, group: int, trajectory: Trajectory) -> int:
        return self.trees.setdefault((group, trajectory.tree), len(self.trees))

    def turns_of(self, group: int, trajectory: Trajectory, number: int) -> list[_Sampled]:
        """Return the turns with sampled tokens; a turn without tokens is skipped, and its children get its parent."""
        answered = [(k, turn) for k, turn in enumerate(trajectory.turns) if turn.token_ids]
        if not answered:
            return []
        tree = self.tree(group, trajectory)
        rewards = _carried_rewards(trajectory)
        parent = self._node(tree, "root")
        sampled = []
        for k, turn in answered:
            node = self._node(tree, turn.node) if turn.node >= 0 else self._node(tree, "of", number, k)
            state = self._state(group, turn.state)
            sampled.append(_Sampled(turn, k, rewards[k], node, parent, state, self._move(state, turn.action)))
            parent = node
        return sampled

    def edges(self, group: int, tried: Iterable[Edge]) -> list[tuple[int, ...]]:
        """Return the numbers of some moves of a group, in the order of `Edges`."""
        numbered: list[tuple[int, ...]] = []
        for edge in tried:
            state, after = self._state(group, edge.state), self._state(group, edge.after)
            if (move := self._move(state, edge.action)) >= 0:
                numbered.append((move, state, after, edge.actions, edge.solved, edge.ended))
        return numbered

    def _state(self, group: int, key: bytes | None) -> int:
        return -1 if key is None else self.states.setdefault((group, key), len(self.states))

    def _move(self, state: int, action: Hashable) -> int:
        unknown = state < 0 or action is None
        return -1 if unknown else self.moves.setdefault((state, action), len(self.moves))

    def _node(self, *key: Any) -> int:
        return self.nodes.setdefault(key, len(self.nodes))


def _carried_rewards(trajectory: Trajectory) -> dict[int, float]:
    """Return the reward of each turn with tokens, those of turns without added, so that returns are kept."""
    answered = [k for k, turn in enumerate(trajectory.turns) if turn.token_ids]
    rewards = dict.fromkeys(answered, 0.0)
    last = answered[0]
    for k, turn in enumerate(trajectory.turns):
        last = k if k in rewards else last
        rewards[last] += turn.reward
    return rewards


def _rows_of(turns: Sequence[_Sampled], source: _Source) -> list[_Row]:
    rows: list[_Row] = []
    for sampled in turns:
        prompt = list(sampled.turn.prompt_ids)
        # Ids are compared and not texts: the same text can be tokenised differently, and would be another sequence.
        if rows and prompt[: len(rows[-1].ids)] == rows[-1].ids:
            row = rows[-1]
            row.ids.extend(prompt[len(row.ids) :])
        else:
            row = _Row(source, prompt, [])
            rows.append(row)
        row.turns.append((sampled, len(row.ids)))
        row.ids.extend(sampled.turn.token_ids)
    return rows


def _padded(rows: Sequence[_Row]) -> Batch:
    shape = (len(rows), max(len(row.ids) for row in rows))
    # Arrays, because a slice of a tensor takes ten times as long to fill.
    ids, present, old_logprobs = np.zeros(shape, np.int64), np.zeros(shape, np.bool_), np.zeros(shape, np.float32)
    turn, node, parent, state, move = (np.full(shape, -1, np.int64) for _ in range(5))
    # Double precision: estimators treat returns as equal up to 1e-9, and sums of the same float32 rewards in another
    # order differ by more.
    rewards, scores = np.zeros(shape), np.zeros(shape)
    for index, row in enumerate(rows):
        ids[index, : len(row.ids)] = row.ids
        present[index, : len(row.ids)] = True
        for sampled, start in row.turns:
            end = start + len(sampled.turn.token_ids)
            turn[index, start:end] = sampled.number
            node[index, start:end] = sampled.node
            parent[index, start:end] = sampled.parent
            state[index, start:end] = sampled.state
            move[index, start:end] = sampled.move
            old_logprobs[index, start:end] = sampled.turn.logprobs
            rewards[index, end - 1] = sampled.reward
            scores[index, end - 1] = sampled.turn.score
    tensor = torch.from_numpy
    return Batch(
        ids=tensor(ids),
        present=tensor(present),
        sampled=tensor(turn >= 0),
        old_logprobs=tensor(old_logprobs),
        rewards=tensor(rewards),
        turn=tensor(turn),
        trajectory=torch.tensor([row.source.number for row in rows]),
        group=torch.tensor([row.source.group for row in rows]),
        tree=torch.tensor([row.source.tree for row in rows]),
        node=tensor(node),
        parent=tensor(parent),
        state=tensor(state),
        scores=tensor(scores),
        searched=torch.tensor([row.source.trajectory.selected_by != "naive" for row in rows]),
        finished=torch.tensor([row.source.trajectory.finished for row in rows]),
        solved=torch.tensor([row.source.trajectory.success for row in rows]),
        counts=torch.tensor([row.source.trajectory.counts for row in rows]),
        expansions=torch.tensor([float(row.source.trajectory.expansions) for row in rows]),
        move=tensor(move),
    )
