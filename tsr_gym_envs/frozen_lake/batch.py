"""FrozenLake's rules for many lakes at once, on boards of tile codes, with numpy's own random numbers."""

import numpy as np

from tsr_gym_envs.compiled import Bytes, Flags, Floats, Longs, njit
from tsr_gym_envs.frozen_lake.arrays import GOAL, ICE, STANDING
from tsr_gym_envs.frozen_lake.rules import STEPS
from tsr_gym_envs.pcg64 import Streams, below, uniform


@njit
def slide_all(
    boards: Bytes,
    players: Longs,
    streams: Streams,
    actions: Longs,
    resting: Flags,
    beside: Longs,
    cumulative: Floats,
    chances: Floats,
    pay: Floats,
    rewards: Floats,
    ended: Flags,
    effective: Flags,
    probabilities: Floats,
) -> None:
    """Take one action on every lake that is not resting.

    Args:
        boards: `[N, C]` codes of the cells; changed in place.
        players: `[N]` the player's cell; changed in place.
        streams: `[N, 6]` random streams; advanced where the ice is slippery.
        actions: `[N]` indices into `ACTIONS`.
        resting: `[N]` which lakes are left alone.
        beside: `[C, 4]` the cell that a direction leads to, the same cell at the rim.
        cumulative: `[3]` cumulative chances of a turn to one side, straight on, and a turn to the other side; empty
            where the ice is not slippery.
        chances: `[3]` the same chances each for itself, or `[1]` where the ice is not slippery.
        pay: `[3]` rewards by what lies on the cell: ice, hole, goal.
        rewards: `[N]` becomes what the actions paid.
        ended: `[N]` becomes whether the player stands in a hole or on the goal.
        effective: `[N]` becomes whether the player moved.
        probabilities: `[N]` becomes the chance of what happened.
    """
    for env in range(boards.shape[0]):
        if resting[env]:
            continue
        direction, turn = actions[env], 0
        if cumulative.size:
            drawn = uniform(streams, env)
            turn = (cumulative[0] <= drawn) + (cumulative[1] <= drawn) + (cumulative[2] <= drawn)
            # Rounding can leave the last sum just below 1, and then Gymnasium takes the first.
            turn = turn if turn < 3 else 0
            direction = (direction + turn + 3) & 3
        here = players[env]
        there = beside[here, direction]
        boards[env, here] -= STANDING
        lies = boards[env, there]
        boards[env, there] = lies + STANDING
        players[env] = there
        rewards[env] = pay[lies]
        ended[env] = lies != ICE
        effective[env] = here != there
        probabilities[env] = chances[turn]


@njit
def start_all(
    envs: Longs, streams: Streams, maps: Bytes, own_maps: Bytes, codes: Bytes, boards: Bytes, players: Longs
) -> None:
    """Put environments at a start of maps, both chosen by their streams.

    Args:
        envs: Numbers of the environments.
        streams: `[N, 6]` random streams; advanced.
        maps: `[P, C]` letters of the maps to choose from.
        own_maps: `[N, C]`; the rows of `envs` become maps.
        codes: `[128]` the code of every letter.
        boards: `[N, C]`; becomes the codes of the cells, with the player.
        players: `[N]`; becomes the player's cell.
    """
    start = ord("S")
    for env in envs:
        letters = maps[below(streams, env, maps.shape[0])]
        own_maps[env] = letters
        num_starts = 0
        for cell in range(letters.size):
            boards[env, cell] = codes[letters[cell]]
            num_starts += letters[cell] == start
        wanted = int(uniform(streams, env) * num_starts)
        for cell in range(letters.size):
            if letters[cell] == start:
                if wanted == 0:
                    players[env] = cell
                wanted -= 1
        boards[env, players[env]] += STANDING


@njit
def on_goal(boards: Bytes, players: Longs) -> Flags:
    """Return whether the players stand on a goal, `[N]`."""
    found = np.empty(players.size, np.bool_)
    for env in range(players.size):
        found[env] = boards[env, players[env]] == GOAL + STANDING
    return found


def neighbours(shape: tuple[int, int]) -> Longs:
    """Return `[C, 4]`, the cell that each direction leads to, the same cell at the rim."""
    rows, columns = np.divmod(np.arange(shape[0] * shape[1])[:, None], shape[1])
    down, right = np.array(STEPS).T
    cells: Longs = np.clip(rows + down, 0, shape[0] - 1) * shape[1] + np.clip(columns + right, 0, shape[1] - 1)
    return cells
