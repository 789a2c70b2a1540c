"""Distances to the goal: the fewest steps around the holes, and the proxy of TSR's Eq. 14."""

from functools import lru_cache

from tsr_gym_envs.frozen_lake.rules import STEPS, FrozenLakeState


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
