"""The deadlock rules that need no search, compiled.

Invariant: a rule holds only where it proves that nothing solves the position.
"""

from functools import lru_cache

import numpy as np

from tsr_gym.errors import InvalidLevel
from tsr_gym_envs.compiled import Bytes, Flags, Ints, Longs, njit
from tsr_gym_envs.sokoban.assignment import match_boxes
from tsr_gym_envs.sokoban.rules import Level, SokobanState
from tsr_gym_envs.sokoban.tables import UNREACHABLE, flood, level_tables, nearest_goal

# What `broken_rule` returns: no rule holds, or one of `RULES`, or some boxes on goals will never move again.
ALIVE, DEAD_SQUARE, PLAYER_SIDE, FREEZE, MATCHING, PAIR, FROZEN = range(7)
RULES = {
    DEAD_SQUARE: "dead square",
    PLAYER_SIDE: "player side",
    FREEZE: "freeze",
    MATCHING: "matching",
    PAIR: "pair",
}


def judge(state: SokobanState) -> tuple[int, SokobanState]:
    """Return `ALIVE` or a key of `RULES` that proves a position dead, and the position without frozen boxes.

    Boxes that hold each other on goals are turned into walls, and the smaller level is judged again.
    """
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
        # All that the other rules could find here, they find in the smaller level.
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
        step: What a direction adds to a cell's number.
        dead: `LevelTables.dead`.
    """
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
    """Return whether two of the boxes could not be brought to goals even if they were alone."""
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
                # Other boxes shut the player off from these two; without them there may be a way to one.
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
    """Return the first direction from a box to a cell that the player has walked to, -1 where there is none."""
    for direction in range(4):
        if seen[box + step[direction]] >= stamp:
            return direction
    return -1
