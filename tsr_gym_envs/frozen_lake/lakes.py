"""Where episodes begin: on a given map, on generated maps, or on a fixed number of those."""

from typing import Any

import numpy as np
from gymnasium.utils import seeding

from tsr_gym import ConfigError, GenerationFailed
from tsr_gym_envs.frozen_lake.maps import draw_ragen_map, gymnasium_map
from tsr_gym_envs.frozen_lake.rules import MAPS, FrozenLakeState, check_map
from tsr_gym_envs.frozen_lake.settings import FrozenLakeSettings
from tsr_gym_envs.split import in_split, symmetries

MAX_DRAWS = 10_000


class Lakes:
    """The maps that some settings allow.

    Attributes:
        size: How many there are, None where they have no end.
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
        """Return the start of an episode, on the map that the options give or number, or else one that is drawn."""
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
        # Gymnasium draws one number for the start, also where there is only one.
        starts = start_cells(desc)
        return FrozenLakeState(desc, starts[int(rng.random() * len(starts))])

    def map(self, number: int) -> tuple[str, ...]:
        """Return the map of a number: the only one, or what the generator draws for this seed.

        Raises:
            ConfigError: There is no such number.
        """
        below = float("inf") if self.size is None else self.size
        if not isinstance(number, int | np.integer) or not 0 <= number < below:
            raise ConfigError(f"wanted the number of a map below {self.size or 'infinity'}, got {number!r}")
        if number in self._known:
            return self._known[number]
        desc = self._draw_from(seeding.np_random(number)[0], number)
        if self.size is not None:
            self._known[number] = desc
        return desc

    def _draw(self, rng: np.random.Generator) -> tuple[str, ...]:
        if self._settings.noise == "shared":
            # RAGEN seeds the map and the ice alike: draw the map from a twin and leave the stream where it is.
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
                seed = int(source.integers(2**31)) if number is None else number
                desc, number = tuple(gymnasium_map(seed, settings.size, settings.p)), None
            if in_split("\n".join(min(symmetries(desc))).encode(), settings.split):
                return desc
        raise GenerationFailed(
            f"no map of split {settings.split!r} in {MAX_DRAWS} draws: widen the settings {settings}"
        )


def start_cells(desc: tuple[str, ...]) -> list[int]:
    """Return the numbers of the cells where an episode may begin."""
    return [cell for cell, letter in enumerate("".join(desc)) if letter == "S"]
