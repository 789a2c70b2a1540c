"""One name for all rooms that differ only by rotation, reflection or translation."""

from tsr_gym_envs.sokoban.rules import Level, SokobanState, boards_of, cells, draw, reachable
from tsr_gym_envs.split import symmetries


def canonical_form(state: SokobanState, *, player_region: bool = False) -> SokobanState:
    """Return the same position for all of its 8 symmetries and translations.

    The board is cut down to its floor with one ring of wall around it, and the smallest of the eight views is taken.

    Args:
        state: The position.
        player_region: Whether all cells that the player can walk to without pushing count as the same place.
    """
    if player_region:
        area = reachable(state)
        views = [_trimmed(state._replace(player=cell)) for cell in cells(area)]
    else:
        views = [_trimmed(state)]
    rows = min(view for rows in views for view in symmetries(rows))
    walls, goals, boxes, players = boards_of(rows).values()
    return SokobanState(Level(len(rows), len(rows[0]), walls, goals), boxes, players.bit_length() - 1)


def _trimmed(state: SokobanState) -> tuple[str, ...]:
    level = state.level
    whole = state._replace(level=Level(level.height, level.width, level.walls, level.goals))
    rows = draw(whole, "# .$*@+").split("\n")
    used = [index for index, row in enumerate(rows) if row.strip("#")]
    columns = [index for index in range(level.width) if any(row[index] != "#" for row in rows)]
    top, bottom, left, right = used[0] - 1, used[-1] + 2, columns[0] - 1, columns[-1] + 2
    return tuple(row[left:right] for row in rows[top:bottom])
