"""Settings of Sokoban: rooms, rewards, limits, and the form of actions and observations."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

from tsr_gym import ConfigError
from tsr_gym_envs.settings import SPLITS, check_form, settings_from
from tsr_gym_envs.sokoban.rules import OBSERVATIONS
from tsr_gym_envs.tiles import ARRAYS

GeneratorName = Literal["native", "ragen", "gym-sokoban"]
# The settings of TSR's paper, and those of the authors' released code.
PRESETS: dict[str, dict[str, Any]] = {"paper": {}, "tsr-code": {"obs_type": "grid_coord", "max_actions_per_turn": 2}}
# Where actions are discrete; the limit is gym-sokoban's.
DISCRETE = {"obs_type": "array", "max_turns": None, "max_actions_per_turn": None, "max_actions": 120}


@dataclass(frozen=True, slots=True, kw_only=True)
class SokobanSettings:
    """Settings of Sokoban; `SokobanEnv` documents each of them."""

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
            raise ConfigError(f"wanted num_levels >= 1 and no level, got {self.num_levels}")
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
        """Whether rooms come from a published generator, each from its own seed."""
        return self.is_generated and self.generator != "native"


def make_settings(preset: str, given: dict[str, Any]) -> SokobanSettings:
    """Return the settings that preset and keywords describe.

    Raises:
        ConfigError: A setting is unknown or impossible.
    """
    return settings_from(SokobanSettings, PRESETS, preset, given, discrete=DISCRETE, arrays=ARRAYS)


def check_generator(
    generator: str, solution_length: tuple[int, int] | None = None, search_depth: int | None = None
) -> None:
    """Raise ConfigError for an unknown generator, or for a setting of another generator."""
    if generator not in get_args(GeneratorName):
        raise ConfigError(f"wanted generator of {sorted(get_args(GeneratorName))}, got {generator!r}")
    if (solution_length is not None and generator != "native") or (search_depth is not None and generator != "ragen"):
        raise ConfigError(f"solution_length is native's setting and search_depth ragen's, got generator {generator!r}")


def check_room_settings(dim: tuple[int, int], num_boxes: int, solution_length: tuple[int, int] | None) -> None:
    """Raise ConfigError if no room can have these properties."""
    if min(dim) < 4 or max(dim) > 64:
        raise ConfigError(f"wanted dim between 4x4 and 64x64, walls included, got {dim}")
    inner = (dim[0] - 2) * (dim[1] - 2)
    if not 1 <= num_boxes <= inner // 2:
        raise ConfigError(f"wanted 1 to {inner // 2} boxes in a {dim[0]}x{dim[1]} room, got {num_boxes}")
    if solution_length is not None and not 1 <= solution_length[0] <= solution_length[1]:
        raise ConfigError(f"wanted 1 <= shortest <= longest solution_length, got {solution_length}")
