"""What decides the rooms, the rewards, the limits and the form of Sokoban."""

from dataclasses import dataclass
from typing import Any

from tsr_gym import ConfigError
from tsr_gym_envs.settings import check_form, settings_from
from tsr_gym_envs.sokoban.generate import GeneratorName, check_generator, check_room_settings
from tsr_gym_envs.sokoban.observation import OBSERVATIONS
from tsr_gym_envs.split import SPLITS
from tsr_gym_envs.tiles import ARRAYS

# What TSR's paper states, and what the code that its authors released does.
PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "tsr-code": {"obs_type": "grid_coord", "max_actions_per_turn": 2},
}
# Where actions are discrete; the limit is gym-sokoban's.
DISCRETE = {"obs_type": "array", "max_turns": None, "max_actions_per_turn": None, "max_actions": 120}


@dataclass(frozen=True, slots=True, kw_only=True)
class SokobanSettings:
    """What decides the rooms, the rewards, the limits and the form of Sokoban; `SokobanEnv` documents it."""

    preset: str = "paper"
    obs_type: str = "grid"
    action_type: str = "text"
    generator: GeneratorName = "native"
    dim: tuple[int, int] = (6, 6)
    num_boxes: int = 1
    solution_length: tuple[int, int] | None = None
    search_depth: int | None = None
    split: str = "all"
    level: str | None = None
    levels: str | None = None
    num_levels: int | None = None
    shape: tuple[int, int] | None = None
    reward_step: float = -0.1
    reward_box: float = 1.0
    reward_done: float = 10.0
    max_turns: int | None = 5
    max_actions_per_turn: int | None = 5
    max_actions: int | None = 10

    def __post_init__(self) -> None:
        check_form(self, OBSERVATIONS, ARRAYS)
        if self.level is not None and self.levels is not None:
            raise ConfigError("wanted level or levels, got both")
        if self.levels is None and self.split not in SPLITS:
            raise ConfigError(f"wanted split of {sorted(SPLITS)}, got {self.split!r}")
        if self.num_levels is not None and (self.num_levels < 1 or self.level is not None):
            raise ConfigError(f"wanted num_levels >= 1 and not beside level, got {self.num_levels}")
        if self.shape is not None and self.action_type == "text":
            raise ConfigError("shape is the size of boards where actions are discrete, got it with text actions")
        if self.is_generated:
            check_generator(self.generator, self.solution_length, self.search_depth)
            check_room_settings(self.dim, self.num_boxes, self.solution_length)

    @property
    def is_generated(self) -> bool:
        """Whether rooms come from the generator."""
        return self.level is None and self.levels is None

    @property
    def is_published(self) -> bool:
        """Whether rooms are drawn as published, each from a seed of its own."""
        return self.is_generated and self.generator != "native"


def make_settings(preset: str, given: dict[str, Any]) -> SokobanSettings:
    """Return the settings that keywords stand for.

    Raises:
        ConfigError: A setting is unknown or impossible.
    """
    return settings_from(SokobanSettings, PRESETS, preset, given, discrete=DISCRETE, arrays=ARRAYS)
