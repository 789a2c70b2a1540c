"""Exact solutions with the fewest pushes or the fewest moves, or the proof that there is none."""

from dataclasses import dataclass
from time import monotonic
from typing import Literal

import numpy as np

from tsr_gym.errors import ConfigError, TsrGymError
from tsr_gym_envs.compiled import Ints
from tsr_gym_envs.sokoban.assignment import match_boxes
from tsr_gym_envs.sokoban.deadlock_rules import judge
from tsr_gym_envs.sokoban.lurd import lurd_of_boards
from tsr_gym_envs.sokoban.rules import ACTIONS, SokobanState, cells, push
from tsr_gym_envs.sokoban.search import (
    BOXES,
    COST,
    EXHAUSTED,
    FULL,
    NEXT,
    NONE,
    NUM_NODES,
    PARENT,
    PLAYER,
    RUNNING,
    SOLVED,
    fill_slots,
    run_search,
)
from tsr_gym_envs.sokoban.tables import level_tables

MAX_NODES = 2_000_000
_FIRST_NODES = 4096
# Nodes between two looks at the clock, some 20 ms.
_NODES_PER_SLICE = 10_000
# Solutions that cost this much or more are not looked for.
_MAX_COST = 1 << 15

Optimal = Literal["pushes", "moves"]


@dataclass(frozen=True, slots=True)
class Solution:
    """What the solver found out.

    Attributes:
        status: ``"solved"``; ``"unsolvable"``, which is proved; or ``"unknown"``, because a limit was reached.
        pushes: Pushes of `lurd`, None where it is None.
        moves: Moves of `lurd`, pushes included, None where it is None.
        lurd: An optimal solution, None unless solved.
        num_nodes: Positions that were stored.
        num_expanded: Positions whose pushes were tried.
    """

    status: Literal["solved", "unsolvable", "unknown"]
    pushes: int | None = None
    moves: int | None = None
    lurd: str | None = None
    num_nodes: int = 0
    num_expanded: int = 0


def solve(
    state: SokobanState, *, optimal: Optimal = "pushes", max_nodes: int = MAX_NODES, max_seconds: float | None = None
) -> Solution:
    """Solve a position with the fewest pushes or moves, or prove that nothing solves it.

    Args:
        state: The position.
        optimal: What is fewest. With ``"pushes"``, the walks between the pushes are shortest, but another solution
            with as many pushes may need fewer moves.
        max_nodes: The most positions to store, of about `4 * (6 + boxes)` bytes each.
        max_seconds: When to give up, None for never.

    Raises:
        ConfigError: `optimal` or a limit is impossible.
    """
    if optimal not in ("pushes", "moves") or max_nodes < 1:
        raise ConfigError(f"wanted optimal of ['moves', 'pushes'] and max_nodes >= 1, got {optimal!r} and {max_nodes}")
    deadline = None if max_seconds is None else monotonic() + max_seconds
    rule, rest = judge(state)
    if rule:
        return Solution("unsolvable")
    if rest.solved:
        return Solution("solved", 0, 0, "")
    nodes, buckets = _root(rest, min(max_nodes, _FIRST_NODES))
    slots, counts = _hash_table(nodes, 1), np.array([1, 0, 0, NONE])
    tables, by_moves, status = level_tables(rest.level), optimal == "moves", RUNNING
    while status == RUNNING and (deadline is None or monotonic() < deadline):
        status = run_search(*tables, nodes, slots, buckets, counts, by_moves, _NODES_PER_SLICE)
        if status == FULL and len(nodes) < max_nodes:
            nodes = np.concatenate([nodes, np.empty_like(nodes)])[:max_nodes]
            slots, status = _hash_table(nodes, counts[NUM_NODES]), RUNNING
    num_nodes, _, num_expanded, answer = counts.tolist()
    if status == SOLVED:
        frozen = state.boxes & ~rest.boxes
        lurd = lurd_of_boards(state, [boxes | frozen for boxes in _boards_to(nodes, answer)])
        return Solution("solved", sum(map(str.isupper, lurd)), len(lurd), lurd, num_nodes, num_expanded)
    return Solution("unsolvable" if status == EXHAUSTED else "unknown", num_nodes=num_nodes, num_expanded=num_expanded)


def distance_to_solved(state: SokobanState, *, max_nodes: int = MAX_NODES) -> int | None:
    """Return the fewest moves that solve a position, None where it is proved that nothing does.

    Raises:
        TsrGymError: `max_nodes` did not suffice.
    """
    solution = solve(state, optimal="moves", max_nodes=max_nodes)
    if solution.status == "unknown":
        raise TsrGymError(f"this position was not decided with {max_nodes} nodes: raise max_nodes")
    return solution.moves


def optimal_actions(state: SokobanState, *, max_nodes: int = MAX_NODES) -> tuple[str, ...]:
    """Return the actions that begin a solution with the fewest moves; none where it is solved or cannot be.

    Raises:
        TsrGymError: `max_nodes` did not suffice.
    """
    moves = distance_to_solved(state, max_nodes=max_nodes)
    if not moves:
        return ()
    after = {name: push(state, action) for action, name in enumerate(ACTIONS)}
    return tuple(
        name
        for name, child in after.items()
        if child is not state and distance_to_solved(child, max_nodes=max_nodes) == moves - 1
    )


def _root(state: SokobanState, size: int) -> tuple[Ints, Ints]:
    """Return room for nodes, the first being the position, and buckets in which it waits."""
    tables, boxes = level_tables(state.level), np.array(cells(state.boxes), np.int32)
    plan = np.empty((3, boxes.size + 1), np.int64)
    bound = match_boxes(boxes, state.player, tables.side, tables.distance, plan, np.empty_like(plan))
    nodes, buckets = np.empty((size, BOXES + boxes.size), np.int32), np.full(_MAX_COST + 1, NONE, np.int32)
    nodes[0, PARENT], nodes[0, COST], nodes[0, PLAYER], nodes[0, BOXES:] = NONE, 0, state.player, boxes
    nodes[0, NEXT], buckets[bound] = NONE, 0
    return nodes, buckets


def _hash_table(nodes: Ints, num_nodes: int) -> Ints:
    slots = np.full(1 << (2 * len(nodes) - 1).bit_length(), NONE, np.int32)
    fill_slots(nodes, num_nodes, slots)
    return slots


def _boards_to(nodes: Ints, node: int) -> list[int]:
    """Return the bitboards of the boxes from the first push to a node."""
    boards = []
    while nodes[node, PARENT] != NONE:
        boards.append(sum(1 << cell for cell in nodes[node, BOXES:].tolist()))
        node = nodes[node, PARENT]
    return boards[::-1]
