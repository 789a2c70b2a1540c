"""Starting positions: on a given map, on generated maps (Gymnasium's or RAGEN's), or on a fixed number of those."""

from typing import Any

import numpy as np
from gymnasium.envs.toy_text.frozen_lake import generate_random_map
from gymnasium.utils import seeding

from tsr_gym import ConfigError, GenerationFailed
from tsr_gym_envs.frozen_lake.rules import MAPS, FrozenLakeState, check_map, distances, start_cells
from tsr_gym_envs.frozen_lake.settings import FrozenLakeSettings, check_map_settings
from tsr_gym_envs.settings import in_split
from tsr_gym_envs.tiles import symmetries

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
        # The calls and their order are RAGEN's, so that equal seeds give equal maps.
        board = rng.choice(["F", "H"], (size, size), p=[p, 1 - p])
        start = tuple(rng.integers(size, size=2))
        goal = tuple(rng.integers(size, size=2))
        if start == goal:
            continue
        board[start], board[goal] = "S", "G"
        if path_length(["".join(row) for row in board]) is not None:
            return ["".join(row) for row in board]
    raise GenerationFailed(f"no {size}x{size} map with p={p} has a path in {MAX_ATTEMPTS} attempts: raise p")


def path_length(desc: list[str] | tuple[str, ...]) -> int | None:
    """Return the fewest steps from any start to any goal around the holes, None where no path exists.

    >>> path_length(["SFH", "HFG"])
    3
    """
    rows = tuple(desc)
    steps = distances(rows)
    return min((length for cell in start_cells(rows) if (length := steps[cell]) is not None), default=None)


def gymnasium_map(seed: int, size: int = 4, p: float = 0.8) -> list[str]:
    """Return the map of Gymnasium's `generate_random_map`: start in the first corner, goal in the last.

    Raises:
        ConfigError: Size or probability is impossible.
    """
    check_map_settings(size, p)
    return generate_random_map(size=size, p=p, seed=seed)


MAX_DRAWS = 10_000


class Lakes:
    """The maps that some settings allow.

    Attributes:
        size: Number of maps, None for an unlimited number.
        shape: Rows and columns of all of them.

    Raises:
        InvalidLevel: The map is malformed.
    """

    def __init__(self, settings: FrozenLakeSettings) -> None:
        self._settings = settings
        desc = settings.desc if settings.map_name is None else MAPS[settings.map_name]
        self._known = {} if desc is None else {0: check_map(desc)}
        self.size = settings.num_levels if desc is None else 1
        self.shape = (settings.size, settings.size) if desc is None else (len(desc), len(desc[0]))

    def start(self, rng: np.random.Generator, options: dict[str, Any]) -> FrozenLakeState:
        """Return the start of an episode, on the map that the options give or number, or on a random one."""
        if unknown := sorted(set(options) - {"desc", "number"}):
            raise ConfigError(f"wanted reset options among ['desc', 'number'], got {unknown}")
        if "desc" in options:
            if not isinstance(options["desc"], list | tuple):
                raise ConfigError(f"wanted desc as rows of text, got {options['desc']!r:.80}")
            desc = check_map(tuple(options["desc"]))
        elif "number" in options:
            desc = self.map(options["number"])
        else:
            desc = self._draw(rng) if self.size is None else self.map(int(rng.integers(self.size)))
        # Gymnasium draws a number for the start cell even if the map has only one.
        starts = start_cells(desc)
        return FrozenLakeState(desc, starts[int(rng.random() * len(starts))])

    def map(self, number: int) -> tuple[str, ...]:
        """Return the map of a number: the only map, or the generator's map for this seed.

        Raises:
            ConfigError: There is no such number.
        """
        below = float("inf") if self.size is None else self.size
        if not isinstance(number, int | np.integer) or not 0 <= number < below:
            raise ConfigError(f"wanted the number of a map below {self.size or 'infinity'}, got {number!r}")
        # Maps of a fixed number are drawn once; an unlimited number of maps is not cached.
        if number in self._known:
            return self._known[number]
        desc = self._draw_from(seeding.np_random(number)[0], number)
        if self.size is not None:
            self._known[number] = desc
        return desc

    def _draw(self, rng: np.random.Generator) -> tuple[str, ...]:
        if self._settings.noise == "shared":
            # RAGEN seeds the map and the ice with the same number: the map is drawn from a copy of the stream, which
            # stays.
            source = np.random.Generator(np.random.PCG64())
            source.bit_generator.state = rng.bit_generator.state
        else:
            source = seeding.np_random(int(rng.integers(2**63)))[0]
        return self._draw_from(source, None)

    def _draw_from(self, source: np.random.Generator, number: int | None) -> tuple[str, ...]:
        """Return the first map of the split; with Gymnasium's generator, `number` is the seed of the first draw."""
        settings = self._settings
        for _ in range(MAX_DRAWS):
            if settings.generator == "ragen":
                desc = tuple(draw_ragen_map(source, settings.size, settings.p))
            else:
                # Gymnasium's generator takes a seed and not a stream. The first draw of a numbered map uses the number
                # itself, which is the published map of that seed; further draws continue from the stream.
                seed = int(source.integers(2**31)) if number is None else number
                desc, number = tuple(gymnasium_map(seed, settings.size, settings.p)), None
            if in_split("\n".join(min(symmetries(desc))).encode(), settings.split):
                return desc
        raise GenerationFailed(
            f"no map of split {settings.split!r} in {MAX_DRAWS} draws: widen the settings {settings}"
        )
