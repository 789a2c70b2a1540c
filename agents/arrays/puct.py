"""array_puct: Monte Carlo tree search for many tasks at once, in arrays, where all actions can be listed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsr_gym.agents.arrays.puct_kernels import Statistics, Walk, back_up, descend
from tsr_gym.agents.arrays.tree import ArrayEnv, ArrayTree, Floats, Longs, root_seeds
from tsr_gym.stack import NOISES, Noise

# The batch, standing at N states, gives priors `[N, A]` and values `[N]` of what is still to come.
Evaluate = Callable[[Any], tuple[Floats, Floats]]


@dataclass(frozen=True, slots=True)
class ArrayPuct:
    """What the searches of K tasks with A actions found.

    Attributes:
        actions: `[K]` the action that was taken most often at the root; of several, the one that promises most.
        visits: `[K, A]` how often each was taken.
        values: `[K]` the mean return of the simulations.
        tree: Everything that grew: what simulation i tried lies at place i, counted from 1, and where it reached an
            episode's end that was known there is nothing.
    """

    actions: Longs
    visits: Longs
    values: Floats
    tree: ArrayTree


def array_puct(
    envs: ArrayEnv,
    *,
    simulations: int,
    seeds: Sequence[int] | NDArray[Any],
    evaluate: Evaluate | None = None,
    c_init: float = 1.25,
    c_base: float = 19652.0,
    noise: Noise = "fresh",
) -> ArrayPuct:
    r"""Run one tree search per environment of a batch, which itself stays as it is.

    Every simulation walks down by MuZero's rule (`puct_kernels.bounds`), tries one action, and backs the reward and
    the value of where it led up to the root, undiscounted. `strategies.puct` is the search for actions that a model
    samples; here all actions of a node are known from the start.

    Args:
        envs: K environments, each at its task.
        simulations: For each task.
        seeds: `[K]` a seed for each task, for dice and ties.
        evaluate: Gives priors and values of new states; None is uniform and 0. States where an episode has ended are
            worth 0, whatever it says.
        c_init: Weight of exploration.
        c_base: How slowly that weight grows with the simulations.
        noise: The dice: ``"fresh"`` gives every place its own, ``"common"`` lets siblings share them, ``"same"`` plays
            the environments' own future and so is clairvoyant.

    Raises:
        ValueError: A number is impossible, or there are not as many seeds as tasks.

    >>> import gymnasium as gym, tsr_gym
    >>> envs = gym.make_vec("tsr/Sokoban-v0", num_envs=2, level="######\n#@ $.#\n######")
    >>> _ = envs.reset(seed=0)
    >>> array_puct(envs, simulations=64, seeds=range(2)).actions.tolist()
    [3, 3]
    """
    if simulations < 1 or c_init < 0 or c_base <= 0:
        raise ValueError(f"wanted simulations >= 1, c_init >= 0, c_base > 0, got {simulations}, {c_init} and {c_base}")
    if noise not in NOISES:
        raise ValueError(f"wanted noise of {NOISES}, got {noise!r}")
    everyone, places = np.arange(envs.num_envs), simulations + 1
    own = root_seeds(seeds, envs.num_envs)
    # Every place of every tree has an environment; the one that is stepped stands beside them.
    kept, played = envs.take(np.repeat(everyone, places)), envs.take(everyone)
    tree = ArrayTree.empty(envs.num_envs, places)
    statistics = _start(played, places, evaluate)
    walk = _walk(envs.num_envs)
    dice = walk.dice if envs.draws_noise and noise != "same" else None
    for place in range(1, places):
        descend(statistics, tree, own, place, float(c_init), float(c_base), noise == "common", walk)
        played.select(walk.rows, source=kept, seeds=dice)
        came = played.advance(walk.actions)
        statistics.priors[:, place], values = _evaluated(played, evaluate)
        kept.select(everyone, source=played, into=everyone * places + place)
        back_up(statistics, tree, place, walk, *came, values)
    visits = statistics.visits[:, 0]
    return ArrayPuct(_most_visited(statistics, tree), visits, statistics.values[:, 0], tree)


def _start(played: Any, places: int, evaluate: Evaluate | None) -> Statistics:
    tasks, num_actions = played.num_envs, int(played.single_action_space.n)
    shape = (tasks, places, num_actions)
    numbers = (np.full(shape, -1), np.zeros(shape, np.int64), np.zeros(shape))
    counts = np.zeros(shape[:2], np.int64)
    statistics = Statistics(*numbers, counts, np.zeros(shape[:2]), np.zeros(shape[:2], np.bool_))
    statistics.priors[:, 0], statistics.values[:, 0] = _evaluated(played, evaluate)
    statistics.counts[:, 0], statistics.ended[:, 0] = 1, played.over
    return statistics


def _evaluated(played: Any, evaluate: Evaluate | None) -> tuple[Any, Any]:
    if evaluate is None:
        return 1.0 / int(played.single_action_space.n), np.zeros(played.num_envs)
    priors, values = evaluate(played)
    return priors, np.asarray(values, np.float64)


def _walk(tasks: int) -> Walk:
    numbers = (np.zeros(tasks, np.int64), np.zeros(tasks, np.int64), np.zeros(tasks, np.int64))
    return Walk(*numbers, np.zeros(tasks, np.bool_), np.zeros(tasks, np.uint64))


def _most_visited(statistics: Statistics, tree: ArrayTree) -> Longs:
    """Return the action of every root that was taken most often; of several, the one that promises most."""
    tasks, first = np.arange(len(tree.parents)), statistics.children[:, 0]
    promised = tree.rewards[tasks[:, None], first] + statistics.values[tasks[:, None], first]
    return np.lexsort((-promised, -statistics.visits[:, 0]))[:, 0]
