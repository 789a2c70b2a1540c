"""What decides a story's dice, the limits of an episode and what is told."""

from dataclasses import dataclass
from typing import Any

from tsr_gym import ConfigError
from tsr_gym_envs.settings import settings_from

PRESETS: dict[str, dict[str, Any]] = {"default": {}}
DICE = ("fresh", "story")


@dataclass(frozen=True, slots=True, kw_only=True)
class JerichoSettings:
    """What decides the dice, the limits and what is told; `JerichoEnv` documents it."""

    preset: str = "default"
    dice: str = "fresh"
    story_seed: int = 1
    valid_actions: bool = False
    max_turns: int | None = 100

    def __post_init__(self) -> None:
        if self.dice not in DICE:
            raise ConfigError(f"wanted dice of {sorted(DICE)}, got {self.dice!r}")
        if self.story_seed < 1:
            raise ConfigError(f"wanted story_seed >= 1, got {self.story_seed}")


def make_settings(preset: str, given: dict[str, Any]) -> JerichoSettings:
    """Return the settings that keywords stand for.

    Raises:
        ConfigError: A setting is unknown or impossible.
    """
    return settings_from(JerichoSettings, PRESETS, preset, given, discrete={}, arrays=())
