"""FrozenLake's rules, a position as text, and distances to the goal.

The dynamics are Gymnasium's, transition by transition and random number by random number. The distances are the fewest
steps around the holes, and the proxy of TSR's Eq. 14.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from tsr_gym import ConfigError, InvalidLevel
from tsr_gym_envs.tiles import square

# Gymnasium's numbering, and the rows and columns that each goes.
ACTIONS = ("Left", "Down", "Right", "Up")
STEPS = ((0, -1), (1, 0), (0, 1), (-1, 0))
DEFAULT_SUCCESS_RATE = 1 / 3
MAPS = {
    "4x4": ("SFFF", "FHFH", "FFFH", "HFFG"),
    "8x8": ("SFFFFFFF", "FFFFFFFF", "FFFHFFFF", "FFFFFHFF", "FFFHFFFF", "FHHFFFHF", "FHFFHFHF", "FFFHFFFG"),
}
MAX_SIDE = 64


@dataclass(frozen=True, slots=True)
class Ice:
    """How slippery the lake is, and its rewards.

    Attributes:
        success_rate: Probability of the intended direction; the two perpendicular ones share the rest. 1 where the
            lake is not slippery.
        rewards: For reaching the goal, a hole, and any other cell.
    """

    success_rate: float = DEFAULT_SUCCESS_RATE
    rewards: tuple[float, float, float] = (1.0, 0.0, 0.0)

    def __post_init__(self) -> None:
        if not 0 <= self.success_rate <= 1:
            raise ConfigError(f"wanted a success_rate between 0 and 1, got {self.success_rate}")
        if len(self.rewards) != 3:
            raise ConfigError(f"wanted three rewards (goal, hole, frozen), got {self.rewards}")


class FrozenLakeState(NamedTuple):
    """A position on a lake.

    Attributes:
        desc: The map's rows in ``S`` start, ``F`` frozen, ``H`` hole, ``G`` goal.
        position: Number of the player's cell, `row * columns + column`.
    """

    desc: tuple[str, ...]
    position: int

    @property
    def cell(self) -> str:
        """The letter under the player."""
        columns = len(self.desc[0])
        return self.desc[self.position // columns][self.position % columns]


def state_key(state: FrozenLakeState) -> bytes:
    """Return the bytes of map and position; a start cell counts as ice, because it is ice after the first draw."""
    return b"%d %s" % (state.position, _map_bytes(state.desc))


@lru_cache(maxsize=4096)
def _map_bytes(desc: tuple[str, ...]) -> bytes:
    # Start cells matter only for the first state of an episode, so maps that differ in them share their future.
    return "\n".join(desc).replace("S", "F").encode()


def check_map(desc: tuple[str, ...]) -> tuple[str, ...]:
    """Return a map's rows as they are.

    Raises:
        InvalidLevel: The map is empty, ragged, too large, has no start or goal, or holds another letter.
    """
    if not desc or not all(isinstance(row, str) for row in desc) or not desc[0]:
        raise InvalidLevel(f"wanted the rows of a map as non-empty strings, got {desc!r}")
    if len(desc) > MAX_SIDE or len(desc[0]) > MAX_SIDE:
        raise InvalidLevel(f"wanted a map of at most {MAX_SIDE}x{MAX_SIDE}, got {len(desc)}x{len(desc[0])}")
    for number, row in enumerate(desc, start=1):
        if len(row) != len(desc[0]):
            raise InvalidLevel(f"map row {number}: wanted {len(desc[0])} cells as in row 1, got {len(row)}")
        for column, letter in enumerate(row, start=1):
            if letter not in "SFHG":
                raise InvalidLevel(f"map row {number}, column {column}: wanted S, F, H or G, got {letter!r}")
    for letter, name in (("S", "start"), ("G", "goal")):
        if not any(letter in row for row in desc):
            raise InvalidLevel(f"wanted at least one {name} ({letter}) on the map, got none")
    return desc


def start_cells(desc: tuple[str, ...]) -> list[int]:
    """Return the numbers of the cells where an episode may begin."""
    return [cell for cell, letter in enumerate("".join(desc)) if letter == "S"]


def transition_table(
    desc: list[str] | tuple[str, ...],
    *,
    is_slippery: bool = True,
    success_rate: float = DEFAULT_SUCCESS_RATE,
    reward_schedule: tuple[float, float, float] = (1.0, 0.0, 0.0),
) -> dict[int, dict[int, list[tuple[float, int, float, bool]]]]:
    """Return Gymnasium's `P`: ``P[cell][action]`` lists (probability, next cell, reward, terminated).

    In Gymnasium's order, duplicates kept: the direction counter-clockwise of the action, the action, the clockwise one.

    Raises:
        InvalidLevel: The map is malformed.
        ConfigError: The success rate is not a probability.

    >>> transition_table(["SG"], is_slippery=False)[0][2]
    [(1.0, 1, 1.0, True)]
    """
    goal, hole, frozen = reward_schedule
    ice = Ice(success_rate if is_slippery else 1.0, (goal, hole, frozen))
    rows = check_map(tuple(desc))
    size = len(rows) * len(rows[0])
    return {
        cell: {action: _outcomes(rows, ice, is_slippery, cell, action) for action in range(4)} for cell in range(size)
    }


def _outcomes(
    desc: tuple[str, ...], ice: Ice, is_slippery: bool, cell: int, action: int
) -> list[tuple[float, int, float, bool]]:
    rows, columns = len(desc), len(desc[0])
    row, column = divmod(cell, columns)
    if desc[row][column] in "GH":
        return [(1.0, cell, 0, True)]
    outcomes = []
    # Gymnasium's order, with equal outcomes listed separately: the order decides which uniform number gives which slip.
    for direction in ((action - 1) % 4, action, (action + 1) % 4) if is_slippery else (action,):
        down, right = STEPS[direction]
        to_row, to_column = min(max(row + down, 0), rows - 1), min(max(column + right, 0), columns - 1)
        letter = desc[to_row][to_column]
        reward = ice.rewards[0 if letter == "G" else 1 if letter == "H" else 2]
        chance = ice.success_rate if direction == action else (1.0 - ice.success_rate) / 2.0
        outcomes.append((chance if is_slippery else 1.0, to_row * columns + to_column, reward, letter in "GH"))
    return outcomes


class Move(NamedTuple):
    """The outcomes of an action: cumulative probabilities and, for each, next cell, reward and end."""

    cumulative: tuple[float, ...]
    outcomes: tuple[tuple[float, int, float, bool], ...]

    def draw(self, uniform: float) -> tuple[float, int, float, bool]:
        """Return the outcome that a uniform random number picks, as Gymnasium's `categorical_sample` does."""
        index = bisect_right(self.cumulative, uniform)
        # Gymnasium's argmax over no True is the first outcome; rounding can leave the last sum just below 1.
        return self.outcomes[index if index < len(self.outcomes) else 0]


@lru_cache(maxsize=512)
def moves(desc: tuple[str, ...], ice: Ice, is_slippery: bool) -> tuple[tuple[Move, ...], ...]:
    """Return `Move` by cell and action."""
    table = transition_table(desc, is_slippery=is_slippery, success_rate=ice.success_rate, reward_schedule=ice.rewards)
    return tuple(tuple(_move(table[cell][action]) for action in range(4)) for cell in sorted(table))


def _move(outcomes: list[tuple[float, int, float, bool]]) -> Move:
    return Move(tuple(accumulate(outcome[0] for outcome in outcomes)), tuple(outcomes))


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


def proximity(state: FrozenLakeState, *, hole_penalty: float) -> float:
    """Return minus the Manhattan distance to the nearest goal, minus a penalty in a hole (TSR Eq. 14).

    Args:
        state: The position.
        hole_penalty: The equation's lambda.
    """
    columns = len(state.desc[0])
    letters = "".join(state.desc)
    row, column = divmod(state.position, columns)
    goals = [cell for cell, letter in enumerate(letters) if letter == "G"]
    steps = min(abs(row - goal // columns) + abs(column - goal % columns) for goal in goals)
    return -float(steps) - (hole_penalty if letters[state.position] == "H" else 0.0)


def fewest_steps(state: FrozenLakeState) -> int | None:
    """Return the length of a shortest path to a goal around the holes, None if no path exists.

    No action carries further than one cell, on ice or not, so fewer actions never suffice.
    """
    return distances(state.desc)[state.position]


@lru_cache(maxsize=512)
def distances(desc: tuple[str, ...]) -> tuple[int | None, ...]:
    """Return the fewest steps to a goal by cell; None in holes and on cells without a path.

    >>> distances(("SFG", "HHF"))
    (2, 1, 0, None, None, 1)
    """
    columns, letters = len(desc[0]), "".join(desc)
    # A breadth-first search from all goals: steps between cells are symmetric, so it needs no reversed rules.
    steps_from: dict[int, int] = {}
    frontier = [cell for cell, letter in enumerate(letters) if letter == "G"]
    steps = 0
    while frontier:
        steps_from |= dict.fromkeys(frontier, steps)
        around = {there for cell in frontier for there in _neighbours(cell, len(desc), columns)}
        frontier = [cell for cell in sorted(around) if cell not in steps_from and letters[cell] != "H"]
        steps += 1
    return tuple(steps_from.get(cell) for cell in range(len(letters)))


def _neighbours(cell: int, rows: int, columns: int) -> list[int]:
    row, column = divmod(cell, columns)
    around = [(row + down, column + right) for down, right in STEPS]
    return [r * columns + c for r, c in around if 0 <= r < rows and 0 <= c < columns]
