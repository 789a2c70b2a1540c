"""Nodes per second of the search in arrays, against resetting and replaying in arrays, on the same actions."""

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

from benchmarks.measure import Work, alternate, insist
from tsr_gym.agents.arrays import ArrayRequest, ArrayTree, array_beam

BRANCHING = 4


def randomly(batch: Any, request: ArrayRequest) -> Any:
    """Choose uniformly by the seeds."""
    return ((request.seeds >> np.uint64(33)) * np.uint64(4) >> np.uint64(31)).astype(np.int64)


class Replay:
    """A searcher without snapshots, in arrays: for every turn, all rows go back to the roots and play their way again.

    It is told what to try by a tree that was grown before, so that it has nothing to choose.

    Args:
        envs: The tasks.
        tree: What was grown on them.
        places: Candidates of a task in one turn.
    """

    def __init__(self, envs: Any, tree: ArrayTree, places: int) -> None:
        self.tree, self.places = tree, places
        self.depth = (tree.parents.shape[1] - 1) // places
        self.batch = envs.take(np.repeat(np.arange(envs.num_envs), places))
        self.start = self.batch.snapshot()

    def run(self, compare: bool = False) -> None:
        """Play all turns; with `compare`, stop where something else comes than the tree has."""
        tasks = np.arange(len(self.tree.parents))[:, None]
        ways = np.zeros((*self.tree.parents.shape, 0), np.int64)[:, :1]
        for turn in range(self.depth):
            here = slice(1 + turn * self.places, 1 + (turn + 1) * self.places)
            parents, actions = self.tree.parents[:, here], self.tree.actions[:, here]
            # Whoever grows has grown in the turn before, but for the root.
            before = np.maximum(parents - (1 + (turn - 1) * self.places), 0) if turn else np.zeros_like(parents)
            ways = np.concatenate([ways[tasks, before], np.maximum(actions, 0)[:, :, None]], axis=2)
            self.batch.restore(self.start)
            for step in range(turn + 1):
                came = self.batch.advance(ways[:, :, step].ravel())
            if compare:
                self._check(here, came)

    def _check(self, here: slice, came: tuple[Any, Any, Any]) -> None:
        grown = self.tree.actions[:, here].ravel() >= 0
        for column, part in zip((self.tree.rewards, self.tree.terminated, self.tree.truncated), came, strict=True):
            insist(np.array_equal(column[:, here].ravel()[grown], part[grown]), "replaying in arrays led elsewhere")


def measure(name: str, settings: dict[str, Any], *, tasks: int, width: int, depth: int, rounds: int) -> dict[str, Any]:
    """Return nodes per second of both, on one game."""
    envs: Any = gym.make_vec(name, num_envs=tasks, **settings)
    envs.reset(seed=0)
    numbers: dict[str, Any] = {"width": width, "branching": BRANCHING, "depth": depth, "seeds": np.arange(tasks)}
    ours = {noise: partial(array_beam, envs, randomly, noise=noise, **numbers) for noise in ("fresh", "same")}
    trees = {noise: run().tree for noise, run in ours.items()}
    replay = Replay(envs, trees["same"], width * BRANCHING)
    replay.run(compare=True)
    works = {
        f"ours, noise={noise!r}": Work(run, trees[noise].num_expanded, "array_beam, all of it")
        for noise, run in ours.items()
    }
    how = "restore to the roots and play the way of every candidate; nothing is chosen, kept or recorded"
    works["reset and replay"] = Work(replay.run, trees["same"].num_expanded, how)
    rates = alternate(works, rounds)
    filled = trees["fresh"].num_expanded / (tasks * (BRANCHING + (depth - 1) * width * BRANCHING))
    return {
        "settings": settings,
        **{key: value for key, value in numbers.items() if key != "seeds"},
        "tasks": tasks,
        "rows_in_use": filled,
        "nodes_per_second": rates,
        "ours_to_replay": rates["ours, noise='same'"]["median"] / rates["reset and replay"]["median"],
    }


def array_rows(quick: bool) -> dict[str, Any]:
    """Return all rows."""
    tasks, rounds, levels = (128, 3, 8) if quick else (1024, 11, 64)
    sizes: dict[str, Any] = {"tasks": tasks, "width": 8, "rounds": rounds}
    small, lakes = {"num_levels": levels}, {"map_name": "8x8", "max_actions": 100}
    large = {"dim": (10, 10), "num_boxes": 4, "num_levels": levels, "max_actions": 120}
    return {
        "Sokoban 6x6 with 1 box, 20 turns": measure("tsr/Sokoban-v0", small, depth=20, **sizes),
        "Sokoban 10x10 with 4 boxes, 20 turns": measure("tsr/Sokoban-v0", large, depth=20, **sizes),
        "Sokoban 10x10 with 4 boxes, 80 turns": measure("tsr/Sokoban-v0", large, depth=80, **sizes),
        "FrozenLake 8x8, 20 turns": measure("tsr/FrozenLake-v0", lakes, depth=20, **sizes),
        "FrozenLake, random maps, 20 turns": measure("tsr/FrozenLake-v0", small, depth=20, **sizes),
    }
