"""Text observations of a position, by `obs_type`."""

from collections.abc import Callable
from functools import lru_cache

from tsr_gym_envs.sokoban.rules import Level, SokobanState, cells, paint
from tsr_gym_envs.tiles import square

# RAGEN's glyphs for wall, floor, goal, box, box on goal, player, player on goal.
GLYPHS = "#_OX√PS"
# The same by code, the outside drawn as wall, in ASCII first because that is quicker.
_ASCII = bytes.maketrans(bytes(range(8)), (GLYPHS + GLYPHS[0]).replace("√", "*").encode())


def grid(state: SokobanState) -> str:
    """Return the board in RAGEN's glyphs ``# _ O √ X P S``, one row a line."""
    return paint(state).translate(_ASCII).decode().replace("*", "√")


def coord(state: SokobanState) -> str:
    """Return RAGEN's coordinate text: row and column of every piece, without pieces that do not occur."""
    level, boxes, player = state
    goals = level.goals
    man = 1 << player
    places = (
        ("Targets", goals & ~boxes & ~man),
        ("Boxes", boxes & ~goals),
        ("Boxes on target", boxes & goals),
        ("Player", man & ~goals),
        ("Player on target", man & goals),
    )
    lines = [f"Board size: {level.height} rows x {level.width} cols (zero-indexed)."]
    lines += [f"{name}: {_places(board, level.width)}" for name, board in places if board]
    return "\n".join(lines)


def grid_coord(state: SokobanState) -> str:
    """Return coordinates and board, as TSR's released code shows them."""
    return f"Coordinates: \n{coord(state)}\nGrid Map: \n{grid(state)}"


def compact(state: SokobanState) -> str:
    """Return a short form for very small models: every piece and inner wall by the name of its square, as in chess.

    An example is ``P b3 X c2 O d4 # a1 a2``: player, boxes, goals, and the walls inside the outer ring; a square's
    letter is its column and its number its row, both within the ring. Every sign and every square is intended to be one
    token.
    """
    level, boxes, player = state
    # The outer ring is always wall, so it is left out: a 6x6 room has squares a1 to d4.
    pieces = (("P", 1 << player), ("X", boxes), ("O", level.goals), ("#", level.walls & inside(level)))
    return " ".join(
        " ".join([sign, *[square(cell // level.width - 1, cell % level.width - 1) for cell in cells(board)]])
        for sign, board in pieces
        if board
    )


@lru_cache(maxsize=64)
def _ring(height: int, width: int) -> int:
    row = (1 << width) - 1
    sides = sum((1 | 1 << width - 1) << number * width for number in range(height))
    return row | row << width * (height - 1) | sides


def inside(level: Level) -> int:
    """Return the cells of a level that are not on its outer ring."""
    return ((1 << level.height * level.width) - 1) & ~_ring(level.height, level.width)


def _places(board: int, width: int) -> str:
    return ", ".join(f"({cell // width}, {cell % width})" for cell in cells(board))


OBSERVATIONS: dict[str, Callable[[SokobanState], str]] = {
    "grid": grid,
    "coord": coord,
    "grid_coord": grid_coord,
    "compact": compact,
}
