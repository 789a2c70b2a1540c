"""PI-corral pruning, compiled: areas that the player must open, and can open in every possible way right now.

A corral is an area that the player cannot enter, with the boxes around it. Where something in it is left to do, one of
its boxes must be pushed. If every first push of one of them that is possible at all leads inwards and can be made at
once, then making it at once costs no push more than making it later: all other pushes can be left for later.
"""

import numpy as np

from tsr_gym_envs.compiled import Bytes, Flags, Ints, Longs, njit
from tsr_gym_envs.sokoban.deadlock_rules import touched_side

# What a cell is to a corral.
INSIDE, BOX = 1, 2
NO_CORRAL = -1


@njit
def keep_corral_pushes(
    pushes: Ints,
    num_pushes: int,
    boxes: Ints,
    blocked: Flags,
    walls: Flags,
    goals: Flags,
    step: Longs,
    dead: Flags,
    seen: Longs,
    stamp: int,
    queue: Longs,
) -> int:
    """Keep the pushes of the PI-corral that has the fewest, or all where there is none; return how many were kept.

    The first `num_pushes` of `pushes` `[4K]` are the possible pushes as `4 * box + direction`, `boxes` `[K]` the cells
    of the boxes, `blocked` `[C]` walls and boxes; `seen` `[C]` is at least `stamp` where the player can walk to;
    `walls`, `goals`, `step` and `dead` are those of `LevelTables`. `pushes` is reordered, `queue` `[C]` overwritten.
    """
    role, tried = np.zeros(walls.size, np.uint8), np.zeros(walls.size, np.bool_)
    opened = np.zeros(boxes.size, np.bool_)
    fewest = num_pushes
    for start in range(walls.size):
        if blocked[start] or tried[start] or seen[start] >= stamp:
            continue
        role[:] = 0
        inward = grow_corral(start, role, boxes, blocked, walls, goals, step, dead, seen, stamp, queue)
        for cell in range(walls.size):
            tried[cell] |= role[cell] == INSIDE
        if inward != NO_CORRAL and inward < fewest:
            fewest = inward
            for index in range(boxes.size):
                opened[index] = role[boxes[index]] == BOX
    if fewest == num_pushes:
        return num_pushes
    kept = 0
    for index in range(num_pushes):
        if opened[pushes[index] // 4]:
            pushes[kept] = pushes[index]
            kept += 1
    return kept


@njit
def grow_corral(
    start: int,
    role: Bytes,
    boxes: Ints,
    blocked: Flags,
    walls: Flags,
    goals: Flags,
    step: Longs,
    dead: Flags,
    seen: Longs,
    stamp: int,
    queue: Longs,
) -> int:
    """Find the smallest PI-corral around a cell; return its number of inward pushes, or `NO_CORRAL`.

    Cells and boxes outside that leave open which first pushes are possible are taken in. `start` is a free cell that
    the player cannot walk to; `role` `[C]`, zeros, becomes `INSIDE` or `BOX` on the corral's cells; all else is as in
    `keep_corral_pushes`.
    """
    taken = start
    head = size = inward = 0
    while taken >= 0:
        role[taken] = BOX if blocked[taken] else INSIDE
        if not blocked[taken] or touched_side(taken, step, seen, stamp) < 0:
            queue[size] = taken
            size += 1
        while head < size:
            for direction in range(4):
                cell = queue[head] + step[direction]
                if not walls[cell] and role[cell] == 0:
                    role[cell] = BOX if blocked[cell] else INSIDE
                    # A box at the boundary is part of the corral, what lies beyond it is not.
                    if not blocked[cell] or touched_side(cell, step, seen, stamp) < 0:
                        queue[size] = cell
                        size += 1
            head += 1
        taken, inward = outward_cell(role, boxes, walls, step, dead, seen, stamp)
    if taken < -1:
        return NO_CORRAL
    for box in boxes:
        if role[box] == BOX and not goals[box]:
            return inward
    for cell in range(walls.size):
        if role[cell] == INSIDE and goals[cell]:
            return inward
    return NO_CORRAL


@njit
def outward_cell(
    role: Bytes, boxes: Ints, walls: Flags, step: Longs, dead: Flags, seen: Longs, stamp: int
) -> tuple[int, int]:
    """Look at every first push of a corral's boxes.

    Returns:
        A cell outside that the corral must take in, -1 where all pushes lead inwards and can be made at once, -2 where
        one leads out; and the number of pushes inwards.
    """
    inward = 0
    for box in boxes:
        if role[box] != BOX:
            continue
        for direction in range(4):
            player, target = box - step[direction], box + step[direction]
            if walls[player] or walls[target] or role[player] or role[target] == BOX or dead[target, direction ^ 1]:
                continue
            if seen[player] < stamp:
                return player, 0
            if role[target] == INSIDE:
                inward += 1
            elif seen[target] < stamp:
                return target, 0
            else:
                return -2, 0
    return -1, inward
