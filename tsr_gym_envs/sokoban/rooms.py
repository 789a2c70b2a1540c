"""Where episodes begin: a given level, the levels of files, generated rooms, or a fixed number of either."""

from functools import lru_cache
from typing import Any

import numpy as np

from tsr_gym import ConfigError, GenerationFailed
from tsr_gym.optional import require
from tsr_gym_envs.sokoban.generate import SOLUTION_LENGTH, draw_room, generate_room
from tsr_gym_envs.sokoban.levels import LevelFiles, parse_level
from tsr_gym_envs.sokoban.rules import SokobanState, state_key
from tsr_gym_envs.sokoban.settings import SokobanSettings
from tsr_gym_envs.sokoban.symmetry import canonical_form
from tsr_gym_envs.split import in_split

MAX_DRAWS = 10_000
# Published rooms are numbered as `np.random.seed` takes seeds.
NUM_PUBLISHED = 2**32


class Rooms:
    """The rooms that some settings allow.

    Attributes:
        size: How many there are, None where that is not known or has no end.

    Raises:
        ConfigError: There are fewer levels than `num_levels`.
        InvalidLevel: A level is malformed.
        MissingExtra: The generator needs numba.
    """

    def __init__(self, settings: SokobanSettings) -> None:
        self._settings = settings
        self._files = None if settings.levels is None else _level_files(settings.levels, settings.split)
        self._known: dict[int, SokobanState] = {}
        self.size = settings.num_levels
        if settings.level is not None:
            self._known[0] = parse_level(settings.level)
            self.size = 1
        elif self._files is not None and (settings.num_levels or len(self._files.files) == 1):
            self._known.update(enumerate(self._files.first(settings.num_levels)))
            self.size = len(self._known)
            if self.size < (settings.num_levels or 0):
                raise ConfigError(f"{settings.levels}: wanted {settings.num_levels} levels, got {self.size}")
        elif settings.is_published:
            require("numba", "envs")

    def options_of(self, seed: int | None, options: dict[str, Any] | None) -> dict[str, Any]:
        """Return the options of a reset with a seed: it names the room where a published generator draws them all."""
        is_name = self._settings.is_published and self.size is None and seed is not None and seed < NUM_PUBLISHED
        return {**({"number": seed} if is_name else {}), **(options or {})}

    def start(self, rng: np.random.Generator, options: dict[str, Any]) -> SokobanState:
        """Return the room of an episode: the one that the options give or number, or else one that is drawn."""
        if unknown := sorted(set(options) - {"level", "number"}):
            raise ConfigError(f"wanted reset options among ['level', 'number'], got {unknown}")
        if "level" in options:
            if not isinstance(options["level"], str):
                raise ConfigError(f"wanted a level as text, got {options['level']!r:.80}")
            return parse_level(options["level"])
        if "number" in options:
            return self.room(options["number"])
        if self.size is not None:
            return self.room(int(rng.integers(self.size)))
        if self._files is not None:
            levels = self._files.read(int(rng.integers(len(self._files.files))))
            return levels[rng.integers(len(levels))]
        return self.room(int(rng.integers(NUM_PUBLISHED))) if self._settings.is_published else self._draw(rng, None)

    def room(self, number: int) -> SokobanState:
        """Return the room of a number: its place among the levels, or the seed of the generator.

        Raises:
            ConfigError: There is no such number.
        """
        if self._files is not None and self.size is None:
            raise ConfigError("wanted num_levels, which numbers the levels of several files, got None")
        limit = NUM_PUBLISHED if self.size is None else self.size
        if not isinstance(number, int | np.integer) or not 0 <= number < limit:
            raise ConfigError(f"wanted the number of a room below {limit}, got {number!r}")
        if self.size is None:
            return self._draw(np.random.default_rng(number), number)
        if number not in self._known:
            self._known[number] = self._draw(np.random.default_rng(number), number)
        return self._known[number]

    def largest(self) -> tuple[int, int]:
        """Return rows and columns of the largest room; of several files without `num_levels`, of the first file."""
        if self._settings.is_generated:
            return self._settings.dim
        known = self._known.values() or (self._files.read(0) if self._files is not None else ())
        levels = [state.level for state in known]
        return max(level.height for level in levels), max(level.width for level in levels)

    def _draw(self, rng: np.random.Generator, number: int | None) -> SokobanState:
        """Return the first room of the split among those drawn; the room of a number is the first of all."""
        settings = self._settings
        for _ in range(MAX_DRAWS):
            if settings.is_published:
                state = generate_room(
                    int(rng.integers(NUM_PUBLISHED)) if number is None else number,
                    generator=settings.generator,
                    dim=settings.dim,
                    num_boxes=settings.num_boxes,
                    search_depth=settings.search_depth,
                )
                number = None
            else:
                state = draw_room(
                    rng,
                    dim=settings.dim,
                    num_boxes=settings.num_boxes,
                    solution_length=settings.solution_length or SOLUTION_LENGTH,
                )
            if settings.split == "all" or in_split(state_key(canonical_form(state)), settings.split):
                return state
        raise GenerationFailed(
            f"no room of split {settings.split!r} in {MAX_DRAWS} draws: widen the settings {settings}"
        )


@lru_cache(maxsize=8)
def _level_files(path: str, split: str) -> LevelFiles:
    return LevelFiles(path, split=None if split == "all" else split)
