"""Maps of FrozenLake: Gymnasium's named and random ones, and RAGEN's with random start and goal."""

import numpy as np
from gymnasium.envs.toy_text.frozen_lake import generate_random_map
from gymnasium.utils import seeding

from tsr_gym import ConfigError, GenerationFailed
from tsr_gym_envs.frozen_lake.rules import MAX_SIDE

GENERATORS = ("ragen", "gymnasium")
MAX_ATTEMPTS = 10_000


def ragen_map(seed: int, size: int = 4, p: float = 0.8) -> list[str]:
    """Return the map that RAGEN draws for a seed: random start and goal, joined by a path.

    Raises:
        ConfigError: Size or probability is impossible.
        GenerationFailed: No map had a path within `MAX_ATTEMPTS` attempts.
    """
    check_map_settings(size, p)
    return draw_ragen_map(seeding.np_random(seed)[0], size, p)


def draw_ragen_map(rng: np.random.Generator, size: int, p: float) -> list[str]:
    """Return RAGEN's map as drawn from a generator, with RAGEN's calls in RAGEN's order."""
    for _ in range(MAX_ATTEMPTS):
        board = rng.choice(["F", "H"], (size, size), p=[p, 1 - p])
        start = tuple(rng.integers(size, size=2))
        goal = tuple(rng.integers(size, size=2))
        if start == goal:
            continue
        board[start], board[goal] = "S", "G"
        if path_length(["".join(row) for row in board]) is not None:
            return ["".join(row) for row in board]
    raise GenerationFailed(f"no {size}x{size} map with p={p} has a path in {MAX_ATTEMPTS} attempts: raise p")


def gymnasium_map(seed: int, size: int = 4, p: float = 0.8) -> list[str]:
    """Return the map of Gymnasium's `generate_random_map`: start in the first corner, goal in the last.

    Raises:
        ConfigError: Size or probability is impossible.
    """
    check_map_settings(size, p)
    return generate_random_map(size=size, p=p, seed=seed)


def path_length(desc: list[str] | tuple[str, ...]) -> int | None:
    """Return the fewest steps from a start to a goal around the holes, None where there is no way.

    >>> path_length(["SFH", "HFG"])
    3
    """
    rows, columns = len(desc), len(desc[0])
    frontier = [(row, column) for row in range(rows) for column in range(columns) if desc[row][column] == "S"]
    seen = set(frontier)
    steps = 0
    while frontier:
        found = []
        for row, column in frontier:
            if desc[row][column] == "G":
                return steps
            for there in ((row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)):
                inside = 0 <= there[0] < rows and 0 <= there[1] < columns
                if inside and there not in seen and desc[there[0]][there[1]] != "H":
                    seen.add(there)
                    found.append(there)
        frontier = found
        steps += 1
    return None


def check_map_settings(size: int, p: float) -> None:
    """Raise ConfigError where no map can have these properties."""
    if not 2 <= size <= MAX_SIDE:
        raise ConfigError(f"wanted a map size between 2 and {MAX_SIDE}, got {size}")
    if not 0 < p <= 1:
        raise ConfigError(f"wanted a probability of frozen cells 0 < p <= 1, got {p}")
