"""Potentials of a Sokoban position: minus the moves that are left, by estimate or by oracle."""

from collections.abc import Callable

from tsr_gym_envs.sokoban import oracle
from tsr_gym_envs.sokoban.matching import fewest_pushes
from tsr_gym_envs.sokoban.rules import Level, SokobanState, cells

# A position that cannot be solved counts as this many moves away, farther than any solvable one on small boards.
DEADLOCKED = 40.0


def estimated_potential(state: SokobanState) -> float:
    """Return minus a lower bound on the moves to solved, from matching and the walk to the nearest box.

    `-DEADLOCKED` where boxes and goals cannot be matched, which proves that the position cannot be solved.
    """
    level, boxes, player = state
    pushes = fewest_pushes(level, boxes)
    if pushes is None:
        return -DEADLOCKED
    misplaced = cells(boxes & ~level.goals)
    if not misplaced:
        return 0.0
    row, column = divmod(player, level.width)
    walk = min(abs(row - box // level.width) + abs(column - box % level.width) for box in misplaced) - 1
    return -float(pushes + walk)


def next_push_potential(state: SokobanState) -> float:
    """Return minus an estimate of the moves to solved that walks to where the next push begins.

    ``min over pushes p of (walk to where p begins + 1 + fewest pushes after p)``, over those that bring boxes nearer to
    their goals if the player can make one, else over all. Walks go round walls and boxes, so a player on the wrong side
    of a box knows it. Not a bound: the best push may lead away. `-DEADLOCKED` where no push leaves boxes and goals that
    can be matched, which proves that the position cannot be solved.
    """
    level, boxes, player = state
    if boxes == level.goals:
        return 0.0
    walks = _walks(level, boxes, player)
    pushed = [
        (fewest_pushes(level, boxes ^ (1 << box | 1 << box + offset)), walks[box - offset])
        for box in cells(boxes)
        for offset in level.offsets
        if box - offset in walks and not (level.walls | boxes) >> box + offset & 1
    ]
    possible = [(pushes, walk) for pushes, walk in pushed if pushes is not None]
    now = fewest_pushes(level, boxes)
    nearer = [(pushes, walk) for pushes, walk in possible if now is not None and pushes < now]
    return -float(min((walk + 1 + pushes for pushes, walk in nearer or possible), default=DEADLOCKED))


def _walks(level: Level, boxes: int, player: int) -> dict[int, int]:
    """Return how many moves it takes to each cell that the player can walk to."""
    free, width = ~(level.walls | boxes), level.width
    walks, area, edge = {player: 0}, 1 << player, 1 << player
    while edge:
        edge = (edge << 1 | edge >> 1 | edge << width | edge >> width) & free & ~area
        area |= edge
        moves = 1 + walks[next(reversed(walks))]
        walks.update((cell, moves) for cell in cells(edge))
    return walks


def exact_potential(state: SokobanState) -> float:
    """Return minus the exact number of moves to solved, `-DEADLOCKED` where nothing solves it.

    Raises:
        ValueError: The board is too large for an exact table.
    """
    moves = oracle.distance(state)
    return -DEADLOCKED if moves is None else -float(moves)


POTENTIALS: dict[str, Callable[[SokobanState], float]] = {
    "estimate": estimated_potential,
    "next_push": next_push_potential,
    "oracle": exact_potential,
}
