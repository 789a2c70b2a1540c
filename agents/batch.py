"""Batch: trajectories as padded tensors, exactly the sampled ids, for estimators and losses."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tsr_gym.agents.trajectory import Group, Trajectory, Turn


@dataclass(frozen=True, slots=True)
class Batch:
    """B rows of T tokens; the rows of one trajectory stand together and in the order of its turns.

    Attributes:
        ids: `[B, T]` int64, padded on the right with 0.
        present: `[B, T]` bool, True where there is a token.
        sampled: `[B, T]` bool, True where the model said the token; only these are learned from.
        old_logprobs: `[B, T]`, log-probability when it was sampled; 0 elsewhere.
        rewards: `[B, T]`, each turn's reward on its last sampled token; 0 elsewhere.
        turn: `[B, T]` int64, number of the turn in its trajectory; -1 where nothing was sampled.
        trajectory: `[B]` int64, which trajectory a row belongs to, from 0 without gaps.
        group: `[B]` int64, which group, from 0 without gaps.
        values: `[B, T]`, the critic's value of the state in which a sampled token was said; None without a critic.
    """

    ids: Tensor
    present: Tensor
    sampled: Tensor
    old_logprobs: Tensor
    rewards: Tensor
    turn: Tensor
    trajectory: Tensor
    group: Tensor
    values: Tensor | None = None

    @property
    def num_trajectories(self) -> int:
        """How many trajectories the rows make up."""
        return int(self.trajectory[-1]) + 1

    def to(self, device: torch.device | str) -> "Batch":
        """Return the batch on a device."""
        return self._map(lambda part: part.to(device))

    def rows(self, index: Tensor) -> "Batch":
        """Return some rows, cut to their longest; trajectory and group numbers stay those of the whole."""
        longest = int(self.present[index].sum(dim=1).max())
        return self._map(lambda part: part[index, :longest] if part.dim() == 2 else part[index])

    def _map(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        parts = {name: attrgetter(name)(self) for name in Batch.__dataclass_fields__}
        changed: dict[str, Any] = {name: None if part is None else change(part) for name, part in parts.items()}
        return Batch(**changed)


class _Row(NamedTuple):
    """One training sequence in the making."""

    ids: list[int]
    turns: list[tuple[int, Turn, int]]  # number, turn, where its answer begins


def collate(groups: Sequence[Group]) -> Batch:
    """Return the batch of some groups.

    A turn whose prompt extends the sequence before it goes on in the same row, so an episode with full history is one
    row and a shared beginning is computed once; otherwise it begins a row of its own.

    Raises:
        ValueError: There is nothing that the model said.
    """
    rows: list[tuple[int, int, _Row]] = []
    number = 0
    for group_number, group in enumerate(groups):
        for trajectory in group.trajectories:
            found = _rows_of(trajectory)
            rows += [(number, group_number, row) for row in found]
            number += bool(found)
    if not rows:
        raise ValueError("wanted at least one trajectory with sampled tokens, got none")
    shape = (len(rows), max(len(row.ids) for *_, row in rows))
    ids, turn = torch.zeros(shape, dtype=torch.int64), torch.full(shape, -1, dtype=torch.int64)
    present = torch.zeros(shape, dtype=torch.bool)
    old_logprobs, rewards = torch.zeros(shape), torch.zeros(shape)
    for index, (_, _, row) in enumerate(rows):
        ids[index, : len(row.ids)] = torch.tensor(row.ids)
        present[index, : len(row.ids)] = True
        for turn_number, said, start in row.turns:
            end = start + len(said.token_ids)
            turn[index, start:end] = turn_number
            old_logprobs[index, start:end] = torch.tensor(said.logprobs)
            rewards[index, end - 1] = said.reward
    trajectories = torch.tensor([number for number, *_ in rows])
    group_numbers = torch.tensor([number for _, number, _ in rows])
    return Batch(ids, present, turn >= 0, old_logprobs, rewards, turn, trajectories, group_numbers)


def _rows_of(trajectory: Trajectory) -> list[_Row]:
    rows: list[_Row] = []
    for number, turn in enumerate(trajectory.turns):
        if not turn.token_ids:
            continue
        prompt = list(turn.prompt_ids)
        if rows and prompt[: len(rows[-1].ids)] == rows[-1].ids:
            row = rows[-1]
            row.ids.extend(prompt[len(row.ids) :])
        else:
            row = _Row(prompt, [])
            rows.append(row)
        row.turns.append((number, turn, len(row.ids)))
        row.ids.extend(turn.token_ids)
    return rows
