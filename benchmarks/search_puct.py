"""Simulations per second of PUCT on Sokoban: over objects, in arrays, and mctx's, with the same values and priors."""

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gymnasium as gym
import numpy as np

from benchmarks import puct_mctx
from benchmarks.grid_peers import sokoban_rooms
from benchmarks.measure import MissingPeer, Work, alternate, insist
from tsr_gym import Candidate
from tsr_gym.agents.arrays import array_puct
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.strategies import puct
from tsr_gym.tree import Tree
from tsr_gym.wrappers import TreeSearchWrapper
from tsr_gym_envs.sokoban.discrete_env import BOX
from tsr_gym_envs.sokoban.levels import TitledLevel, to_collection

BATCHES = (1, 16, 256)
MAX_ACTIONS = 120
# The array search has no ties to break here that mctx could break otherwise, and both sum in double precision.
LEAST_EQUAL = 1.0


def priors(tilt: float = 0.0) -> Any:
    """Return the priors of the actions, the first a little likelier than the last."""
    weights = np.exp(-tilt * np.arange(4.0))
    return weights / weights.sum()


def evaluate(batch: Any, known: Any = priors()) -> tuple[Any, Any]:  # noqa: B008
    """Return priors, and minus the number of boxes that are off goals."""
    return known, -(batch.observe() == BOX).sum((1, 2)).astype(float)


def next_action(requests: Any) -> list[list[Candidate]]:
    """Try the four actions of a node one after the other."""
    return [
        [Candidate((len(tree.children(wish.node)) + number) % 4) for number in range(wish.samples)]
        for tree, wish in requests
    ]


def value_of(tree: Tree, index: int) -> float:
    """Return what `evaluate` says of a node, and what was paid on the way to it."""
    node = tree.nodes[index]
    return tree.total(index, "reward") - (0.0 if node.done else float((node.observation == BOX).sum()))


def objects(settings: dict[str, Any], tasks: int, simulations: int) -> Work:
    """Return the search over objects: every node takes all four actions, one simulation each."""
    envs = [TreeSearchWrapper(gym.make("tsr/Sokoban-v0", action_type="discrete", **settings)) for _ in range(tasks)]
    for seed, env in enumerate(envs):
        env.reset(seed=seed)
    numbers: dict[str, Any] = {"simulations": simulations, "moves": 1, "k": 4, "alpha": 0.0, "prior": "uniform"}
    strategy = partial(puct, value=value_of, **numbers)

    def run() -> Any:
        return search(envs, next_action, strategy, seeds=range(tasks))

    return Work(run, tasks * simulations, "search() with strategies.puct, k=4, alpha=0, gym.make's wrappers")


def mctx_work(envs: Any, simulations: int) -> tuple[Work, dict[str, Any]]:
    """Return mctx's search and what was compared before.

    Raises:
        MissingPeer: mctx is not installed.
    """
    puct_mctx.load()
    step = puct_mctx.make_step(envs.observe().shape[2], MAX_ACTIONS)
    puct_mctx.check_rules(envs, step)
    visits, values = puct_mctx.exact_visits(envs, step, simulations)
    seeds = range(envs.num_envs)
    ours = array_puct(
        envs, simulations=simulations, seeds=seeds, evaluate=partial(evaluate, known=priors(puct_mctx.TILT))
    )
    equal = float((visits == ours.visits).all(1).mean())
    insist(equal >= LEAST_EQUAL, f"the visits of mctx and of array_puct are equal in {equal:.0%} of the tasks only")
    run = puct_mctx.make_search(puct_mctx.rooms_of(envs), step, simulations)
    seconds = puct_mctx.compile_seconds(run)
    told = {
        "tasks_with_equal_visits": equal,
        "largest_difference_of_root_values": float(np.abs(values - ours.values).max()),
        "compile_seconds": seconds,
    }
    how = "jit(muzero_policy), no noise at the root, float32, compiled before"
    return Work(run, envs.num_envs * simulations, how), told


def measure(settings: dict[str, Any], tasks: int, simulations: int, rounds: int) -> dict[str, Any]:
    """Return simulations per second of all for one number of roots."""
    envs: Any = gym.make_vec("tsr/Sokoban-v0", num_envs=tasks, **settings)
    envs.reset(seed=0)
    in_arrays = partial(array_puct, envs, simulations=simulations, seeds=np.arange(tasks), evaluate=evaluate)
    works = {
        "objects": objects(settings, tasks, simulations),
        "arrays": Work(in_arrays, tasks * simulations, "array_puct"),
    }
    told: dict[str, Any] = {}
    try:
        works["mctx"], told = mctx_work(envs, simulations)
    except MissingPeer as error:
        told = {"mctx": f"not run: {error}"}
    rates = alternate(works, rounds)
    medians = {name: rate["median"] for name, rate in rates.items()}
    ratios = {f"{name}_to_mctx": medians[name] / medians["mctx"] for name in ("objects", "arrays") if "mctx" in medians}
    return {"simulations_per_second": rates, **ratios, **told}


def puct_rows(quick: bool) -> dict[str, Any]:
    """Return a row for each number of roots, on rooms of gym-sokoban's generator."""
    simulations, rounds, num_rooms = (32, 3, 4) if quick else (128, 7, 64)
    with TemporaryDirectory() as folder:
        levels = Path(folder) / "levels.xsb"
        titled = [TitledLevel("", room) for room in sokoban_rooms(num_rooms)]
        levels.write_text(to_collection(titled), encoding="utf-8")
        settings = {"levels": str(levels), "max_actions": MAX_ACTIONS}
        rows: dict[str, Any] = {
            f"{tasks} roots": measure(settings, tasks, simulations, rounds) for tasks in BATCHES[: 2 if quick else 3]
        }
    about = {"simulations": simulations, "rooms": "10x10 with 4 boxes", "value": "minus the boxes off goals"}
    try:
        puct_mctx.load()
        about |= puct_mctx.versions()
    except MissingPeer as error:
        about["mctx"] = f"not run: {error}"
    return about | rows
