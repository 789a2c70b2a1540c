"""How many steps at least from every cell of a lake to a goal."""

from functools import lru_cache

from tsr_gym_envs.frozen_lake.rules import STEPS, FrozenLakeState


def fewest_steps(state: FrozenLakeState) -> int | None:
    """Return the length of a shortest way to a goal around the holes, None where there is no way.

    No action carries further than one cell, on ice or not, so fewer actions never suffice.
    """
    return distances(state.desc)[state.position]


@lru_cache(maxsize=512)
def distances(desc: tuple[str, ...]) -> tuple[int | None, ...]:
    """Return the fewest steps to a goal by cell; None in holes and where no way leads.

    >>> distances(("SFG", "HHF"))
    (2, 1, 0, None, None, 1)
    """
    columns, letters = len(desc[0]), "".join(desc)
    found: dict[int, int] = {}
    frontier = [cell for cell, letter in enumerate(letters) if letter == "G"]
    steps = 0
    while frontier:
        found |= dict.fromkeys(frontier, steps)
        around = {there for cell in frontier for there in _neighbours(cell, len(desc), columns)}
        frontier = [cell for cell in sorted(around) if cell not in found and letters[cell] != "H"]
        steps += 1
    return tuple(found.get(cell) for cell in range(len(letters)))


def _neighbours(cell: int, rows: int, columns: int) -> list[int]:
    row, column = divmod(cell, columns)
    around = [(row + down, column + right) for down, right in STEPS]
    return [r * columns + c for r, c in around if 0 <= r < rows and 0 <= c < columns]
