"""Speed of search: one process, one thread, both sides in turns, outputs compared before anything is timed.

Text environments in the full stack and CartPole against resetting and replaying; batches of grid worlds in arrays
against the same in arrays; what the driver costs per node as trees become many and deep; PUCT next to mctx, which
`pip install 'tsr-gym[envs]' mctx` installs. Peers that are not installed are reported and left out.
A section that is measured alone replaces that section of the result, with its date.
Run: python -m benchmarks.search_speed [--quick] [text] [arrays] [growth] [puct]
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from benchmarks.measure import RESULTS, Work, alternate, insist, laid_out, run_timed, stamped, write_result
from benchmarks.search_puct import puct_rows
from tsr_gym import Limits, StateEnv, Step
from tsr_gym.agents.arrays import ArrayRequest, ArrayTree, array_beam
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.strategies import beam
from tsr_gym.errors import TsrGymError
from tsr_gym.tree import Candidate, Expand, Policy, Tree
from tsr_gym.wrappers import AnswerFormat, FrozenLakeScore, SokobanScore, TreeSearchWrapper

FORM = "<think></think><answer>{}</answer>"
# Prime, so that siblings seldom have the same answer.
NUM_SAYINGS = 997


def scripted(actions: Sequence[str], most: int) -> Policy:
    """Return a policy that answers with up to `most` actions, from a table that it looks up by node and candidate."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, most + 1, size=NUM_SAYINGS)
    texts = [" || ".join(actions[pick] for pick in rng.integers(len(actions), size=size)) for size in sizes]
    table = [Candidate(FORM.format(text)) for text in texts]

    def policy(requests: Sequence[tuple[Tree, Expand]]) -> list[list[Candidate]]:
        return [
            [table[(wish.node * 31 + number * 7) % NUM_SAYINGS] for number in range(wish.samples)]
            for _, wish in requests
        ]

    return policy


def numbered(requests: Sequence[tuple[Tree, Expand]]) -> list[list[Candidate]]:
    """Try the actions of a discrete space in order."""
    return [[Candidate(number) for number in range(wish.samples)] for _, wish in requests]


def replay(env: gym.Env[Any, Any], tree: Tree, seed: int, options: dict[str, Any] | None) -> list[Any]:
    """Return the outcome of every node of a tree, by a reset and the way to the node.

    Equal candidates of a node are played once, as in the search.
    """
    outcomes: list[Any] = [None]
    outcome_of: dict[tuple[int | None, Any], Any] = {}
    for index in range(1, len(tree.nodes)):
        node = tree.nodes[index]
        twin = (node.parent, node.candidate.text)
        if twin not in outcome_of:
            env.reset(seed=seed, options=options)
            for step in tree.path(index)[1:]:
                outcome_of[twin] = env.step(tree.nodes[step].candidate.text)
        outcomes.append(outcome_of[twin])
    return outcomes


def check_replayed(trees: Sequence[Tree], replayed: Sequence[Sequence[Any]], what: str) -> None:
    """Stop where a replay came to something else than the tree has."""
    for tree, outcomes in zip(trees, replayed, strict=True):
        for node, (observation, reward, terminated, truncated, info) in zip(tree.nodes[1:], outcomes[1:], strict=True):
            same = np.array_equal(node.observation, observation) and node.reward == reward
            same &= (node.terminated, node.truncated) == (terminated, truncated) and dict(node.info) == info
            insist(same, f"{what}: a replay came to {observation}, the tree has {node.observation}")


def text_rates(
    make: Callable[[], gym.Env[Any, Any]],
    policy: Policy,
    strategy: Any,
    *,
    tasks: int,
    rounds: int,
    options_of: Callable[[Any], dict[str, Any]] | None = None,
    noises: tuple[Any, ...] = ("same",),
) -> dict[str, Any]:
    """Return nodes per second of our search on each kind of dice, and of reset and replay on the episodes' own."""
    envs = [TreeSearchWrapper(make()) for _ in range(tasks)]
    for seed, env in enumerate(envs):
        env.reset(seed=seed)

    def ours(noise: Any) -> list[Tree]:
        return search(envs, policy, strategy, seeds=range(tasks), noise=noise)

    trees, bare = ours("same"), make()

    def theirs(options: Sequence[dict[str, Any] | None]) -> list[list[Any]]:
        return [replay(bare, tree, seed, options[seed]) for seed, tree in enumerate(trees)]

    plain: list[dict[str, Any] | None] = [None] * tasks
    check_replayed(trees, theirs(plain), str(bare))
    nodes = sum(len(tree.nodes) - 1 for tree in trees)
    works = {}
    for noise in noises:
        grown = sum(len(tree.nodes) - 1 for tree in ours(noise))
        works[f"ours, noise={noise!r}"] = Work(partial(ours, noise), grown, f"search(), {tasks} trees at once")
    how = "one environment, reset(seed), the way to each node"
    works["reset and replay"] = Work(partial(theirs, plain), nodes, how)
    if options_of is not None:
        given = [options_of(env.unwrapped) for env in envs]
        check_replayed(trees, theirs(given), f"{bare} with its level given")
        how = "the same with reset(options={'level': ...}), which spares it the generator"
        works["reset to a known level and replay"] = Work(partial(theirs, given), nodes, how)
    rates = alternate(works, rounds)
    first = rates[f"ours, noise={noises[0]!r}"]["median"]
    depth = sum(node.depth for tree in trees for node in tree.nodes) / nodes
    ratios = {name: first / rate["median"] for name, rate in rates.items() if "replay" in name}
    return {"nodes": nodes, "mean_depth": depth, "nodes_per_second": rates, "ours_to": ratios}


def sokoban(most: int) -> gym.Env[Any, Any]:
    """Return Sokoban in the full stack; with one action a turn, episodes have as many turns as actions."""
    limits: dict[str, Any] = {} if most > 1 else {"max_turns": 10, "max_actions_per_turn": 1}
    return SokobanScore(AnswerFormat(gym.make("tsr/Sokoban-v0", **limits)))


def lake() -> gym.Env[Any, Any]:
    """Return FrozenLake in the full stack."""
    return FrozenLakeScore(AnswerFormat(gym.make("tsr/FrozenLake-v0")))


def text_rows(quick: bool) -> dict[str, Any]:
    """Return all rows; where an environment cannot be searched, why."""
    tasks, rounds = (8, 3) if quick else (64, 11)
    strategy = partial(beam, width=2, branching=4)
    pushes, slides = ("Up", "Down", "Left", "Right"), ("Left", "Down", "Right", "Up")
    sizes: dict[str, Any] = {"tasks": tasks, "rounds": rounds}
    rows = {
        f"Sokoban text, up to {most} actions a turn": text_rates(
            partial(sokoban, most),
            scripted(pushes, most),
            strategy,
            options_of=lambda base: {"level": base.state.to_xsb()},
            noises=("fresh",),
            **sizes,
        )
        for most in (1, 5)
    }
    rows["FrozenLake text, up to 2 actions a turn"] = text_rates(
        lake, scripted(slides, 2), strategy, noises=("same", "fresh"), **sizes
    )
    try:
        rows["CartPole, by deepcopy"] = text_rates(
            lambda: gym.make("CartPole-v1"), numbered, partial(beam, width=2, branching=2, depth=20), **sizes
        )
    except TsrGymError as error:
        rows["CartPole, by deepcopy"] = {"not run": str(error)}
    return rows


BRANCHING = 4


def randomly(batch: Any, request: ArrayRequest) -> Any:
    """Choose uniformly by the seeds."""
    return ((request.seeds >> np.uint64(33)) * np.uint64(4) >> np.uint64(31)).astype(np.int64)


class Replay:
    """A searcher without snapshots, in arrays: for every turn, all rows go back to the roots and play their way again.

    It repeats the actions of a tree that was grown before, so that it has nothing to choose.

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
            # Except at the root, the parents of a turn are nodes of the turn before.
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


def array_rates(
    name: str, settings: dict[str, Any], *, tasks: int, width: int, depth: int, rounds: int
) -> dict[str, Any]:
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
        "Sokoban 6x6 with 1 box, 20 turns": array_rates("tsr/Sokoban-v0", small, depth=20, **sizes),
        "Sokoban 10x10 with 4 boxes, 20 turns": array_rates("tsr/Sokoban-v0", large, depth=20, **sizes),
        "Sokoban 10x10 with 4 boxes, 80 turns": array_rates("tsr/Sokoban-v0", large, depth=80, **sizes),
        "FrozenLake 8x8, 20 turns": array_rates("tsr/FrozenLake-v0", lakes, depth=20, **sizes),
        "FrozenLake, random maps, 20 turns": array_rates("tsr/FrozenLake-v0", small, depth=20, **sizes),
    }


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


SECTIONS: dict[str, Callable[[bool], dict[str, Any]]] = {
    "text": text_rows,
    "arrays": array_rows,
    "growth": growth_rows,
    "puct": puct_rows,
}
AIMS = {"text": "Sokoban text >= 15,000 nodes/s", "arrays": ">= 2 million nodes/s", "growth": "flat"}


def main() -> None:
    """Measure, and write results/search_speed.json; with --quick print alone."""
    quick = "--quick" in sys.argv[1:]
    wanted = [name for name in sys.argv[1:] if name != "--quick"]
    if unknown := sorted(set(wanted) - set(SECTIONS)):
        raise SystemExit(f"wanted sections among {sorted(SECTIONS)}, got {unknown}")
    # Libraries that start threads then share one core with them, ours and the peers'.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    numbers = {name: measure(quick) for name, measure in SECTIONS.items() if not wanted or name in wanted}
    about = {"what": "medians of rounds, per second of processor time on one core", "aims": AIMS}
    if quick:
        print(about | numbers)
    elif wanted:
        recorded = json.loads((RESULTS / "search_speed.json").read_text(encoding="utf-8"))
        again = {name: {"stamp": stamped({}), **numbers[name]} for name in numbers}
        (RESULTS / "search_speed.json").write_text(laid_out(recorded | again), encoding="utf-8")
    else:
        write_result("search_speed", about | numbers)


if __name__ == "__main__":
    run_timed(main)
