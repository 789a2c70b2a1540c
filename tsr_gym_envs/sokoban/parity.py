"""Rooms exactly as gym-sokoban 0.0.6 and RAGEN draw them, seed for seed.

Both carve a random floor, put boxes on their goals, and let a depth-first search pull them away. The random numbers are
those of Python's `random` and of the legacy `np.random`, both seeded with the seed, drawn in the originals' order.
"""

from hashlib import blake2b

import numpy as np

from tsr_gym.errors import ConfigError, GenerationFailed
from tsr_gym_envs.compiled import Bytes, Flags, Longs, njit
from tsr_gym_envs.sokoban.mersenne import numpy_below, python_below, python_random, python_twister, seed_by_number
from tsr_gym_envs.sokoban.reverse_play import MAX_EXPLORED, box_on, play_backwards
from tsr_gym_envs.sokoban.rules import Level, SokobanState

SEARCH_DEPTH = 300
MAX_DRAWS = 1000
# What a cell of a drawn board holds.
FLOOR, GOAL, BOX, PLAYER = 1, 2, 4, 8


def gym_sokoban_room(seed: int, *, dim: tuple[int, int] = (10, 10), num_boxes: int = 4) -> SokobanState:
    """Return the room that gym-sokoban draws after ``random.seed(seed); np.random.seed(seed)``.

    Where the original finds no room it draws again from where its random streams stand, and so does this.

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

    Where RAGEN finds no room (one seed in 2,500 with the defaults) it goes on with the seed
    ``abs(hash(str(seed))) % 2**32``, which differs from process to process. Here the next seed is the first four bytes
    of BLAKE2b of ``str(seed)``, little-endian.

    Raises:
        ConfigError: The seed is not one of ``np.random.seed``, or the search depth is less than 2.
        GenerationFailed: No room was found in `MAX_DRAWS` draws.
    """
    if search_depth < 2:
        raise ConfigError(f"wanted search_depth of 2 or more, got {search_depth}")
    # Nothing lies deeper than there are positions to explore.
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
        int.from_bytes(np.packbits(board & kind, bitorder="little").tobytes(), "little")
        for kind in (FLOOR, GOAL, BOX, PLAYER)
    )
    level = Level(*dim, walls=((1 << board.size) - 1) & ~floor, goals=goals)
    return SokobanState(level, boxes, player.bit_length() - 1)


@njit
def draw_board(
    height: int, width: int, num_boxes: int, python: Longs, numpy: Longs, ragen: bool, search_depth: int
) -> Bytes:
    """Return a room, `[height * width]` sums of `FLOOR`, `GOAL`, `BOX` and `PLAYER`; empty where none was found.

    `python` and `numpy` are the twisters of the two random streams. `ragen` says whether RAGEN's rules hold or
    gym-sokoban's, which differ in the search, of depth `search_depth`, and in RAGEN's walk at the end.
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
    """Walk about with a brush of random shape; return `[height * width]`, True on floor."""
    # Directions and brushes in the originals' order; a brush is the bits of a 3x3 square, row by row.
    down, right = (1, 0, -1, 0), (0, 1, 0, -1)
    brushes = (0b000_111_000, 0b010_010_010, 0b010_011_000, 0b011_011_000, 0b010_110_000)
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
        drawn = numpy_below(numpy, num_free)
        pieces[index - 1] = free[drawn]
        num_free -= 1
        for place in range(drawn, num_free):
            free[place] = free[place + 1]
    return pieces


@njit
def stroll(pieces: Longs, targets: Longs, floor: Flags, step: Longs, width: int, python: Longs) -> None:
    """Let the player walk up to three random steps, never back to a cell of the walk, as RAGEN does at the end."""
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
