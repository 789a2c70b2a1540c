"""Solutions with the fewest pushes or moves, and proofs that no solution exists: a compiled A* search over pushes.

A node is a row of `nodes`: its parent, its cost, the next node of its bucket, the player's cell, then the cells of the
K boxes in ascending order. Nodes wait in buckets by cost plus lower bound. The bound is consistent, so a node that
leaves its bucket has been reached at the least cost.
"""

from dataclasses import dataclass
from time import monotonic
from typing import Literal

import numpy as np

from tsr_gym.errors import ConfigError, TsrGymError
from tsr_gym_envs.compiled import Bytes, Flags, Ints, Longs, njit
from tsr_gym_envs.sokoban.deadlock import RULES, freeze, is_held, judge, keep_corral_pushes
from tsr_gym_envs.sokoban.levels import lurd_of_boards
from tsr_gym_envs.sokoban.rules import SokobanState, cells
from tsr_gym_envs.sokoban.score import distance_table
from tsr_gym_envs.sokoban.tables import UNREACHABLE, flood, level_tables, match_boxes, rematch_box

MAX_NODES = 2_000_000
_FIRST_NODES = 4096
# Nodes between two checks of the clock, about 20 ms.
_NODES_PER_SLICE = 10_000
# Solutions that cost at least this much are out of scope: their nodes share the last bucket.
_MAX_COST = 1 << 15

Optimal = Literal["pushes", "moves"]


@dataclass(frozen=True, slots=True)
class Solution:
    """The result of the solver.

    Attributes:
        status: ``"solved"``; ``"unsolvable"``, which is proved; or ``"unknown"``, because a limit was reached.
        pushes: Number of pushes in `lurd`, None unless solved.
        moves: Number of moves in `lurd`, pushes included, None unless solved.
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
    """Solve a position with the fewest pushes or moves, or prove that no solution exists.

    Args:
        state: The position.
        optimal: The number to minimise. With ``"pushes"``, the walks between the pushes are shortest, but another
            solution with as many pushes may need fewer moves.
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
    # Frozen boxes were turned into walls, so the search runs on the smaller level `rest`; they are added to the boards
    # of the solution afterwards.
    nodes, buckets = _root(rest, min(max_nodes, _FIRST_NODES))
    slots, counts = _hash_table(nodes, 1), np.array([1, 0, 0, NONE])
    tables, by_moves, status = level_tables(rest.level), optimal == "moves", RUNNING
    while status == RUNNING and (deadline is None or monotonic() < deadline):
        status = run_search(*tables, nodes, slots, buckets, counts, by_moves, _NODES_PER_SLICE)
        # Arrays grow by doubling; the hash table stores node numbers, so it is built anew.
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
    """Return the fewest moves that solve a position, None if it is proved unsolvable.

    Raises:
        TsrGymError: `max_nodes` did not suffice.
    """
    solution = solve(state, optimal="moves", max_nodes=max_nodes)
    if solution.status == "unknown":
        raise TsrGymError(f"this position was not decided with {max_nodes} nodes: raise max_nodes")
    return solution.moves


def _root(state: SokobanState, size: int) -> tuple[Ints, Ints]:
    """Return an array for nodes whose first is the position, and the buckets with that node."""
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


PARENT, COST, NEXT, PLAYER, BOXES = range(5)
NONE = -1
# Cost of a node whose position was reached again at a smaller cost.
STALE = -1
NUM_NODES, LOWEST, EXPANDED, ANSWER = range(4)
RUNNING, SOLVED, EXHAUSTED, FULL = range(4)


@njit
def run_search(
    walls: Flags,
    goals: Flags,
    step: Longs,
    side: Bytes,
    distance: Ints,
    dead: Flags,
    pairs: Bytes,
    nodes: Ints,
    slots: Ints,
    buckets: Ints,
    counts: Longs,
    by_moves: bool,
    budget: int,
) -> int:
    """Continue a search; return `RUNNING`, `SOLVED`, `EXHAUSTED` (no solution exists) or `FULL`.

    `walls` to `pairs` are those of `LevelTables`. `nodes` is `[N, 4 + K]`; `slots` is a hash table of node numbers, its
    size a power of two, `NONE` where empty; `buckets` holds the first node by cost plus bound, `NONE` where empty, in
    the last one all that would come later; `counts` `[4]` are the number of nodes, the lowest bucket that may hold one,
    the nodes expanded and the solved node. With `by_moves`, costs are moves, and the player's cell is the exact one;
    otherwise costs are pushes, and it is the first cell of the area in reach. At most `budget` nodes leave
    their buckets.
    """
    num = nodes.shape[1] - BOXES
    blocked = walls.copy()
    seen, queue, stamp = np.zeros(walls.size, np.int64), np.empty(walls.size, np.int64), 0
    pushes = np.empty(4 * num, np.int32)
    plan, scratch = np.empty((3, num + 1), np.int64), np.empty((3, num + 1), np.int64)
    for _ in range(budget):
        # The bound is consistent, so costs plus bounds never decrease along a path and the lowest bucket only grows.
        while counts[LOWEST] < buckets.size and buckets[counts[LOWEST]] == NONE:
            counts[LOWEST] += 1
        if counts[LOWEST] == buckets.size:
            return EXHAUSTED
        if counts[NUM_NODES] + 4 * num > nodes.shape[0] or counts[LOWEST] == buckets.size - 1:
            return FULL
        node = buckets[counts[LOWEST]]
        buckets[counts[LOWEST]] = nodes[node, NEXT]
        if nodes[node, COST] == STALE:
            continue
        # The node's lower bound is 0: every box is on a goal.
        if nodes[node, COST] == counts[LOWEST]:
            counts[ANSWER] = node
            return SOLVED
        counts[EXPANDED] += 1
        player, boxes = int(nodes[node, PLAYER]), nodes[node, BOXES:]
        for box in boxes:
            blocked[box] = True
        stamp += walls.size
        flood(blocked, step, player, seen, stamp, queue)
        num_pushes = list_pushes(pushes, boxes, blocked, step, dead, seen, stamp)
        # Corral pruning keeps the fewest pushes but not the fewest moves: it makes the player walk to the corral first.
        if not by_moves:
            num_pushes = keep_corral_pushes(
                pushes, num_pushes, boxes, blocked, walls, goals, step, dead, seen, stamp, queue
            )
        match_boxes(boxes, player, side, distance, plan, scratch)
        for index in range(num_pushes):
            box, direction = pushes[index] // 4, pushes[index] % 4
            origin, target = int(boxes[box]), boxes[box] + step[direction]
            moved = boxes.copy()
            moved[box] = target
            blocked[origin], blocked[target] = False, True
            # A child is written behind the last node, and counted only if its position is new or cheaper than before.
            if not is_stuck(box, direction ^ 1, moved, goals, blocked, step, dead, pairs):
                stands, cost = origin, 1
                # By pushes, all cells in reach of the player are one position, named by the lowest cell of the area.
                if by_moves:
                    cost += seen[origin - step[direction]] - stamp
                else:
                    stamp += walls.size
                    for place in range(flood(blocked, step, origin, seen, stamp, queue)):
                        stands = min(stands, queue[place])
                child = counts[NUM_NODES]
                write_child(nodes, child, node, cost, stands, moved)
                slot = find_slot(nodes, slots, child)
                if slots[slot] == NONE or nodes[slots[slot], COST] > nodes[child, COST]:
                    bound = rematch_box(box, moved, origin, side, distance, plan.copy(), scratch)
                    if bound < UNREACHABLE:
                        add_node(nodes, slots, slot, buckets, counts, bound)
            blocked[origin], blocked[target] = True, False
        for box in boxes:
            blocked[box] = False
    return RUNNING


@njit
def list_pushes(pushes: Ints, boxes: Ints, blocked: Flags, step: Longs, dead: Flags, seen: Longs, stamp: int) -> int:
    """Write every push that does not kill its box at once as `4 * box + direction`; return how many."""
    num = 0
    for box in range(boxes.size):
        for direction in range(4):
            player, target = boxes[box] - step[direction], boxes[box] + step[direction]
            if seen[player] >= stamp and not blocked[target] and not dead[target, direction ^ 1]:
                pushes[num] = 4 * box + direction
                num += 1
    return num


@njit
def is_stuck(
    pushed: int, direction: int, boxes: Ints, goals: Flags, blocked: Flags, step: Longs, dead: Flags, pairs: Bytes
) -> bool:
    """Return whether a push made a dead pair or froze a box that is not on a goal.

    `pushed` is the index of the pushed box and `direction` leads from it to the player; `boxes` `[K]` and `blocked`
    `[C]` (walls and boxes) are as the push left them; all else is as in `LevelTables`.
    """
    if pairs.size:
        for other in range(boxes.size):
            if other != pushed and pairs[boxes[pushed], direction, boxes[other]] == 0:
                return True
    # Before the push the position was not frozen, so a new frozen set must contain the pushed box.
    if not is_held(boxes[pushed], blocked, step, dead):
        return False
    # `freeze` takes free boxes off `blocked`, so they are put back afterwards.
    order = boxes.copy()
    frozen = freeze(order, blocked, step, dead)
    for box in boxes:
        blocked[box] = True
    stuck = False
    for box in order[:frozen]:
        stuck |= not goals[box]
    return stuck


@njit
def write_child(nodes: Ints, child: int, node: int, cost: int, player: int, boxes: Ints) -> None:
    """Write a node's row, its boxes sorted; the node exists only when `add_node` has counted it."""
    row = nodes[child]
    row[PARENT], row[COST], row[PLAYER] = node, nodes[node, COST] + cost, player
    for index in range(boxes.size):
        place = BOXES + index
        while place > BOXES and row[place - 1] > boxes[index]:
            row[place] = row[place - 1]
            place -= 1
        row[place] = boxes[index]


@njit
def find_slot(nodes: Ints, slots: Ints, node: int) -> int:
    """Return the slot of the hash table with a node's position, or the empty slot for it."""
    key = 0
    for value in nodes[node, PLAYER:]:
        # A multiplicative hash with a shift: the low bits, which select the slot, then depend on all bits of the key.
        key = (key ^ value) * 0x9E3779B97F4A7C1
        key ^= key >> 29
    mask = slots.size - 1
    slot = key & mask
    while slots[slot] != NONE:
        same = True
        for column in range(PLAYER, nodes.shape[1]):
            if nodes[slots[slot], column] != nodes[node, column]:
                same = False
                break
        if same:
            break
        slot = (slot + 1) & mask
    return slot


@njit
def add_node(nodes: Ints, slots: Ints, slot: int, buckets: Ints, counts: Longs, bound: int) -> None:
    """Count the node whose row was written last, and put it into the hash table and its bucket."""
    node = counts[NUM_NODES]
    if slots[slot] != NONE:
        nodes[slots[slot], COST] = STALE
    slots[slot] = node
    # An older, more expensive node of the same position stays in its bucket and is skipped there by its mark.
    bucket = min(nodes[node, COST] + bound, buckets.size - 1)
    nodes[node, NEXT] = buckets[bucket]
    buckets[bucket] = node
    counts[NUM_NODES] += 1


@njit
def fill_slots(nodes: Ints, num_nodes: int, slots: Ints) -> None:
    """Enter all nodes into an empty hash table."""
    for node in range(num_nodes):
        if nodes[node, COST] != STALE:
            slots[find_slot(nodes, slots, node)] = node


@dataclass(frozen=True, slots=True)
class Deadlock:
    """Why a position cannot be solved.

    Attributes:
        rule: The rule that proves it. ``"dead square"``: a box reaches no goal from its cell; ``"player side"``: not
            from the side where the player is; ``"freeze"``: boxes block each other, not all on goals; ``"matching"``:
            boxes cannot be matched to different goals; ``"pair"``: two boxes could not be solved even alone;
            ``"search"``: all successors were searched; ``"table"``: the position is not in the table of solvable
            positions.
        proved: Whether it is a proof; always True, because a guess is not reported as a deadlock.
    """

    rule: str
    proved: bool = True


_BY_RULE = {rule: Deadlock(name) for rule, name in RULES.items()}


def find_deadlock(state: SokobanState, *, search_nodes: int = 0) -> Deadlock | None:
    """Return why a position cannot be solved, None without a proof.

    The rules take microseconds once the tables of the level exist (`level_tables`, kept for the last levels). Boxes
    that are frozen on goals become walls, and the rules are applied again.

    Args:
        state: The position.
        search_nodes: Nodes of the search that follows if no rule applies; after it, the table of all positions is used
            if the board is small enough.
    """
    rule, _ = judge(state)
    if rule or not search_nodes:
        return _BY_RULE.get(rule)
    status = solve(state, max_nodes=search_nodes).status
    if status == "unsolvable":
        return Deadlock("search")
    table = distance_table(state.level) if status == "unknown" else None
    return Deadlock("table") if table is not None and (state.boxes, state.player) not in table else None
