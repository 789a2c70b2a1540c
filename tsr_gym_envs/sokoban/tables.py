"""Tables of a level, computed once: player sides, distances of lone boxes, solvable pairs, matchings of boxes to goals.

Cells are numbered ``row * width + column`` and directions as `rules.ACTIONS`, so that ``direction ^ 1`` is the opposite
direction. Every table relaxes the game by removing boxes, so a box that a table calls dead is proved dead.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tsr_gym.errors import InvalidLevel
from tsr_gym_envs.compiled import Bytes, Flags, Ints, Longs, njit
from tsr_gym_envs.sokoban.rules import Level, cells

# The side of a player that can reach no side of a box.
APART = 4
UNREACHABLE = 1 << 20
# With more floor cells the table of pairs costs more time than it saves.
MAX_PAIR_CELLS = 400


class LevelTables(NamedTuple):
    """Tables of one level (C cells, G goals).

    Attributes:
        walls: `[C]`, True on walls.
        goals: `[C]`, True on goals.
        step: `[4]`, the number that a direction adds to a cell.
        side: `[C, C]`, by box and player, with no other box on the board: the first direction from the box whose cell
            the player can walk to, `APART` if no such cell exists. Equal sides are the same position of a lone box.
        distance: `[C, 5, G]`, by box and side: the fewest pushes of a lone box to a goal, or `UNREACHABLE`.
        dead: `[C, 4]`, by box and direction of the player next to it: whether the lone box reaches no goal.
        pairs: `[C, 4, C]`, by box, direction of the player next to it, and other box: 0 where these two alone cannot
            reach two goals. Empty where the level has one box or more than `MAX_PAIR_CELLS` floor cells.
    """

    walls: Flags
    goals: Flags
    step: Longs
    side: Bytes
    distance: Ints
    dead: Flags
    pairs: Bytes


@lru_cache(maxsize=128)
def level_tables(level: Level) -> LevelTables:
    """Return the tables of a level, 60 kB for a Boxoban level, 1 MB for 20x20 cells.

    Raises:
        InvalidLevel: The rim has a floor cell, so that a walk could leave the board.
    """
    walls, goals = board_flags(level, level.walls), board_flags(level, level.goals)
    rows = walls.reshape(level.height, level.width)
    if not (rows[[0, -1]].all() and rows[:, [0, -1]].all()):
        raise InvalidLevel("wanted walls along the whole rim of the board, got a gap")
    targets = np.flatnonzero(goals)
    step = np.array(level.offsets, dtype=np.int64)
    side = player_sides(walls, step)
    distance = lone_distances(walls, step, side, targets)
    floor = level.height * level.width - level.walls.bit_count()
    # The table of pairs grows with the square of the floor, and a level with one box has no pairs.
    paired = targets.size > 1 and floor <= MAX_PAIR_CELLS
    pairs = live_pairs(walls, step, targets, floor) if paired else np.zeros((0, 4, 0), np.uint8)
    return LevelTables(walls, goals, step, side, distance, dead_sides(walls, step, side, distance), pairs)


def board_flags(level: Level, board: int) -> Flags:
    """Return a bitboard as one flag per cell."""
    flags = np.zeros(level.height * level.width, np.bool_)
    flags[cells(board)] = True
    return flags


@njit
def flood(blocked: Flags, step: Longs, start: int, seen: Longs, stamp: int, queue: Longs) -> int:
    """Flood the free cells from a start; return the number of cells reached.

    Args:
        blocked: `[C]`, cells that cannot be entered.
        step: `[4]`, the number that a direction adds to a cell.
        start: Where the walk begins.
        seen: `[C]`, becomes `stamp` plus the steps walked on every cell that is reached; smaller on all others.
        stamp: Greater than anything in `seen`.
        queue: `[C]`, becomes the reached cells, nearest first.
    """
    # Stamps make clearing `seen` unnecessary: each flood uses a stamp greater than all earlier stamps plus distances.
    seen[start] = stamp
    queue[0] = start
    head, size = 0, 1
    while head < size:
        here = queue[head]
        head += 1
        for direction in range(4):
            cell = here + step[direction]
            if not blocked[cell] and seen[cell] < stamp:
                seen[cell] = seen[here] + 1
                queue[size] = cell
                size += 1
    return size


@njit
def player_sides(walls: Flags, step: Longs) -> Bytes:
    """Return `LevelTables.side`."""
    size = walls.size
    # A lone box cuts the floor into at most four areas, one for each side; cells in the same area are equivalent for
    # the player, which divides the states of a lone box by the size of an area.
    side = np.full((size, size), APART, np.uint8)
    blocked = walls.copy()
    seen, queue, stamp = np.zeros(size, np.int64), np.empty(size, np.int64), 0
    for box in range(size):
        if walls[box]:
            continue
        blocked[box] = True
        for direction in range(4):
            start = box + step[direction]
            if not walls[start] and side[box, start] == APART:
                stamp += size
                for index in range(flood(blocked, step, start, seen, stamp, queue)):
                    side[box, queue[index]] = direction
        blocked[box] = False
    return side


@njit
def lone_distances(walls: Flags, step: Longs, side: Bytes, targets: Longs) -> Ints:
    """Return `LevelTables.distance`, by pulling a lone box away from every goal; `targets` are the goals' cells."""
    # Breadth-first backwards over (box, player side). A pull moves box and player one cell away from the goal; the
    # player must then stand on a side that is the same side as the position's, or it could not have made the push.
    distance = np.full((walls.size, 5, targets.size), UNREACHABLE, np.int32)
    queue = np.empty(walls.size * 5, np.int64)
    for goal in range(targets.size):
        for where in range(5):
            distance[targets[goal], where, goal] = 0
            queue[where] = targets[goal] * 5 + where
        head, size = 0, 5
        while head < size:
            box, where = queue[head] // 5, queue[head] % 5
            head += 1
            for direction in range(4):
                origin = box - step[direction]
                if walls[origin] or side[box, origin] != where or walls[origin - step[direction]]:
                    continue
                before = side[origin, origin - step[direction]]
                if distance[origin, before, goal] == UNREACHABLE:
                    distance[origin, before, goal] = distance[box, where, goal] + 1
                    queue[size] = origin * 5 + before
                    size += 1
    return distance


@njit
def dead_sides(walls: Flags, step: Longs, side: Bytes, distance: Ints) -> Flags:
    """Return `LevelTables.dead`."""
    dead = np.ones((walls.size, 4), np.bool_)
    for box in range(walls.size):
        for direction in range(4):
            if not walls[box] and not walls[box + step[direction]]:
                dead[box, direction] = nearest_goal(distance, box, side[box, box + step[direction]]) >= UNREACHABLE
    return dead


@njit
def nearest_goal(distance: Ints, box: int, where: int) -> int:
    """Return the fewest pushes of a lone box to any goal, `UNREACHABLE` if it reaches none."""
    least = UNREACHABLE
    for goal in range(distance.shape[2]):
        least = min(least, distance[box, where, goal])
    return least


@njit
def live_pairs(walls: Flags, step: Longs, targets: Longs, floor: int) -> Bytes:
    """Return `LevelTables.pairs`, by pulling two lone boxes away from every two goals.

    A position is a box, the direction of the player next to it, and the other box. It is 1 while it waits, and 2 when
    the player has walked on from it to every side of both boxes, and pulled.
    """
    # Pulls are followed backwards from every solved pair, so a position that stays 0 cannot be solved. One flood covers
    # all sides of both boxes, which settles up to eight positions at once.
    size = walls.size
    pairs = np.zeros((size, 4, size), np.uint8)
    blocked = walls.copy()
    seen, queue, stamp = np.zeros(size, np.int64), np.empty(size, np.int64), 0
    waiting = np.empty(4 * floor**2, np.int64)
    top = 0
    for box in targets:
        for other in targets:
            for direction in range(4):
                player = box + step[direction]
                if box != other and player != other and not walls[player]:
                    pairs[box, direction, other] = 1
                    waiting[top] = (box * 4 + direction) * size + other
                    top += 1
    while top:
        top -= 1
        first, direction, second = waiting[top] // size // 4, waiting[top] // size % 4, waiting[top] % size
        if pairs[first, direction, second] == 2:
            continue
        blocked[first] = blocked[second] = True
        stamp += size
        flood(blocked, step, first + step[direction], seen, stamp, queue)
        for box, other in ((first, second), (second, first)):
            for direction in range(4):
                player = box + step[direction]
                if seen[player] < stamp:
                    continue
                pairs[box, direction, other] = 2
                if not blocked[player + step[direction]] and pairs[player, direction, other] == 0:
                    pairs[player, direction, other] = 1
                    waiting[top] = (player * 4 + direction) * size + other
                    top += 1
        blocked[first] = blocked[second] = False
    return pairs


@njit
def match_box(box: int, boxes: Ints, player: int, side: Bytes, distance: Ints, plan: Longs, scratch: Longs) -> None:
    """Assign one more box to a goal at the least cost, reassigning others (one row of the Hungarian method).

    Args:
        box: Index into `boxes`; it has no goal yet and its price is 0.
        boxes: `[K]`, cells of the boxes.
        player: The player's cell.
        side: `LevelTables.side`.
        distance: `LevelTables.distance`.
        plan: `[3, K + 1]`, changed in place.
        scratch: `[3, K + 1]`, overwritten.
    """
    # The shortest augmenting path from the new box to a free goal, in reduced costs (cost - box price - goal price).
    # Column `num` is a virtual goal held by the new box; `way` leads back along the path, `used` marks goals on it.
    num = boxes.size
    box_price, goal_price, match = plan[0], plan[1], plan[2]
    slack, way, used = scratch[0], scratch[1], scratch[2]
    slack[:] = 2**62
    used[:] = 0
    match[num] = box
    goal = num
    while match[goal] != num:
        used[goal] = 1
        here, least, after = match[goal], 2**62, num
        costs = distance[boxes[here], side[boxes[here], player]]
        for other in range(num):
            if not used[other]:
                reduced = costs[other] - box_price[here] - goal_price[other]
                if reduced < slack[other]:
                    slack[other], way[other] = reduced, goal
                if slack[other] < least:
                    least, after = slack[other], other
        for other in range(num + 1):
            if used[other]:
                box_price[match[other]] += least
                goal_price[other] -= least
            else:
                slack[other] -= least
        goal = after
    # Along the path, every box moves on to the next goal, which frees a goal for the new box.
    while goal != num:
        match[goal] = match[way[goal]]
        goal = way[goal]


@njit
def match_boxes(boxes: Ints, player: int, side: Bytes, distance: Ints, plan: Longs, scratch: Longs) -> int:
    """Plan all boxes; return the pushes, `UNREACHABLE` or more if boxes and goals cannot be matched."""
    plan[:2] = 0
    plan[2] = boxes.size
    for box in range(boxes.size):
        match_box(box, boxes, player, side, distance, plan, scratch)
    return planned_pushes(boxes, player, side, distance, plan)


@njit
def rematch_box(box: int, boxes: Ints, player: int, side: Bytes, distance: Ints, plan: Longs, scratch: Longs) -> int:
    """Repair a plan after one box moved; return its pushes, as `match_boxes`."""
    # Prices stay feasible if the moved box starts again at price 0, so a single augmentation restores the optimum.
    plan[0, box] = 0
    for goal in range(boxes.size):
        if plan[2, goal] == box:
            plan[2, goal] = boxes.size
    match_box(box, boxes, player, side, distance, plan, scratch)
    return planned_pushes(boxes, player, side, distance, plan)


@njit
def planned_pushes(boxes: Ints, player: int, side: Bytes, distance: Ints, plan: Longs) -> int:
    """Return the pushes that a plan needs."""
    pushes = 0
    for goal in range(boxes.size):
        cell = boxes[plan[2, goal]]
        pushes += distance[cell, side[cell, player], goal]
    return pushes
