"""Solutions: from every state of the solved instances, the first move of the shortest way to success that is known.

Learning from each update alone forgets what was solved before. A store keeps it, and the policy is fitted to it again
and again. This is the loop of expert iteration (arXiv 1705.08439) and of the Bootstrap method for Levin tree search
(arXiv 2103.11505). A search visits many states besides those of the solution, and knows a way from most of them: each
is an example, also of how to come back from a mistake.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import accumulate, count, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tsr_gym.agents.episodes.collect import Collected
from tsr_gym.agents.lessons.settings import StoreConfig
from tsr_gym.agents.teaching.imitation import Row
from tsr_gym.tree import Tree

# Most moves in a store; the instances solved first are dropped first.
MOST = 50_000
FILE = "solutions.safetensors"
_SUCCESS = b""


class Move(NamedTuple):
    """The first move of the shortest known way from a state to success.

    Attributes:
        turns: Length of the way.
        logprob: Log-probability of the move when it was sampled.
        row: Its prompt and answer, to imitate.
    """

    turns: int
    logprob: float
    row: Row

    @property
    def rank(self) -> tuple[int, float]:
        """Smaller is better: fewer turns, then likelier answers."""
        return self.turns, -self.logprob


class SolutionStore:
    """The moves of all solved instances; part of a checkpoint.

    Instances with equal first states share their moves, where the environment has keys of states. Without keys, only
    the states of an episode that succeeded have a way. Where moves have several outcomes, luck counts as a way.

    Args:
        config: How the policy is fitted.
    """

    def __init__(self, config: StoreConfig) -> None:
        self.config = config
        self.instances: dict[bytes, dict[bytes, Move]] = {}
        # Number of moves at the last fit.
        self.fitted = 0

    def __len__(self) -> int:
        return sum(map(len, self.instances.values()))

    def keep(self, collected: Collected) -> None:
        """Keep the moves that the trees of solved groups know."""
        if not self.config.fit_passes:
            return
        for group, trees in zip(collected.groups, collected.trees, strict=True):
            if group.has_success:
                first = trees[0].nodes[trees[0].root].state_key
                moves = self.instances.setdefault(first or f"{group.task}".encode(), {})
                _add_ways(moves, _edges(trees, group.task))
        # Dictionaries keep the order in which instances were first solved.
        while len(self) > MOST:
            del self.instances[next(iter(self.instances))]

    def steps_due(self, *, last: bool) -> int:
        """Return the optimizer steps of the fit that is due after an update, 0 for none; `last` is the run's end."""
        size, config = len(self), self.config
        if not size or (size < (1 + config.fit_growth) * self.fitted and not last):
            return 0
        return max(1, round(config.fit_passes * size / config.fit_batch))

    def rows(self) -> list[Row]:
        """Return the rows of all moves."""
        return [move.row for moves in self.instances.values() for move in moves.values()]

    def metrics(self, fit_steps: int = 0) -> dict[str, Any]:
        """Return the numbers of solved instances and of states with a way, and the steps of a fit."""
        if not self.config.fit_passes:
            return {}
        return {"solved_instances": len(self.instances), "solved_states": len(self), "fit_steps": fit_steps}

    def save(self, folder: Path) -> None:
        """Write the moves into a checkpoint's folder.

        Raises:
            OSError: The disk is full or not writable.
        """
        if not self.config.fit_passes:
            return
        states = [state for moves in self.instances.values() for state in moves]
        kept = [move for moves in self.instances.values() for move in moves.values()]
        tensors = {
            "keys": _bytes(self.instances),
            "key_bytes": _numbers(map(len, self.instances)),
            "moves": _numbers(map(len, self.instances.values())),
            "states": _bytes(states),
            "state_bytes": _numbers(map(len, states)),
            "tokens": _numbers(len(move.row.ids) for move in kept),
            "ids": _joined([move.row.ids for move in kept], torch.int32),
            "learned": _joined([move.row.learned for move in kept], torch.bool),
            "turns": _numbers(move.turns for move in kept),
            "logprobs": torch.tensor([move.logprob for move in kept], dtype=torch.float64),
            "fitted": _numbers([self.fitted]),
        }
        save_file(tensors, folder / FILE)

    def load(self, folder: Path) -> None:
        """Read what `save` wrote.

        Raises:
            SafetensorError: The file is damaged.
            LookupError: It is not of a store.
        """
        if not self.config.fit_passes:
            return
        file = load_file(folder / FILE)
        keys, states = (
            [bytes(part.tolist()) for part in _parts(file[name], file[lengths])]
            for name, lengths in (("keys", "key_bytes"), ("states", "state_bytes"))
        )
        ids, learned = (_parts(file[name], file["tokens"]) for name in ("ids", "learned"))
        rows = [Row(mine.numpy().astype(np.int64), mask.numpy()) for mine, mask in zip(ids, learned, strict=True)]
        moves = [*map(Move, file["turns"].tolist(), file["logprobs"].tolist(), rows)]
        spans = _spans(file["moves"])
        self.instances = {
            key: dict(zip(states[start:end], moves[start:end], strict=True))
            for key, (start, end) in zip(keys, spans, strict=True)
        }
        (self.fitted,) = file["fitted"].tolist()


class _Edge(NamedTuple):
    before: bytes
    after: bytes
    logprob: float
    prompt_ids: Sequence[int]
    token_ids: Sequence[int]


def _edges(trees: Sequence[Tree], task: int) -> Iterator[_Edge]:
    """Yield the sampled moves of some trees, but for those that end an episode without success."""
    for number, tree in enumerate(trees):

        def key(index: int, tree: Tree = tree, number: int = number) -> bytes:
            # A node without a key is a state that no other node shares.
            return tree.nodes[index].state_key or f"{task}.{number}.{index}".encode()

        for index in tree.below():
            node = tree.nodes[index]
            move = node.candidate
            failed = node.done and not node.solved
            if node.parent is None or index == tree.root or failed or not move.token_ids:
                continue
            if node.info.get("action_is_valid", True):
                after = _SUCCESS if node.solved else key(index)
                yield _Edge(key(node.parent), after, sum(move.logprobs), move.prompt_ids, move.token_ids)


def _add_ways(moves: dict[bytes, Move], edges: Iterable[_Edge]) -> None:
    """Add the shortest ways over some edges to those that are known, and replace longer and less likely ones."""
    into: dict[bytes, list[_Edge]] = defaultdict(list)
    for edge in edges:
        into[edge.after].append(edge)
    # Dijkstra's algorithm, backwards from success and from all states whose way is known. The number breaks ties.
    number = count()
    queue = [(0, next(number), _SUCCESS), *((move.turns, next(number), state) for state, move in moves.items())]
    heapify(queue)
    settled = set()
    while queue:
        turns, _, state = heappop(queue)
        if state in settled:
            continue
        settled.add(state)
        for edge in into[state]:
            old = moves.get(edge.before)
            if old is None or (turns + 1, -edge.logprob) < old.rank:
                moves[edge.before] = Move(turns + 1, edge.logprob, _row(edge))
                heappush(queue, (turns + 1, next(number), edge.before))


def _row(edge: _Edge) -> Row:
    learned = np.arange(len(edge.prompt_ids) + len(edge.token_ids)) >= len(edge.prompt_ids)
    return Row(np.array([*edge.prompt_ids, *edge.token_ids]), learned)


def _numbers(values: Iterable[int]) -> Tensor:
    return torch.tensor([*values], dtype=torch.int64)


def _bytes(keys: Iterable[bytes]) -> Tensor:
    # A buffer of no bytes cannot be read, and the lengths leave this one out.
    return torch.frombuffer(bytearray(b"".join(keys)) or bytearray(1), dtype=torch.uint8)


def _joined(arrays: Sequence[np.ndarray], dtype: torch.dtype) -> Tensor:
    return torch.from_numpy(np.concatenate(arrays)).to(dtype) if arrays else torch.zeros(0, dtype=dtype)


def _spans(lengths: Tensor) -> list[tuple[int, int]]:
    return list(pairwise(accumulate(lengths.tolist(), initial=0)))


def _parts(tensor: Tensor, lengths: Tensor) -> list[Tensor]:
    return [tensor[start:end] for start, end in _spans(lengths)]
