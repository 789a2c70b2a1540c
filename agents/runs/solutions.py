"""Solutions: the successful episodes of a whole run, and the fit of the policy to them (expert iteration).

Learning from each update alone forgets what was solved before. A store keeps it: every few updates the policy is fitted
to all solutions so far, searched and played. This is the loop of expert iteration (arXiv 1705.08439) and of the
Bootstrap method for Levin tree search (arXiv 2103.11505).
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tsr_gym.agents.episodes.trajectory import Group, Trajectory
from tsr_gym.agents.lessons.settings import StoreConfig
from tsr_gym.agents.teaching.imitation import Row

# Most solutions in a store; the instances solved first are dropped first.
MOST = 10_000
FILE = "solutions.safetensors"


class Solution(NamedTuple):
    """A successful episode.

    Attributes:
        rows: Its tokens, as rows to imitate: one row, or a row per turn where prompts do not extend one another.
        turns: Number of turns.
        logprob: Log-probability of its answers when they were sampled.
        searched: Whether a search selected it.
    """

    rows: tuple[Row, ...]
    turns: int
    logprob: float
    searched: bool

    @property
    def rank(self) -> tuple[int, float]:
        """Smaller is better: fewer turns, then likelier answers."""
        return self.turns, -self.logprob


class SolutionStore:
    """The best solutions of each instance; part of a checkpoint.

    Instances with equal first states share their solutions, where the environment has keys of states.

    Args:
        config: How many solutions to keep.
    """

    def __init__(self, config: StoreConfig) -> None:
        self.config = config
        self.instances: dict[bytes, list[Solution]] = {}

    def __len__(self) -> int:
        return sum(map(len, self.instances.values()))

    def keep(self, groups: Iterable[Group]) -> None:
        """Keep the successful trajectories of some groups, the best `StoreConfig.solutions` of each instance."""
        if not self.config.solutions:
            return
        for group in groups:
            for trajectory in group.trajectories:
                if trajectory.success and trajectory.finished and trajectory.num_tokens:
                    self._add(_instance(group, trajectory), _solution(trajectory))
        while len(self) > MOST:
            del self.instances[next(iter(self.instances))]

    def rows(self) -> list[Row]:
        """Return the rows of all solutions."""
        return [row for kept in self.instances.values() for solution in kept for row in solution.rows]

    def metrics(self, fit_steps: int = 0) -> dict[str, Any]:
        """Return the numbers of solved instances and solutions, the share of searched ones, and the steps of a fit."""
        if not self.config.solutions:
            return {}
        searched = [solution.searched for kept in self.instances.values() for solution in kept]
        share = sum(searched) / len(searched) if searched else None
        counts = {"solved_instances": len(self.instances), "solutions": len(searched)}
        return counts | {"solutions_searched": share, "fit_steps": fit_steps}

    def save(self, folder: Path) -> None:
        """Write the solutions into a checkpoint's folder.

        Raises:
            OSError: The disk is full or not writable.
        """
        if not self.config.solutions:
            return
        kept = [solution for solutions in self.instances.values() for solution in solutions]
        rows = [row for solution in kept for row in solution.rows]
        tensors = {
            "keys": torch.frombuffer(bytearray(b"".join(self.instances)) or bytearray(1), dtype=torch.uint8),
            "key_bytes": torch.tensor([len(key) for key in self.instances], dtype=torch.int64),
            "instances": torch.tensor([len(solutions) for solutions in self.instances.values()], dtype=torch.int64),
            "rows": torch.tensor([len(solution.rows) for solution in kept], dtype=torch.int64),
            "tokens": torch.tensor([len(row.ids) for row in rows], dtype=torch.int64),
            "ids": _joined([row.ids for row in rows], torch.int32),
            "learned": _joined([row.learned for row in rows], torch.bool),
            "turns": torch.tensor([solution.turns for solution in kept], dtype=torch.int64),
            "logprobs": torch.tensor([solution.logprob for solution in kept], dtype=torch.float64),
            "searched": torch.tensor([solution.searched for solution in kept], dtype=torch.bool),
        }
        save_file(tensors, folder / FILE)

    def load(self, folder: Path) -> None:
        """Read what `save` wrote.

        Raises:
            SafetensorError: The file is damaged.
            LookupError: It is not of a store.
        """
        if not self.config.solutions:
            return
        file = load_file(folder / FILE)
        keys = [bytes(part.tolist()) for part in _parts(file["keys"], file["key_bytes"])]
        ids, learned = (_parts(file[name], file["tokens"]) for name in ("ids", "learned"))
        rows = [Row(mine.numpy().astype(np.int64), mask.numpy()) for mine, mask in zip(ids, learned, strict=True)]
        of_solutions = [tuple(rows[start:end]) for start, end in _spans(file["rows"])]
        numbers = zip(*(file[name].tolist() for name in ("turns", "logprobs", "searched")), strict=True)
        kept = [Solution(part, *others) for part, others in zip(of_solutions, numbers, strict=True)]
        spans = _spans(file["instances"])
        self.instances = {key: kept[start:end] for key, (start, end) in zip(keys, spans, strict=True)}

    def _add(self, instance: bytes, solution: Solution) -> None:
        kept = self.instances.setdefault(instance, [])
        if not any(_is_same(solution, other) for other in kept):
            kept.append(solution)
            kept.sort(key=lambda other: other.rank)
            del kept[self.config.solutions :]


def _instance(group: Group, trajectory: Trajectory) -> bytes:
    state = trajectory.turns[0].state
    return str(group.task).encode() if state is None else state


def _solution(trajectory: Trajectory) -> Solution:
    logprob = sum(sum(turn.logprobs) for turn in trajectory.turns)
    rows: list[tuple[list[int], list[bool]]] = []
    for turn in trajectory.turns:
        if not turn.token_ids:
            continue
        prompt = list(turn.prompt_ids)
        if not rows or prompt[: len(rows[-1][0])] != rows[-1][0]:
            rows.append(([], []))
        ids, learned = rows[-1]
        new = [*prompt[len(ids) :], *turn.token_ids]
        learned += [False] * (len(prompt) - len(ids)) + [True] * len(turn.token_ids)
        ids += new
    whole = tuple(Row(np.array(ids), np.array(learned)) for ids, learned in rows)
    return Solution(whole, len(trajectory.turns), logprob, trajectory.selected_by != "naive")


def _is_same(solution: Solution, other: Solution) -> bool:
    return len(solution.rows) == len(other.rows) and all(
        np.array_equal(mine.ids, theirs.ids) for mine, theirs in zip(solution.rows, other.rows, strict=True)
    )


def _joined(arrays: Sequence[np.ndarray], dtype: torch.dtype) -> Tensor:
    return torch.from_numpy(np.concatenate(arrays)).to(dtype) if arrays else torch.zeros(0, dtype=dtype)


def _spans(lengths: Tensor) -> list[tuple[int, int]]:
    return list(pairwise(accumulate(lengths.tolist(), initial=0)))


def _parts(tensor: Tensor, lengths: Tensor) -> list[Tensor]:
    return [tensor[start:end] for start, end in _spans(lengths)]
