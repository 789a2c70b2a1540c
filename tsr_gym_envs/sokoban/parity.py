"""Rooms exactly as gym-sokoban 0.0.6 and RAGEN draw them, seed for seed.

Both carve a random floor, put boxes on their goals, and pull them away in a depth-first search. The random numbers are
those of Python's `random` and of the legacy `np.random`, both seeded with the seed, drawn in the originals' order. The
search draws no random numbers, so only its result must equal the originals': the first position with the highest score.
The score is the number of pulls on the search path (gym-sokoban) or of changes of the pulled box (RAGEN), times the
boxes' total distance from their goals, and counts only while every goal is empty.
"""

from hashlib import blake2b

import numpy as np

from tsr_gym.errors import ConfigError, GenerationFailed
from tsr_gym_envs.compiled import (
    Bytes,
    Flags,
    Longs,
    njit,
    numpy_below,
    python_below,
    python_random,
    python_twister,
    seed_by_number,
)
from tsr_gym_envs.sokoban.rules import Level, SokobanState

SEARCH_DEPTH = 300
MAX_DRAWS = 1000
# Bits of a cell of a drawn board.
FLOOR, GOAL, BOX, PLAYER = 1, 2, 4, 8


def gym_sokoban_room(seed: int, *, dim: tuple[int, int] = (10, 10), num_boxes: int = 4) -> SokobanState:
    """Return the room that gym-sokoban draws after ``random.seed(seed); np.random.seed(seed)``.

    Where the original finds no room, it draws again from the current position of its random streams; so does this.

    Raises:
        ConfigError: The seed is not one of ``np.random.seed``.
        GenerationFailed: No room was found in `MAX_DRAWS` draws.
    """
    python, numpy = _twisters(seed)
    for _ in range(MAX_DRAWS):
        board = draw_board(*dim, num_boxes, python, numpy, False, SEARCH_DEPTH)
        if board.size:
            return _to_state(board, dim)
    raise _failed(dim, num_boxes)


def ragen_room(
    seed: int, *, dim: tuple[int, int] = (6, 6), num_boxes: int = 1, search_depth: int = SEARCH_DEPTH
) -> SokobanState:
    """Return the room that RAGEN draws for a seed.

    Where RAGEN finds no room (one seed in 2,500 with the defaults) it continues with the seed
    ``abs(hash(str(seed))) % 2**32``, which differs from process to process. Here the next seed is the first four bytes
    of BLAKE2b of ``str(seed)``, little-endian.

    Raises:
        ConfigError: The seed is not one of ``np.random.seed``, or the search depth is less than 2.
        GenerationFailed: No room was found in `MAX_DRAWS` draws.
    """
    if search_depth < 2:
        raise ConfigError(f"wanted search_depth of 2 or more, got {search_depth}")
    # No path is longer than the number of explored positions, so a larger depth only wastes memory.
    depth = min(search_depth, MAX_EXPLORED + 2)
    for _ in range(MAX_DRAWS):
        board = draw_board(*dim, num_boxes, *_twisters(seed), True, depth)
        if board.size:
            return _to_state(board, dim)
        seed = int.from_bytes(blake2b(str(seed).encode(), digest_size=4).digest(), "little")
    raise _failed(dim, num_boxes)


def _failed(dim: tuple[int, int], num_boxes: int) -> GenerationFailed:
    return GenerationFailed(
        f"no {dim[0]}x{dim[1]} room with {num_boxes} boxes in {MAX_DRAWS} draws: enlarge dim or take fewer boxes"
    )


def _twisters(seed: int) -> tuple[Longs, Longs]:
    if not 0 <= seed < 2**32:
        raise ConfigError(f"wanted a seed from 0 to 2**32 - 1, as np.random.seed takes, got {seed}")
    return python_twister(seed), seed_by_number(seed)


def _to_state(board: Bytes, dim: tuple[int, int]) -> SokobanState:
    floor, goals, boxes, player = (
        int.from_bytes(np.packbits(board & piece, bitorder="little").tobytes(), "little")
        for piece in (FLOOR, GOAL, BOX, PLAYER)
    )
    level = Level(*dim, walls=((1 << board.size) - 1) & ~floor, goals=goals)
    return SokobanState(level, boxes, player.bit_length() - 1)


@njit
def draw_board(
    height: int, width: int, num_boxes: int, python: Longs, numpy: Longs, ragen: bool, search_depth: int
) -> Bytes:
    """Return a room, `[height * width]` sums of `FLOOR`, `GOAL`, `BOX` and `PLAYER`; empty if no room was found.

    `python` and `numpy` are the twisters of the two random streams. `ragen` selects RAGEN's
    rules, else gym-sokoban's; they differ in the search, of depth `search_depth`, and in RAGEN's walk at the end.
    """
    step = np.array((-width, width, -1, 1))
    floor, pieces, score = np.empty(0, np.bool_), np.empty(0, np.int64), 0
    targets = pieces
    for _ in range(4):
        floor = carve_floor(height, width, python)
        pieces = place_pieces(floor, num_boxes, numpy)
        if pieces.size == 0:
            break
        targets = pieces[:num_boxes].copy()
        score = play_backwards(pieces, floor, step, width, ragen, search_depth)
        if score:
            break
    if score == 0:
        return np.empty(0, np.uint8)
    if ragen:
        stroll(pieces, targets, floor, step, width, python)
    board = np.zeros(floor.size, np.uint8)
    for cell in range(floor.size):
        board[cell] = FLOOR if floor[cell] else 0
    for index in range(num_boxes):
        board[targets[index]] |= GOAL
        board[pieces[index]] |= BOX
    board[pieces[num_boxes]] |= PLAYER
    return board


@njit
def carve_floor(height: int, width: int, python: Longs) -> Flags:
    """Carve a random walk with brushes of random shape; return `[height * width]`, True on floor."""
    # Directions and brushes in the originals' order; a brush is the bits of a 3x3 square, row by row.
    down, right = (1, 0, -1, 0), (0, 1, 0, -1)
    brushes = (0b000_111_000, 0b010_010_010, 0b010_011_000, 0b011_011_000, 0b010_110_000)
    # The order of draws is the originals': direction, row, column, then for each step turn, direction and brush.
    floor = np.zeros(height * width, np.bool_)
    direction = python_below(python, 4)
    row, column = 1 + python_below(python, height - 1), 1 + python_below(python, width - 1)
    for _ in range(int(1.7 * (height + width))):
        if python_random(python) < 0.35:
            direction = python_below(python, 4)
        row = max(min(row + down[direction], height - 2), 1)
        column = max(min(column + right[direction], width - 2), 1)
        brush = brushes[python_below(python, 5)]
        for bit in range(9):
            y, x = row + bit // 3 - 1, column + bit % 3 - 1
            if brush >> bit & 1 and 0 < y < height - 1 and 0 < x < width - 1:
                floor[y * width + x] = True
    return floor


@njit
def place_pieces(floor: Flags, num_boxes: int, numpy: Longs) -> Longs:
    """Return random cells of boxes, then of the player, who is drawn first; empty where the floor is too small."""
    free = np.empty(floor.size, np.int64)
    num_free = 0
    for cell in range(floor.size):
        if floor[cell]:
            free[num_free] = cell
            num_free += 1
    if num_free <= num_boxes + 1:
        return free[:0]
    pieces = np.empty(num_boxes + 1, np.int64)
    for index in range(num_boxes + 1):
        # Chosen cells are removed by shifting, as the originals' `np.where` keeps the cells in order.
        drawn = numpy_below(numpy, num_free)
        # Index -1 is the last place: the first draw is the player's cell.
        pieces[index - 1] = free[drawn]
        num_free -= 1
        for place in range(drawn, num_free):
            free[place] = free[place + 1]
    return pieces


@njit
def stroll(pieces: Longs, targets: Longs, floor: Flags, step: Longs, width: int, python: Longs) -> None:
    """Let the player walk up to three random steps, never back to a cell of the walk, as RAGEN does at the end."""
    # RAGEN walks more often (0.8 instead of 0.5) if the boxes are a single step away from their goals in total.
    num = targets.size
    spread = 0
    for box in range(num):
        spread += abs(pieces[box] // width - targets[box] // width) + abs(pieces[box] % width - targets[box] % width)
    if python_random(python) > (0.8 if spread == 1 else 0.5):
        return
    walked, ways = np.full(3, -1), np.empty(4, np.int64)
    for index in range(3):
        walked[index] = pieces[num]
        num_ways = 0
        for direction in range(4):
            cell = pieces[num] + step[direction]
            if floor[cell] and box_on(pieces, cell) < 0 and cell not in walked:
                ways[num_ways] = cell
                num_ways += 1
        if num_ways == 0:
            return
        pieces[num] = ways[python_below(python, num_ways)]
        if index < 2 and python_random(python) > 0.5:
            return


MAX_EXPLORED = 300_000


@njit
def play_backwards(pieces: Longs, floor: Flags, step: Longs, width: int, ragen: bool, search_depth: int) -> int:
    """Pull the boxes from their goals to the best position within reach; return its score, 0 without such a position.

    Args:
        pieces: `[K + 1]`, cells of K boxes on their goals, then the player's cell; becomes the best position.
        floor: `[C]`.
        step: `[4]`, the number that a direction adds to a cell.
        width: Columns of the room.
        ragen: Whether only a pull of another box than before counts, and the player never walks away from a box. The
            originals try up, down, left, right, pulling a box that stands behind; gym-sokoban then tries the
            same walking, which differs only where a box is left behind.
        search_depth: The original's `ttl`: positions farther away than this minus two actions are not looked at.
    """
    # The originals recurse. Compiled functions must not, so the path is kept in arrays, one row a depth. A position is
    # explored once, however it is reached, and its hash changes by the hashes of the pieces that moved.
    num, size = pieces.size - 1, floor.size
    targets, far, names = pieces[:num].copy(), distances(pieces, size, width), random_names(3 * size)
    explored = np.zeros(table_size(floor, num), np.int64)
    # By position on the path: the cells of the boxes and of the player, which boxes have been pulled, the position's
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
    """Return the number of the box on a cell, -1 for a cell without a box."""
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
        # Zobrist hashing with a fixed generator: equal boards get equal names in every process.
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
