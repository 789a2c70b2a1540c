"""The compiled inside of `array_puct`: the way of a simulation down a tree, and of its return up again."""

from typing import NamedTuple

import numpy as np

from tsr_gym.agents.arrays.tree import DICE, TIE, ArrayTree, Flags, Floats, Longs, Words, derive, njit

# Of a selection's bound, so little is left to chance that it decides ties only.
_CHANCE = 1e-7 / (1 << 53)
_UNUSED_BITS = np.uint64(11)
# Least span of the values that a node's values are scaled by.
_LEAST_SPAN = 1e-8


class Statistics(NamedTuple):
    """What the simulations of K tasks know of the S places of their trees, with A actions each.

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
    """Return what every action at a node promises, `[A]`.

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
    """Where a simulation of every tree ends, `[K]` each.

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
        here, chosen, grows, luck = 0, 0, False, derive(seeds[task], TIE + place)
        while not statistics.ended[task, here]:
            promised = bounds(statistics, tree, task, here, c_init, c_base)
            for action in range(promised.size):
                chance = derive(luck, here * promised.size + action) >> _UNUSED_BITS
                promised[action] += _CHANCE * float(chance)
            chosen = int(np.argmax(promised))
            grows = statistics.children[task, here, chosen] < 0
            if grows:
                break
            here = statistics.children[task, here, chosen]
        walk.nodes[task], walk.rows[task] = here, task * statistics.ended.shape[1] + here
        walk.actions[task], walk.grows[task] = chosen, grows
        # An address is a place here: it says in which simulation the state was found.
        walk.dice[task] = derive(derive(seeds[task], DICE + here), 0 if common else chosen)


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
            worth += tree.rewards[task, here]
            action, here = tree.actions[task, here], tree.parents[task, here]
            statistics.visits[task, here, action] += 1
