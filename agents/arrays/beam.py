"""array_beam: the beam search of `strategies.beam` for many tasks at once, in arrays."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tsr_gym.agents.arrays.beam_kernels import Came, Fan, Members, fan_out, keep_best, write_turn
from tsr_gym.agents.arrays.tree import (
    ArrayEnv,
    ArrayPolicy,
    ArrayRequest,
    ArrayScore,
    ArrayTree,
    Flags,
    Floats,
    Longs,
    Words,
    root_seeds,
)
from tsr_gym.stack import NOISES, Noise


@dataclass(frozen=True, slots=True)
class ArrayBeam:
    """What the searches found.

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
    if min(width, branching, depth) < 1:
        raise ValueError(f"wanted width, branching and depth >= 1, got {width}, {branching} and {depth}")
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
    chosen = np.where(members.merits > -np.inf, members.nodes, -1)
    return ArrayBeam(tree.actions_to(chosen[:, 0]), members.returns[:, 0], chosen, tree)


def _start(over: Flags, seeds: Words, width: int, branching: int) -> Members:
    shape = (len(seeds), width)
    nodes, first = np.zeros(shape, np.int64), np.arange(width) == 0
    rows = np.arange(nodes.size).reshape(shape) * branching
    merits = np.where(first, np.zeros(shape), -np.inf)
    return Members(nodes, rows, np.repeat(seeds[:, None], width, 1), merits, np.zeros(shape), first & ~over[:, None])


def _play(
    batch: Any,
    policy: ArrayPolicy,
    members: Members,
    turn: int,
    branching: int,
    noise: Noise,
    score: ArrayScore | None,
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
    scores = rewards if score is None else np.asarray(score(batch, rewards), np.float64)
    parts = (np.asarray(actions, np.int64), rewards, scores, terminated, truncated)
    return fan, Came._make(part.reshape(shape) for part in parts)
