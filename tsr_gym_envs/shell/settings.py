"""The settings of the shell, and the state of an episode."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from tsr_gym import ConfigError
from tsr_gym.ranges import check_limits
from tsr_gym_envs.settings import SPLITS, check_choices, settings_from
from tsr_gym_envs.shell.families import FAMILIES
from tsr_gym_envs.shell.session import Session, ShellLimits
from tsr_gym_envs.shell.tasks import MAX_DEPTH, TaskKey, stated_share

# The commands ask every world for the preset "paper" where the user names none. No paper has these tasks.
PRESETS: dict[str, dict[str, Any]] = {"default": {}, "paper": {}}
OBSERVATION_MODES = ("full", "output", "compact")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellSettings:
    """The settings of tasks, limits and observations; `ShellEnv` documents them."""

    preset: str = "default"
    style: str = "sentences"
    depth: int | tuple[int, ...] = (1, 3)
    split: str = "all"
    observation_mode: str = "full"
    max_turns: int | None = 20
    max_shown: int = 2_000
    max_steps: int = 500_000
    max_commands: int = 1_000
    max_output: int = 100_000
    max_bytes: int = 1_000_000

    def __post_init__(self) -> None:
        check_choices(
            style=(self.style, FAMILIES),
            split=(self.split, SPLITS),
            observation_mode=(self.observation_mode, OBSERVATION_MODES),
        )
        low, high = self.depths[0], self.depths[-1]
        if len(self.depths) != 2 or not 1 <= low <= high <= MAX_DEPTH:
            raise ConfigError(f"wanted depth from 1 to {MAX_DEPTH}, or two of them, got {self.depth!r}")
        check_limits(
            max_shown=self.max_shown,
            max_steps=self.max_steps,
            max_commands=self.max_commands,
            max_output=self.max_output,
            max_bytes=self.max_bytes,
        )

    @property
    def depths(self) -> tuple[int, ...]:
        """The least and the greatest depth."""
        return self.depth if isinstance(self.depth, tuple) else (self.depth, self.depth)

    @property
    def limits(self) -> ShellLimits:
        """The limits of one command."""
        return ShellLimits(self.max_steps, self.max_commands, self.max_output, self.max_bytes)


def make_settings(preset: str, given: dict[str, Any]) -> ShellSettings:
    """Return the settings that keywords stand for.

    Raises:
        ConfigError: A setting is unknown or impossible.
    """
    return settings_from(ShellSettings, PRESETS, preset, given, discrete={}, arrays=())


class ShellState(NamedTuple):
    """The state of an episode.

    Attributes:
        task: What decides the task.
        session: Files, folder and variables.
        command: The last command; "" at the beginning.
        output: What it printed.
        status: Its exit status.
    """

    task: TaskKey
    session: Session
    command: str = ""
    output: str = ""
    status: int = 0


def stated_progress(state: ShellState) -> float:
    """Return the share of the conditions in the task's words that the files meet.

    The conditions follow from the task and from the files at its beginning, which every agent can read.
    """
    return stated_share(state.task, state.session.files)
