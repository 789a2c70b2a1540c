"""The depth-first search by which gym-sokoban and RAGEN pull boxes away from their goals, compiled.

It draws no random numbers, so only its outcome must be that of the originals: the first position with the highest
score. The score is the number of pulls on the search path (gym-sokoban) or of changes of the pulled box (RAGEN), times
the boxes' total distance from their goals, and counts only while every goal is empty.
"""

import numpy as np

from tsr_gym_envs.compiled import Flags, Longs, njit

MAX_EXPLORED = 300_000


@njit
def play_backwards(pieces: Longs, floor: Flags, step: Longs, width: int, ragen: bool, search_depth: int) -> int:
    """Pull the boxes from their goals to the best position that is found; return its score, 0 where there is none.

    Args:
        pieces: `[K + 1]`, cells of K boxes on their goals, then the player's cell; becomes the best position.
        floor: `[C]`.
        step: What a direction adds to a cell's number.
        width: Columns of the room.
        ragen: Whether only a pull of another box than before counts, and the player never walks away from a box. The
            originals try up, down, left, right, pulling whatever is behind; gym-sokoban then tries the same walking,
            which differs only where a box is left behind.
        search_depth: The original's `ttl`: positions farther away than this minus two actions are not looked at.
    """
    num, size = pieces.size - 1, floor.size
    targets, far, names = pieces[:num].copy(), distances(pieces, size, width), random_names(3 * size)
    explored = np.zeros(table_size(floor, num), np.int64)
    # Per position on the path: the cells of the boxes and of the player, which boxes have been pulled, the position's
    # name, the next action to try, the box pulled last, the pulls so far, and the boxes' distance from their goals.
    path, pulled = np.empty((search_depth, num + 1), np.int64), np.zeros((search_depth, num), np.int64)
    name, action, last = np.zeros(search_depth, np.int64), np.zeros(search_depth, np.int64), np.full(search_depth, -1)
    pulls, spread = np.zeros(search_depth, np.int64), np.zeros(search_depth, np.int64)
    for index in range(num + 1):
        path[0, index] = pieces[index]
    enter(explored, name[0])
    depth, best, num_explored = 0, 0, 1
    while depth >= 0 and num_explored < MAX_EXPLORED:
        if action[depth] == (4 if ragen else 8) or depth + 2 >= search_depth:
            depth -= 1
            continue
        direction, walking = action[depth] % 4, action[depth] >= 4
        action[depth] += 1
        here, child = path[depth], depth + 1
        player, target = here[num], here[num] + step[direction]
        if not floor[target] or box_on(here, target) >= 0:
            continue
        box = box_on(here, player - step[direction])
        if walking and box < 0:
            continue
        name[child] = name[depth] ^ names[player] ^ names[target]
        if box >= 0 and not walking:
            name[child] ^= names[size * (1 + pulled[depth, box]) + here[box]] ^ names[2 * size + player]
        if not enter(explored, name[child]):
            continue
        num_explored += 1
        action[child], last[child], pulls[child], spread[child] = 0, last[depth], pulls[depth], spread[depth]
        for index in range(num):
            path[child, index], pulled[child, index] = here[index], pulled[depth, index]
        path[child, num] = target
        if box >= 0 and not walking:
            path[child, box], pulled[child, box], last[child] = player, 1, box
            pulls[child] += 0 if ragen and last[depth] == box else 1
            spread[child] += far[box, player] - far[box, here[box]]
        depth = child
        if pulls[depth] * spread[depth] > best and are_empty(targets, path[depth]):
            best = pulls[depth] * spread[depth]
            for index in range(num + 1):
                pieces[index] = path[depth, index]
    return best


@njit
def box_on(pieces: Longs, cell: int) -> int:
    """Return which box stands on a cell, -1 where none does."""
    for box in range(pieces.size - 1):
        if pieces[box] == cell:
            return box
    return -1


@njit
def are_empty(targets: Longs, pieces: Longs) -> bool:
    """Return whether neither a box nor the player stands on a goal."""
    for target in targets:
        for piece in pieces:
            if piece == target:
                return False
    return True


@njit
def distances(pieces: Longs, size: int, width: int) -> Longs:
    """Return `[K, C]`: the Manhattan distance of every cell from every box."""
    far = np.empty((pieces.size - 1, size), np.int64)
    for box in range(pieces.size - 1):
        for cell in range(size):
            down, right = cell // width - pieces[box] // width, cell % width - pieces[box] % width
            far[box, cell] = abs(down) + abs(right)
    return far


@njit
def random_names(num: int) -> Longs:
    """Return random names (SplitMix64); a position is named by the exclusive or of its parts' names.

    `enter` looks at 63 of their bits, so two of 300,000 positions are taken for one with probability 5e-9.
    """
    names = np.empty(num, np.int64)
    for index in range(num):
        mixed = np.uint64(index + 1) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ mixed >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        names[index] = np.int64(mixed ^ mixed >> np.uint64(31))
    return names


@njit
def table_size(floor: Flags, num_boxes: int) -> int:
    """Return a power of two, at least twice the positions that can be explored."""
    free, positions = 0, 1.0
    for cell in floor:
        free += cell
    for box in range(num_boxes):
        positions *= 2.0 * (free - box) / (box + 1)
    size = 1024
    while size < 2.0 * min(MAX_EXPLORED, positions * free):
        size *= 2
    return size


@njit
def enter(explored: Longs, name: int) -> bool:
    """Add a name to a hash table of names, 0 where empty; return whether it is new."""
    name |= 1
    mask = explored.size - 1
    slot = (name >> 1) & mask
    while explored[slot] != 0:
        if explored[slot] == name:
            return False
        slot = (slot + 1) & mask
    explored[slot] = name
    return True
