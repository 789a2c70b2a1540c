"""Deadlock rules that need no search, and PI-corral pruning, compiled.

Invariant: a rule reports a position only where it proves that no solution exists.

A corral is an area that the player cannot enter, together with the boxes around it. Where a box or a goal in it is not
settled, one of its boxes must be pushed. If every possible first push of its boxes leads inwards and can be made now,
then making it now costs no more pushes than making it later, so the search can postpone all other pushes.
"""

from functools import lru_cache

import numpy as np

from tsr_gym.errors import InvalidLevel
from tsr_gym_envs.compiled import Bytes, Flags, Ints, Longs, njit
from tsr_gym_envs.sokoban.rules import Level, SokobanState
from tsr_gym_envs.sokoban.tables import UNREACHABLE, flood, level_tables, match_boxes, nearest_goal

# What `broken_rule` returns: no rule holds, or one of `RULES`, or some boxes on goals will never move again.
ALIVE, DEAD_SQUARE, PLAYER_SIDE, FREEZE, MATCHING, PAIR, FROZEN = range(7)
RULES = {DEAD_SQUARE: "dead square", PLAYER_SIDE: "player side", FREEZE: "freeze", MATCHING: "matching", PAIR: "pair"}


def judge(state: SokobanState) -> tuple[int, SokobanState]:
    """Return `ALIVE` or a key of `RULES` that proves a position dead, and the position without frozen boxes.

    Boxes that hold each other on goals are turned into walls, and the smaller level is judged again.
    """
    # Every round turns at least one box into a wall, so the loop ends after at most as many rounds as boxes.
    while True:
        level, boxes, player = state
        if boxes == level.goals:
            return ALIVE, state
        if boxes.bit_count() != level.goals.bit_count():
            raise InvalidLevel(f"wanted as many boxes as goals, got {boxes.bit_count()} and {level.goals.bit_count()}")
        num_bytes = (level.height * level.width + 7) // 8
        packed = np.frombuffer(bytearray(boxes.to_bytes(num_bytes, "little")), np.uint8)
        rule: int = broken_rule(*level_tables(level), packed, player)
        if rule != FROZEN:
            return rule, state
        frozen = int.from_bytes(packed.tobytes(), "little")
        state = SokobanState(_with_walls(level, frozen), boxes ^ frozen, player)


@lru_cache(maxsize=1024)
def _with_walls(level: Level, frozen: int) -> Level:
    """Return a level with some of its goals turned into walls."""
    return Level(level.height, level.width, level.walls | frozen, level.goals ^ frozen, level.outside)


@njit
def broken_rule(
    walls: Flags,
    goals: Flags,
    step: Longs,
    side: Bytes,
    distance: Ints,
    dead: Flags,
    pairs: Bytes,
    packed: Bytes,
    player: int,
) -> int:
    """Return `ALIVE`, `FROZEN`, or the first key of `RULES` that proves a position dead.

    `packed` is the bitboard of the boxes as little-endian bytes, and becomes that of the frozen boxes where `FROZEN` is
    returned; `player` is the player's cell; all else is as in `LevelTables`.
    """
    boxes = unpacked(packed)
    # A box that reaches no goal from any side of the player is dead by its cell alone. If only the side where the
    # player stands is hopeless, the position is still dead: no push of another box is needed to prove it, because the
    # tables assume that there are no other boxes, which gives the player more ways, not fewer.
    wrong_side = False
    for box in boxes:
        if nearest_goal(distance, box, side[box, player]) >= UNREACHABLE:
            wrong_side = True
            best = UNREACHABLE
            for where in range(5):
                best = min(best, nearest_goal(distance, box, where))
            if best >= UNREACHABLE:
                return DEAD_SQUARE
    if wrong_side:
        return PLAYER_SIDE
    blocked = walls.copy()
    for box in boxes:
        blocked[box] = True
    frozen = freeze(boxes, blocked, step, dead)
    for box in boxes[:frozen]:
        if not goals[box]:
            return FREEZE
    if frozen:
        # The caller judges the smaller level again; the remaining rules would report the same deadlocks there.
        for box in boxes[frozen:]:
            packed[box // 8] ^= 1 << box % 8
        return FROZEN
    plan, scratch = np.empty((3, boxes.size + 1), np.int64), np.empty((3, boxes.size + 1), np.int64)
    if match_boxes(boxes, player, side, distance, plan, scratch) >= UNREACHABLE:
        return MATCHING
    if pairs.size and has_dead_pair(boxes, player, walls, goals, step, pairs):
        return PAIR
    return ALIVE


@njit
def unpacked(packed: Bytes) -> Ints:
    """Return the cells of a bitboard that is given as little-endian bytes."""
    boxes = np.empty(packed.size * 8, np.int32)
    num = 0
    for index in range(packed.size):
        byte = packed[index]
        for bit in range(8):
            if byte >> bit & 1:
                boxes[num] = index * 8 + bit
                num += 1
    return boxes[:num]


@njit
def is_held(box: int, blocked: Flags, step: Longs, dead: Flags) -> bool:
    """Return whether a box can be pushed along neither axis, or only to cells where it is dead at once."""
    # An axis is usable if both cells along it are free, because the player needs one and the box the other, and if at
    # least one of the two pushes leaves the box alive.
    for direction in (0, 2):
        ahead, behind = box + step[direction], box - step[direction]
        if not (blocked[ahead] or blocked[behind] or (dead[ahead, direction ^ 1] and dead[behind, direction])):
            return False
    return True


@njit
def freeze(boxes: Ints, blocked: Flags, step: Longs, dead: Flags) -> int:
    """Find the largest set of boxes that hold each other; return its size.

    None of them can be the first of them to move, so none ever moves in a solution.

    Args:
        boxes: Cells of the boxes; reordered so that the frozen ones come first.
        blocked: `[C]`, walls and boxes; boxes that are not frozen are taken off.
        step: `[4]`, the number that a direction adds to a cell.
        dead: `LevelTables.dead`.
    """
    # Assume that all boxes are held, and take off any box that can still move: it may free others, so the scan starts
    # again. What remains is a set in which every box waits for another one.
    num, index = boxes.size, 0
    while index < num:
        if is_held(boxes[index], blocked, step, dead):
            index += 1
        else:
            num -= 1
            blocked[boxes[index]] = False
            boxes[index], boxes[num] = boxes[num], boxes[index]
            index = 0
    return num


@njit
def has_dead_pair(boxes: Ints, player: int, walls: Flags, goals: Flags, step: Longs, pairs: Bytes) -> bool:
    """Return whether two of the boxes could not be brought to goals even without the other boxes."""
    # `reached` are the cells the player can walk to among all boxes; `seen` those with only two boxes on the board. The
    # second flood is needed only where other boxes shut the player off from both boxes of a pair.
    reached, seen = np.zeros(walls.size, np.int64), np.zeros(walls.size, np.int64)
    queue, blocked = np.empty(walls.size, np.int64), walls.copy()
    stamp = walls.size
    for box in boxes:
        blocked[box] = True
    flood(blocked, step, player, reached, stamp, queue)
    for box in boxes:
        blocked[box] = False
    for box in boxes:
        touched = touched_side(box, step, reached, 1)
        for other in boxes:
            direction = touched
            if box == other or (direction < 0 and touched_side(other, step, reached, 1) >= 0):
                continue
            if direction < 0:
                # Removing the other boxes can only open ways, so a pair that is dead without them is dead with them.
                stamp += walls.size
                blocked[box] = blocked[other] = True
                flood(blocked, step, player, seen, stamp, queue)
                blocked[box] = blocked[other] = False
                direction = touched_side(box, step, seen, stamp)
            if direction >= 0 and pairs[box, direction, other] == 0:
                return True
            if direction < 0 and touched_side(other, step, seen, stamp) < 0 and not (goals[box] and goals[other]):
                return True
    return False


@njit
def touched_side(box: int, step: Longs, seen: Longs, stamp: int) -> int:
    """Return the first direction from a box to a cell that the player has walked to, -1 if there is no such cell."""
    for direction in range(4):
        if seen[box + step[direction]] >= stamp:
            return direction
    return -1


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
    """Keep only the pushes of the PI-corral with the fewest pushes, or all without such a corral; return their number.

    The first `num_pushes` of `pushes` `[4K]` are the possible pushes as `4 * box + direction`, `boxes` `[K]` the cells
    of the boxes, `blocked` `[C]` walls and boxes; `seen` `[C]` is at least `stamp` where the player can walk to;
    `walls`, `goals`, `step` and `dead` are those of `LevelTables`. `pushes` is reordered, `queue` `[C]` overwritten.
    """
    role, tried = np.zeros(walls.size, np.uint8), np.zeros(walls.size, np.bool_)
    opened = np.zeros(boxes.size, np.bool_)
    # Every free cell that the player cannot reach lies in some corral. Cells that an earlier corral contains are
    # skipped. Pruning keeps an optimal solution, because some optimal solution begins inside each PI-corral.
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
    """Grow the smallest PI-corral around a cell; return its number of inward pushes, or `NO_CORRAL`.

    A cell or box outside is taken in while it leaves open which first pushes are possible. `start` is a free cell that
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
                    # A box that the player can touch is at the boundary: it belongs to the corral, cells beyond it do
                    # not.
                    if not blocked[cell] or touched_side(cell, step, seen, stamp) < 0:
                        queue[size] = cell
                        size += 1
            head += 1
        taken, inward = outward_cell(role, boxes, walls, step, dead, seen, stamp)
    if taken < -1:
        return NO_CORRAL
    # A corral whose boxes all stand on goals and whose goals are all filled need never be opened, so it prunes nothing.
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
    """Examine every first push of a corral's boxes.

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
            # The player must stand on a cell that is now unreachable: that cell becomes part of the corral.
            if seen[player] < stamp:
                return player, 0
            if role[target] == INSIDE:
                inward += 1
            elif seen[target] < stamp:
                return target, 0
            else:
                return -2, 0
    return -1, inward
