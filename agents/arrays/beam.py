"""array_beam: the beam search of `strategies.beam` for many tasks at once, in arrays."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tsr_gym.agents.arrays.tree import (
    DICE,
    POLICY,
    TIE,
    ArrayEnv,
    ArrayPolicy,
    ArrayRequest,
    ArrayScore,
    ArrayTree,
    Flags,
    Floats,
    Longs,
    Words,
    derive,
    njit,
    root_seeds,
)
from tsr_gym.ranges import check_counts, finite_array
from tsr_gym.stack import NOISES, Noise

# Merits that differ by less are a tie, because sums of the same rewards in another order differ in the last digits.
_DECIMALS = 1e9


@dataclass(frozen=True, slots=True)
class ArrayBeam:
    """Results of the searches.

    Attributes:
        actions: `[K, D]` the best path of each of K tasks, -1 after its end.
        returns: `[K]` the sum of its rewards.
        chosen: `[K, W]` the ends of the paths that were kept, best first, -1 where there are fewer.
        tree: Everything that grew. Nodes of turn t, counted from 0, lie at places 1 + t W M to (t + 1) W M, those of
            one parent side by side.
    """

    actions: Longs
    returns: Floats
    chosen: Longs
    tree: ArrayTree


def array_beam(
    envs: ArrayEnv,
    policy: ArrayPolicy,
    *,
    width: int,
    branching: int,
    depth: int,
    seeds: Sequence[int] | NDArray[Any],
    score: ArrayScore | None = None,
    score_of: Literal["turn", "state"] = "turn",
    noise: Noise = "fresh",
) -> ArrayBeam:
    r"""Run one beam search per environment of a batch, which itself stays as it is.

    A turn is one action. Paths are kept, rated and ended as `strategies.beam` does it; merits are compared to nine
    decimals, and ties are broken by seeds that derive from the tasks' seeds and the nodes' addresses.

    Args:
        envs: K environments, each at its task.
        policy: Chooses the action of every candidate.
        width: Paths that are kept, W.
        branching: Candidates per path and turn, M.
        depth: Turns to look ahead; a batch cannot wait for the end of the longest episode.
        seeds: `[K]` a seed for each task.
        score: Guide of the search; None takes the rewards.
        score_of: Whether scores rate turns, and add up, or states.
        noise: The dice: ``"fresh"`` gives every child its own, ``"common"`` lets siblings share them, ``"same"`` plays
            the environments' own future and so is clairvoyant.

    Raises:
        ValueError: A number is impossible, or there are not as many seeds as tasks.

    >>> import gymnasium as gym, tsr_gym
    >>> envs = gym.make_vec("tsr/Sokoban-v0", num_envs=3, level="######\n#@ $.#\n######")
    >>> _ = envs.reset(seed=0)
    >>> found = array_beam(envs, lambda _, request: request.numbers, width=4, branching=4, depth=3, seeds=range(3))
    >>> found.actions[0].tolist(), found.returns.round(1).tolist()
    ([3, 3], [10.8, 10.8, 10.8])
    """
    check_counts(width=width, branching=branching, depth=depth)
    if noise not in NOISES:
        raise ValueError(f"wanted noise of {NOISES}, got {noise!r}")
    if score_of not in ("turn", "state"):
        raise ValueError(f"wanted score_of 'turn' or 'state', got {score_of!r}")
    tasks, places = envs.num_envs, width * branching
    batch = envs.take(np.repeat(np.arange(tasks), places))
    tree = ArrayTree.empty(tasks, 1 + depth * places)
    members = _start(envs.over, root_seeds(seeds, tasks), width, branching)
    for turn in range(depth):
        if not members.goes_on.any():
            break
        fan, came = _play(batch, policy, members, turn, branching, noise, score)
        members = keep_best(members, write_turn(1 + turn * places, members, fan, came, score_of == "turn", tree))
    ends = np.where(members.merits > -np.inf, members.nodes, -1)
    return ArrayBeam(tree.actions_to(ends[:, 0]), members.returns[:, 0], ends, tree)


class Members(NamedTuple):
    """Paths of K beams, `[K, W]` each; a beam with fewer than W paths has merits of minus infinity and closed episodes.

    Attributes:
        nodes: The places of their ends in the trees.
        rows: Where in the batch these stand.
        seeds: Their seeds.
        merits: What they are worth to the search.
        returns: Their rewards so far.
        goes_on: Whether their episodes are still running, so that they take candidates.
    """

    nodes: Longs
    rows: Longs
    seeds: Words
    merits: Floats
    returns: Floats
    goes_on: Flags


class Fan(NamedTuple):
    """The candidates of all members side by side, M of each, `[K, W M]` each.

    Attributes:
        rows: Where in the batch each one's parent stands.
        seeds: Their seeds.
        choices: The seeds that choose their actions.
        dice: The seeds of their dice.
        wanted: Whether they count.
    """

    rows: Longs
    seeds: Words
    choices: Words
    dice: Words
    wanted: Flags


class Came(NamedTuple):
    """Actions of the candidates and their results, `[K, W M]` each."""

    actions: Longs
    rewards: Floats
    scores: Floats
    terminated: Flags
    truncated: Flags


@njit
def fan_out(members: Members, common: bool, fan: Fan) -> None:
    """Fill a fan with the candidates of all members.

    Args:
        members: The paths.
        common: Whether siblings share their dice.
        fan: What is filled.
    """
    tasks, width = members.rows.shape
    branching = fan.rows.shape[1] // width
    for task in range(tasks):
        for member in range(width):
            parent = members.seeds[task, member]
            for number in range(branching):
                slot, seed = member * branching + number, derive(parent, number)
                fan.rows[task, slot] = members.rows[task, member]
                fan.seeds[task, slot] = seed
                fan.choices[task, slot] = derive(seed, POLICY)
                fan.dice[task, slot] = derive(parent if common else seed, DICE)
                fan.wanted[task, slot] = members.goes_on[task, member]


@njit
def write_turn(first: int, members: Members, fan: Fan, came: Came, adds_up: bool, tree: ArrayTree) -> Members:
    """Write what a turn brought into the trees, and return it as paths of beams that have room for all of it.

    Args:
        first: The place of the first candidate in every tree.
        members: The paths that took candidates.
        fan: The candidates.
        came: What they did.
        adds_up: Whether scores rate turns, and add up along a path, or states.
        tree: What is written into.
    """
    tasks, size = fan.wanted.shape
    branching = size // members.nodes.shape[1]
    nodes, rows = np.empty((tasks, size), np.int64), np.empty((tasks, size), np.int64)
    merits, returns = np.full((tasks, size), -np.inf), np.zeros((tasks, size))
    goes_on = np.zeros((tasks, size), np.bool_)
    for task in range(tasks):
        for slot in range(size):
            member, place = slot // branching, first + slot
            nodes[task, slot], rows[task, slot] = place, task * size + slot
            if not fan.wanted[task, slot]:
                continue
            score, reward = came.scores[task, slot], came.rewards[task, slot]
            ended = came.terminated[task, slot] or came.truncated[task, slot]
            tree.parents[task, place], tree.actions[task, place] = members.nodes[task, member], came.actions[task, slot]
            tree.rewards[task, place], tree.scores[task, place] = reward, score
            tree.terminated[task, place] = came.terminated[task, slot]
            tree.truncated[task, place] = came.truncated[task, slot]
            merits[task, slot] = members.merits[task, member] + score if adds_up else score
            returns[task, slot] = members.returns[task, member] + reward
            goes_on[task, slot] = not ended
    return Members(nodes, rows, fan.seeds, merits, returns, goes_on)


@njit
def keep_best(members: Members, new: Members) -> Members:
    """Return the best of the members that have ended and of the candidates, best first.

    Ties go to the lower of the seeds that derive from theirs.
    """
    tasks, width = members.merits.shape
    shape = (tasks, width)
    # Below W a member, from W on a candidate.
    kept = np.empty(width, np.int64)
    worths, ties = np.empty(width), np.empty(width, np.uint64)
    nodes, rows, seeds = np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape, np.uint64)
    merits, returns, goes_on = np.full(shape, -np.inf), np.zeros(shape), np.zeros(shape, np.bool_)
    for task in range(tasks):
        size = 0
        for number in range(width + new.merits.shape[1]):
            slot = number - width
            if slot >= 0:
                merit, seed = new.merits[task, slot], new.seeds[task, slot]
            else:
                merit, seed = members.merits[task, number], members.seeds[task, number]
            # A path that took candidates is continued by them and is no longer a member itself.
            if merit == -np.inf or (slot < 0 and members.goes_on[task, number]):
                continue
            worth, tie = np.rint(merit * _DECIMALS), derive(seed, TIE)
            # Insertion into the W best so far, which are few.
            place = size
            while place > 0 and (worth > worths[place - 1] or (worth == worths[place - 1] and tie < ties[place - 1])):
                place -= 1
            if place == width:
                continue
            size = min(size + 1, width)
            for later in range(size - 1, place, -1):
                worths[later], ties[later] = worths[later - 1], ties[later - 1]
                kept[later] = kept[later - 1]
            worths[place], ties[place], kept[place] = worth, tie, number
        for place in range(size):
            slot = kept[place] - width
            source, slot = (new, slot) if slot >= 0 else (members, kept[place])
            nodes[task, place], rows[task, place] = source.nodes[task, slot], source.rows[task, slot]
            seeds[task, place], merits[task, place] = source.seeds[task, slot], source.merits[task, slot]
            returns[task, place], goes_on[task, place] = source.returns[task, slot], source.goes_on[task, slot]
    return Members(nodes, rows, seeds, merits, returns, goes_on)


def _start(over: Flags, seeds: Words, width: int, branching: int) -> Members:
    shape = (len(seeds), width)
    nodes, first = np.zeros(shape, np.int64), np.arange(width) == 0
    rows = np.arange(nodes.size).reshape(shape) * branching
    merits = np.where(first, np.zeros(shape), -np.inf)
    return Members(nodes, rows, np.repeat(seeds[:, None], width, 1), merits, np.zeros(shape), first & ~over[:, None])


def _play(
    batch: Any, policy: ArrayPolicy, members: Members, turn: int, branching: int, noise: Noise, score: ArrayScore | None
) -> tuple[Fan, Came]:
    """Try the candidates of all members at once."""
    tasks, width = members.rows.shape
    shape = (tasks, width * branching)
    seeds = np.empty((3, *shape), np.uint64)
    fan = Fan(np.empty(shape, np.int64), seeds[0], seeds[1], seeds[2], np.empty(shape, np.bool_))
    fan_out(members, noise == "common", fan)
    batch.select(fan.rows.ravel(), seeds=fan.dice.ravel() if batch.draws_noise and noise != "same" else None)
    numbers = np.tile(np.arange(branching), tasks * width)
    actions = policy(batch, ArrayRequest(turn, numbers, fan.choices.ravel(), fan.wanted.ravel()))
    rewards, terminated, truncated = batch.advance(actions)
    scores = rewards if score is None else finite_array(score(batch, rewards), "scores of the batch", score)
    parts = (np.asarray(actions, np.int64), rewards, scores, terminated, truncated)
    return fan, Came._make(part.reshape(shape) for part in parts)
