"""Potentials of a Sokoban position: minus the moves that are left, by estimate or by oracle."""

from collections.abc import Callable

from tsr_gym_envs.sokoban import oracle
from tsr_gym_envs.sokoban.matching import fewest_pushes
from tsr_gym_envs.sokoban.rules import SokobanState, cells

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


def exact_potential(state: SokobanState) -> float:
    """Return minus the exact number of moves to solved, `-DEADLOCKED` where nothing solves it.

    Raises:
        ValueError: The board is too large for an exact table.
    """
    moves = oracle.distance(state)
    return -DEADLOCKED if moves is None else -float(moves)


POTENTIALS: dict[str, Callable[[SokobanState], float]] = {"estimate": estimated_potential, "oracle": exact_potential}
