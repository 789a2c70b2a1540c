"""array_puct: Monte Carlo tree search for many tasks at once, in arrays, where all actions can be listed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tsr_gym.agents.arrays.tree import (
    DICE,
    TIE,
    ArrayEnv,
    ArrayTree,
    Flags,
    Floats,
    Longs,
    Words,
    derive,
    njit,
    root_seeds,
)
from tsr_gym.ranges import check_counts, check_range, finite_array
from tsr_gym.stack import NOISES, Noise

# Of a selection's bound, so little is left to chance that it decides ties only.
_CHANCE = 1e-7 / (1 << 53)
_UNUSED_BITS = np.uint64(11)
# Least span of the values that a node's values are scaled by.
_LEAST_SPAN = 1e-8
# The batch, standing at N states, gives priors `[N, A]`, or `[A]` for all of them, and values `[N]` of what is still to
# come.
Evaluate = Callable[[Any], tuple[Floats, Floats]]


@dataclass(frozen=True, slots=True)
class ArrayPuct:
    """Results of the searches of K tasks with A actions.

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

    Every simulation walks down by MuZero's rule (`bounds`), tries one action, and backs the reward and
    the value of where it led up to the root, undiscounted. `strategies.puct` is the search for actions that a model
    samples; here all actions of a node are known from the start.

    Args:
        envs: K environments, each at its task.
        simulations: For each task.
        seeds: `[K]` a seed for each task, for dice and ties.
        evaluate: Gives priors and values of new states; None is uniform and 0. States where an episode has ended are
            worth 0, regardless of this value.
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
    check_counts(simulations=simulations)
    check_range(least=0, c_init=c_init)
    check_range(above=0, c_base=c_base)
    if noise not in NOISES:
        raise ValueError(f"wanted noise of {NOISES}, got {noise!r}")
    everyone, places = np.arange(envs.num_envs), simulations + 1
    own = root_seeds(seeds, envs.num_envs)
    # Every place of every tree has an environment, and each tree has one more that is stepped.
    kept, played = envs.take(np.repeat(everyone, places)), envs.take(everyone)
    tree = ArrayTree.empty(envs.num_envs, places)
    statistics = _start(played, places, evaluate)
    walk = _walk(envs.num_envs)
    dice = walk.dice if envs.draws_noise and noise != "same" else None
    rule = (float(c_init), float(c_base), noise == "common", walk)
    descend(statistics, tree, own, 1, *rule)
    for place in range(1, places):
        played.select(walk.rows, source=kept, seeds=dice)
        came = played.advance(walk.actions)
        statistics.priors[:, place], values = _evaluated(played, evaluate)
        kept.select(everyone, source=played, into=everyone * places + place)
        go_on(statistics, tree, own, place, *rule, *came, values)
    visits = statistics.visits[:, 0]
    return ArrayPuct(_most_visited(statistics, tree), visits, statistics.values[:, 0], tree)


class Statistics(NamedTuple):
    """Statistics of the simulations of K tasks at the S places of their trees, with A actions each.

    Attributes:
        children: `[K, S, A]` the place that an action leads to, -1 where it was not tried.
        visits: `[K, S, A]` the simulations that took an action.
        priors: `[K, S, A]` its prior probability.
        counts: `[K, S]` the simulations that passed or ended at a place, the one that grew it included; 1 at the root
            at first.
        values: `[K, S]` the mean of their returns from there.
        ended: `[K, S]` whether the episode has ended there.
    """

    children: Longs
    visits: Longs
    priors: Floats
    counts: Longs
    values: Floats
    ended: Flags


@njit
def bounds(statistics: Statistics, tree: ArrayTree, task: int, node: int, c_init: float, c_base: float) -> Floats:
    """Return the upper confidence bound of every action at a node, `[A]`.

    ``Q(s, a) + P(s, a) sqrt(N(s)) / (1 + N(s, a)) (c_init + log((1 + N(s) + c_base) / c_base))`` (MuZero, arXiv
    1911.08265, Eq. 2), where Q is scaled by the least and the largest among the node's value and those of its actions,
    and counts as the least where an action was not tried, as in mctx.
    """
    count, num_actions = statistics.counts[task, node], statistics.children.shape[2]
    qualities = np.empty(num_actions)
    low = high = statistics.values[task, node]
    for action in range(num_actions):
        child = statistics.children[task, node, action]
        if child >= 0:
            qualities[action] = tree.rewards[task, child] + statistics.values[task, child]
            low, high = min(low, qualities[action]), max(high, qualities[action])
    span = max(high - low, _LEAST_SPAN)
    explore = np.sqrt(count) * (c_init + np.log((count + c_base + 1.0) / c_base))
    promised = np.empty(num_actions)
    for action in range(num_actions):
        quality = (qualities[action] - low) / span if statistics.children[task, node, action] >= 0 else 0.0
        share = statistics.priors[task, node, action] / (statistics.visits[task, node, action] + 1)
        promised[action] = quality + explore * share
    return promised


class Walk(NamedTuple):
    """End of a simulation of every tree, `[K]` each.

    Attributes:
        nodes: The place.
        rows: Where its environment stands in the batch of all places.
        actions: The action to try there for the first time; any where the episode has ended.
        grows: Whether there is one to try.
        dice: Seeds of its dice.
    """

    nodes: Longs
    rows: Longs
    actions: Longs
    grows: Flags
    dice: Words


@njit
def descend(
    statistics: Statistics,
    tree: ArrayTree,
    seeds: Words,
    place: int,
    c_init: float,
    c_base: float,
    common: bool,
    walk: Walk,
) -> None:
    """Walk down every tree to where an action is tried for the first time, or an episode has ended.

    Args:
        statistics: What is known.
        tree: The trees.
        seeds: `[K]` seeds of the tasks.
        place: The number of the simulation.
        c_init: Weight of exploration.
        c_base: How slowly it grows.
        common: Whether siblings share their dice.
        walk: What is filled.
    """
    for task in range(seeds.size):
        here, action_taken, grows, luck = 0, 0, False, derive(seeds[task], TIE + place)
        while not statistics.ended[task, here]:
            promised = bounds(statistics, tree, task, here, c_init, c_base)
            for action in range(promised.size):
                chance = derive(luck, here * promised.size + action) >> _UNUSED_BITS
                promised[action] += _CHANCE * float(chance)
            action_taken = int(np.argmax(promised))
            grows = statistics.children[task, here, action_taken] < 0
            if grows:
                break
            here = statistics.children[task, here, action_taken]
        walk.nodes[task], walk.rows[task] = here, task * statistics.ended.shape[1] + here
        walk.actions[task], walk.grows[task] = action_taken, grows
        # The address of a node is its place, which is the number of the simulation that added it.
        walk.dice[task] = derive(derive(seeds[task], DICE + here), 0 if common else action_taken)


@njit
def back_up(
    statistics: Statistics,
    tree: ArrayTree,
    place: int,
    walk: Walk,
    rewards: Floats,
    terminated: Flags,
    truncated: Flags,
    values: Floats,
) -> None:
    """Write what the simulation tried into the trees, and what came of it into every place on its way.

    Args:
        statistics: What is known; changed in place.
        tree: The trees; changed in place.
        place: The number of the simulation, which is the new place of every tree.
        walk: Where it ended.
        rewards: `[K]` what that paid.
        terminated: `[K]` whether the task ended.
        truncated: `[K]` whether a limit ended the episode.
        values: `[K]` what the new places look worth.
    """
    for task in range(rewards.size):
        here, worth = walk.nodes[task], 0.0
        if walk.grows[task]:
            action, ended = walk.actions[task], terminated[task] or truncated[task]
            tree.parents[task, place], tree.actions[task, place] = here, action
            tree.rewards[task, place] = tree.scores[task, place] = rewards[task]
            tree.terminated[task, place], tree.truncated[task, place] = terminated[task], truncated[task]
            statistics.children[task, here, action], statistics.ended[task, place] = place, ended
            here, worth = place, 0.0 if ended else values[task]
        while True:
            count = statistics.counts[task, here]
            statistics.values[task, here] = (statistics.values[task, here] * count + worth) / (count + 1)
            statistics.counts[task, here] = count + 1
            if here == 0:
                break
            # A place holds returns from there on, so that the reward of the action that led to it counts from its
            # parent up.
            worth += tree.rewards[task, here]
            action, here = tree.actions[task, here], tree.parents[task, here]
            statistics.visits[task, here, action] += 1


@njit
def go_on(
    statistics: Statistics,
    tree: ArrayTree,
    seeds: Words,
    place: int,
    c_init: float,
    c_base: float,
    common: bool,
    walk: Walk,
    rewards: Floats,
    terminated: Flags,
    truncated: Flags,
    values: Floats,
) -> None:
    """Back up what a simulation found, and descend for the next one; see `back_up` and `descend`.

    With few tasks a search takes as long as its calls, so that one is better than two.
    """
    back_up(statistics, tree, place, walk, rewards, terminated, truncated, values)
    descend(statistics, tree, seeds, place + 1, c_init, c_base, common, walk)


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
    return finite_array(priors, "priors", evaluate), finite_array(values, "values", evaluate)


def _walk(tasks: int) -> Walk:
    numbers = (np.zeros(tasks, np.int64), np.zeros(tasks, np.int64), np.zeros(tasks, np.int64))
    return Walk(*numbers, np.zeros(tasks, np.bool_), np.zeros(tasks, np.uint64))


def _most_visited(statistics: Statistics, tree: ArrayTree) -> Longs:
    """Return the action of every root that was taken most often; of several, the one that promises most."""
    tasks, first = np.arange(len(tree.parents)), statistics.children[:, 0]
    promised = tree.rewards[tasks[:, None], first] + statistics.values[tasks[:, None], first]
    return np.lexsort((-promised, -statistics.visits[:, 0]))[:, 0]
