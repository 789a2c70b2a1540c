"""Text observations of a position on the lake, by `obs_type`."""

from collections.abc import Callable

from tsr_gym_envs.frozen_lake.rules import FrozenLakeState
from tsr_gym_envs.tiles import square

_GLYPHS = {"S": "_", "F": "_", "H": "O", "G": "G"}
_PLAYER = {"S": "P", "F": "P", "H": "X", "G": "√"}


def grid(state: FrozenLakeState) -> str:
    """Return the board in RAGEN's glyphs, one row a line.

    ``P`` player, ``_`` ice, ``O`` hole, ``G`` goal, ``X`` player in a hole, ``√`` player on the goal.
    """
    columns = len(state.desc[0])
    letters = "".join(state.desc)
    line = [_GLYPHS[letter] for letter in letters]
    line[state.position] = _PLAYER[letters[state.position]]
    return "\n".join("".join(line[start : start + columns]) for start in range(0, len(line), columns))


def coord(state: FrozenLakeState) -> str:
    """Return RAGEN's coordinate text: start, goal, player and holes by row and column."""
    player = {"H": "Player in hole", "G": "Player on goal"}.get(state.cell, "Player")
    columns = len(state.desc[0])
    lines = [f"Board size: {len(state.desc)} rows x {columns} cols (zero-indexed)."]
    lines += [f"{name}: {_places(state, letter)}" for name, letter in (("Start", "S"), ("Goal", "G"))]
    lines.append(f"{player}: ({state.position // columns}, {state.position % columns})")
    if holes := _places(state, "H"):
        lines.append(f"Holes: {holes}")
    return "\n".join(lines)


def grid_coord(state: FrozenLakeState) -> str:
    """Return coordinates and board, as TSR's released code shows them."""
    return f"Coordinates: \n{coord(state)}\nGrid Map: \n{grid(state)}"


def compact(state: FrozenLakeState) -> str:
    """Return a short form for very small models: player, goals and holes by the names of their squares, as in chess.

    An example is ``P b3 G d4 O a1 c2``; every sign and every square is intended to be one token.
    """
    columns = len(state.desc[0])
    letters = "".join(state.desc)
    pieces = [("P", [state.position])]
    pieces += [(sign, [cell for cell, tile in enumerate(letters) if tile == letter]) for sign, letter in ("GG", "OH")]
    return " ".join(
        " ".join([sign, *[square(cell // columns, cell % columns) for cell in cells]])
        for sign, cells in pieces
        if cells
    )


def _places(state: FrozenLakeState, letter: str) -> str:
    return ", ".join(
        f"({row}, {column})"
        for row, line in enumerate(state.desc)
        for column, tile in enumerate(line)
        if tile == letter
    )


OBSERVATIONS: dict[str, Callable[[FrozenLakeState], str]] = {
    "grid": grid,
    "coord": coord,
    "grid_coord": grid_coord,
    "compact": compact,
}
