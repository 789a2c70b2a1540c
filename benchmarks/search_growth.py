"""What the driver costs per node, from 1 to 1,000 trees and from depth 1 to 50, where the environment costs nothing."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from benchmarks.measure import Work, alternate
from tsr_gym import Candidate, Limits, StateEnv, Step
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.strategies import beam
from tsr_gym.wrappers import TreeSearchWrapper

TREES, DEPTHS = (1, 10, 100, 1000), (1, 2, 5, 10, 20, 50)
WORDS = tuple(Candidate(number) for number in range(4))


class Nowhere(NamedTuple):
    """The only state."""


HERE = Nowhere()


class Nothing(StateEnv[Nowhere, int, int]):
    """An environment in which nothing happens and nothing ends."""

    draws_noise = False

    def __init__(self) -> None:
        super().__init__((), limits=Limits())

    def initial(self, rng: Any, options: dict[str, Any]) -> Nowhere:
        """Return the only state."""
        return HERE

    def transition(self, state: Nowhere, action: int, rng: Any) -> Step:
        """Return the only state again."""
        return Step(HERE, 0.0, False, {})

    def observe(self, state: Nowhere) -> int:
        """Return 0."""
        return 0

    def state_key(self, state: Nowhere) -> bytes:
        """Return nothing."""
        return b""


def words(requests: Any) -> list[list[Candidate]]:
    """Try the same actions everywhere."""
    return [list(WORDS[: wish.samples]) for _, wish in requests]


def growing(trees: int, depth: int, width: int, branching: int) -> Work:
    """Return a search of some trees to some depth."""
    envs = [TreeSearchWrapper(Nothing()) for _ in range(trees)]
    for seed, env in enumerate(envs):
        env.reset(seed=seed)
    strategy = partial(beam, width=width, branching=branching, depth=depth)

    def run() -> Any:
        return search(envs, words, strategy, seeds=range(trees))

    nodes = sum(len(tree.nodes) - 1 for tree in run())
    return Work(run, nodes, f"beam({width}, {branching}), {depth} turns, {trees} trees")


def costs(works: dict[int, Work], rounds: int) -> dict[str, Any]:
    """Return microseconds per node, the largest over the smallest, and a straight line through them."""
    rates = alternate({str(size): work for size, work in works.items()}, rounds)
    microseconds = {size: 1e6 / rate["median"] for size, rate in rates.items()}
    values = list(microseconds.values())
    return {
        "microseconds_per_node": microseconds,
        "nodes": {size: rate["units"] for size, rate in rates.items()},
        "largest_to_smallest": max(values) / min(values),
        "last_to_first": values[-1] / values[0],
    }


def line(sizes: Any, microseconds: dict[str, float]) -> dict[str, float]:
    """Return a least-squares line through the costs: what it begins with, and what it gains per unit."""
    slope, first = np.polyfit(np.asarray(sizes, float), list(microseconds.values()), 1)
    return {"at_0": float(first), "per_unit": float(slope)}


def growth_rows(quick: bool) -> dict[str, Any]:
    """Return costs by the number of trees and by depth; a quadratic driver would cost 50 times as much at depth 50."""
    rounds, trees, depths = (3, TREES[:3], DEPTHS[:5]) if quick else (7, TREES, DEPTHS)
    by_trees = costs({count: growing(count, 5, 2, 4) for count in trees}, rounds)
    by_trees["line_in_powers_of_ten"] = line(np.log10(trees), by_trees["microseconds_per_node"])
    rows = {"by number of trees, beam(2, 4), 5 turns": by_trees}
    # One node a turn is what no other cost hides.
    for width, branching in ((2, 4), (1, 1)):
        by_depth = costs({depth: growing(20, depth, width, branching) for depth in depths}, rounds)
        by_depth["line_in_turns"] = line(depths, by_depth["microseconds_per_node"])
        rows[f"by depth, beam({width}, {branching}), 20 trees"] = by_depth
    return rows
