"""FrozenLake's rules: Gymnasium's dynamics, transition by transition and random number by random number."""

from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from tsr_gym import ConfigError, InvalidLevel

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
