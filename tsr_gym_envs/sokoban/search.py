"""The compiled A* search over pushes; its memory is the caller's arrays, so that it can stop and go on.

A node is a row of `nodes`: its parent, its cost, the next node of its bucket, the player's cell, then the cells of the
K boxes in ascending order. Nodes wait in buckets by cost plus lower bound. The bound is consistent, so a node that
leaves its bucket has been reached at the least cost.
"""

import numpy as np

from tsr_gym_envs.compiled import Bytes, Flags, Ints, Longs, njit
from tsr_gym_envs.sokoban.assignment import match_boxes, rematch_box
from tsr_gym_envs.sokoban.corral import keep_corral_pushes
from tsr_gym_envs.sokoban.deadlock_rules import freeze, is_held
from tsr_gym_envs.sokoban.tables import UNREACHABLE, flood

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
    """Go on with a search; return `RUNNING`, `SOLVED`, `EXHAUSTED` (nothing solves it) or `FULL`.

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
            if not is_stuck(box, direction ^ 1, moved, goals, blocked, step, dead, pairs):
                stands, cost = origin, 1
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
    """Return whether a push made a dead pair or froze a box off the goals.

    `pushed` is the index of the pushed box and `direction` leads from it to the player; `boxes` `[K]` and `blocked`
    `[C]` (walls and boxes) are as the push left them; all else is as in `LevelTables`.
    """
    if pairs.size:
        for other in range(boxes.size):
            if other != pushed and pairs[boxes[pushed], direction, boxes[other]] == 0:
                return True
    if not is_held(boxes[pushed], blocked, step, dead):
        return False
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
    """Return where the hash table holds a node's position, or the empty slot where it would."""
    key = 0
    for value in nodes[node, PLAYER:]:
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
