"""Sokoban's rules for many boards at once, on boards of tile codes.

Invariant: of every board, `places` holds the player's cell and the number of boxes that are off goals.
"""

import numpy as np
from numpy.typing import NDArray

from tsr_gym_envs.compiled import Bytes, Flags, Floats, Ints, Longs, njit
from tsr_gym_envs.pcg64 import Streams, below
from tsr_gym_envs.sokoban.arrays import BOX, BOX_ON_GOAL, FLOOR, GOAL, PLAYER

# What a cell's code gains when the player steps on it.
_STANDING = PLAYER - FLOOR
# Codes of cells that the player can find ahead; they count from 0.
_AHEAD = BOX + 1


def _make_table() -> NDArray[np.uint32]:
    """Return the rules as a table without branches, which a processor would mispredict on random actions.

    By the code ahead and, if that is a box, the code behind it, else the code ahead once more. Each entry is four
    bytes, lowest first: new code behind, new code ahead, whether the player moves, how many more boxes are on goals.
    """
    table = np.zeros((_AHEAD, _AHEAD, 4), np.int8)
    for ahead in range(_AHEAD):
        for behind in range(_AHEAD):
            table[ahead, behind] = behind, ahead, 0, 0
            if ahead >= BOX_ON_GOAL and behind in (FLOOR, GOAL):
                onto, off = behind == GOAL, ahead == BOX_ON_GOAL
                table[ahead, behind] = BOX_ON_GOAL if onto else BOX, PLAYER + off, 1, onto - off
        if ahead in (FLOOR, GOAL):
            table[ahead, ahead] = ahead + _STANDING, ahead + _STANDING, 1, 0
    return table.view("<u4").ravel().astype(np.uint32)


_TABLE = _make_table()


@njit
def push_all(
    boards: Bytes,
    places: Ints,
    actions: Longs,
    resting: Flags,
    step: Longs,
    pay: Floats,
    rewards: Floats,
    solved: Flags,
    effective: Flags,
) -> None:
    """Take one action on every board that is not resting.

    Args:
        boards: `[N, C]` codes of the cells; changed in place.
        places: `[N, 4]` the player's cell, boxes off goals, and two numbers more; changed in place.
        actions: `[N]` indices into `ACTIONS`.
        resting: `[N]` which boards are left alone.
        step: `[4]` what a direction adds to a cell's number.
        pay: `[3]` rewards of an action, a box that comes onto a goal, and all boxes on goals.
        rewards: `[N]` becomes what the actions paid.
        solved: `[N]` becomes whether all boxes are on goals.
        effective: `[N]` becomes whether the action changed the board.
    """
    # Unsigned indices spare the check for negative ones, a tenth of the time.
    cells = boards.reshape(-1)
    for env in range(boards.shape[0]):
        if resting[env]:
            continue
        corner, here, offset = env * boards.shape[1], places[env, 0], step[actions[env]]
        target = here + offset
        ahead = cells[np.uint64(corner + target)]
        is_box = ahead >= BOX_ON_GOAL
        beyond = target + offset * is_box
        behind = cells[np.uint64(corner + beyond)]
        entry = _TABLE[np.uint64(ahead) * np.uint64(_AHEAD) + np.uint64(behind)]
        moves, gained = np.int64(entry >> 16 & 1), np.int64(np.int8(entry >> 24))
        cells[np.uint64(corner + beyond)] = np.uint8(entry)
        cells[np.uint64(corner + target)] = np.uint8(entry >> 8)
        cells[np.uint64(corner + here)] -= np.uint8(_STANDING * moves)
        left = places[env, 1] - gained
        places[env, 0], places[env, 1] = here + offset * moves, left
        rewards[env] = pay[0] + gained * pay[1] + (left == 0 and moves and is_box) * pay[2]
        solved[env] = left == 0
        effective[env] = moves != 0


@njit
def start_all(envs: Longs, streams: Streams, rooms: Bytes, room_places: Ints, boards: Bytes, places: Ints) -> None:
    """Put environments at the start of rooms that their streams choose.

    Args:
        envs: Numbers of the environments.
        streams: `[N, 6]` random streams; advanced.
        rooms: `[P, C]` boards to choose from.
        room_places: `[P, 4]` of the rooms what `places` is of the environments.
        boards: `[N, C]`; the rows of `envs` become rooms.
        places: `[N, 4]`; see `push_all`.
    """
    for env in envs:
        room = below(streams, env, rooms.shape[0])
        boards[env] = rooms[room]
        places[env] = room_places[room]
