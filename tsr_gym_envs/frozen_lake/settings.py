"""Settings of FrozenLake: maps, ice, limits, and the form of actions and observations."""

from dataclasses import dataclass
from typing import Any

from tsr_gym import ConfigError
from tsr_gym_envs.frozen_lake.rules import DEFAULT_SUCCESS_RATE, MAPS, MAX_SIDE, OBSERVATIONS, Ice
from tsr_gym_envs.settings import SPLITS, check_form, settings_from
from tsr_gym_envs.tiles import ARRAYS as BOARDS

GENERATORS = ("ragen", "gymnasium")
# The settings of TSR's paper, and those of the authors' released code.
PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "tsr-code": {"obs_type": "grid_coord", "p": 0.9, "success_rate": 0.8, "max_actions_per_turn": 2},
}
# Where actions are discrete; the limit is Gymnasium's on small maps.
DISCRETE = {"obs_type": "array", "max_turns": None, "max_actions_per_turn": None, "max_actions": 100}
# Observations that are not text: boards, and the number of the player's cell alone, as in Gymnasium.
ARRAYS = (*BOARDS, "discrete")


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenLakeSettings:
    """Settings of FrozenLake; `FrozenLakeEnv` documents each of them."""

    preset: str = "paper"
    obs_type: str = "grid"
    action_type: str = "text"
    desc: tuple[str, ...] | None = None
    map_name: str | None = None
    generator: str = "ragen"
    size: int = 4
    p: float = 0.8
    num_levels: int | None = None
    noise: str = "separate"
    is_slippery: bool = True
    success_rate: float = DEFAULT_SUCCESS_RATE
    reward_schedule: tuple[float, float, float] = (1.0, 0.0, 0.0)
    split: str = "all"
    max_turns: int | None = 5
    max_actions_per_turn: int | None = 5
    max_actions: int | None = 10

    def __post_init__(self) -> None:
        check_form(self, OBSERVATIONS, ARRAYS)
        for name, value, allowed in (
            ("generator", self.generator, GENERATORS),
            ("noise", self.noise, ("separate", "shared")),
            ("split", self.split, SPLITS),
        ):
            if value not in allowed:
                raise ConfigError(f"wanted {name} of {sorted(allowed)}, got {value!r}")
        if self.map_name is not None and self.map_name not in MAPS:
            raise ConfigError(f"wanted map_name of {sorted(MAPS)}, got {self.map_name!r}")
        if self.desc is not None and self.map_name is not None:
            raise ConfigError("wanted desc or map_name, got both")
        if self.num_levels is not None and (self.num_levels < 1 or not self.is_generated or self.noise == "shared"):
            raise ConfigError(
                f"wanted num_levels >= 1 of generated maps whose noise is separate, got {self.num_levels}"
            )
        if self.is_generated:
            check_map_settings(self.size, self.p)

    @property
    def is_generated(self) -> bool:
        """Whether maps come from the generator."""
        return self.desc is None and self.map_name is None

    @property
    def ice(self) -> Ice:
        """How slippery the lake is, and its rewards."""
        return Ice(self.success_rate if self.is_slippery else 1.0, self.reward_schedule)


def make_settings(preset: str, given: dict[str, Any]) -> FrozenLakeSettings:
    """Return the settings that preset and keywords describe.

    Raises:
        ConfigError: A setting is unknown or impossible.
    """
    return settings_from(FrozenLakeSettings, PRESETS, preset, given, discrete=DISCRETE, arrays=ARRAYS)


def check_map_settings(size: int, p: float) -> None:
    """Raise ConfigError if no map can have these properties."""
    if not 2 <= size <= MAX_SIDE:
        raise ConfigError(f"wanted a map size between 2 and {MAX_SIDE}, got {size}")
    if not 0 < p <= 1:
        raise ConfigError(f"wanted a probability of frozen cells 0 < p <= 1, got {p}")
