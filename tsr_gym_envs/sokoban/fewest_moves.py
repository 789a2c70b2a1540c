"""A lower bound on the moves that solve a position, quick enough to be asked at every turn of a search."""

from tsr_gym_envs.sokoban.matching import fewest_pushes
from tsr_gym_envs.sokoban.rules import SokobanState, cells


def fewest_moves(state: SokobanState) -> int | None:
    """Return a number of moves below which nothing solves a position; None where that is proved of any number.

    The pushes of the cheapest matching of boxes to goals, and the walk to the nearest box, during which nothing is
    pushed. Unlike the potential `estimated_potential` it also counts boxes on goals as near: one of them may be the
    first to move.
    """
    level, boxes, player = state
    if boxes == level.goals:
        return 0
    pushes = fewest_pushes(level, boxes)
    if pushes is None:
        return None
    row, column = divmod(player, level.width)
    return pushes + min(abs(row - box // level.width) + abs(column - box % level.width) for box in cells(boxes)) - 1
