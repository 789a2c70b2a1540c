"""Stories in Jericho's interpreter: settings, states, and the operations of the child process that plays them.

Every answer of an operation depends on its arguments alone.
"""

import re
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from tsr_gym import ConfigError
from tsr_gym_envs.settings import settings_from
from tsr_gym_envs.zmachine.machine import Machine, Memory, Output

PRESETS: dict[str, dict[str, Any]] = {"default": {}}
DICE = ("fresh", "story")


@dataclass(frozen=True, slots=True, kw_only=True)
class JerichoSettings:
    """The settings of dice, limits and reported actions; `JerichoEnv` documents them."""

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


class About(NamedTuple):
    """The constant facts of a story.

    Attributes:
        supported: Whether Jericho knows where this very file keeps its points and its end.
        max_points: How many points there are; None where it is not supported.
        words: The words that it knows.
    """

    supported: bool
    max_points: int | None
    words: frozenset[str]


class StoryState(NamedTuple):
    """The state of a story.

    Attributes:
        memory: The interpreter's.
        text: What the story printed last.
        points: Points so far; None where Jericho does not support the file.
        ended: ``"won"``, ``"lost"``, ``"over"`` (it ended in an unknown way) or "".
    """

    memory: Memory
    text: str
    points: int | None
    ended: str


# How stories that were written with Inform end: three stars, no more (Zork prints four, and continues).
_END = re.compile(r"(?<!\*)\*{3}\s+([^*]+?)\s+\*{3}(?!\*)")
_WON = re.compile(r"\bwon\b|\bthe end\b", re.IGNORECASE)


def operations() -> dict[str, Callable[..., Any]]:
    """Return the operations of the child process, by name."""
    return {"about": about, "begin": begin, "step": step, "valid": valid}


@lru_cache(maxsize=32)
def _opened(story: Path, seed: int) -> Machine:
    return Machine(story, seed)


def about(story: Path, seed: int) -> About:
    """Return the constant facts of a story."""
    machine = _opened(story, seed)
    return About(machine.supported, machine.max_points(), machine.words)


def begin(story: Path, seed: int) -> StoryState:
    """Return the beginning of a story."""
    return _state(_opened(story, seed).start)


def step(
    story: Path, seed: int, state: StoryState, command: str, dice: int | None
) -> Generator[None, None, StoryState]:
    """Return the state after a command; `dice` are those of `Machine.run`. Yield once the story is loaded."""
    machine = _opened(story, seed)
    yield
    return _state(machine.run(state.memory, command, dice))


def valid(story: Path, seed: int, state: StoryState) -> Generator[None, None, tuple[str, ...] | None]:
    """Return the commands that change the story, by Jericho; None where it does not support the file.

    Yield once the story and what Jericho needs for this question are loaded.
    """
    machine = _opened(story, seed)
    machine.load_parser()
    yield
    machine.put(state.memory)
    return machine.valid_actions()


def _state(output: Output) -> StoryState:
    ended = output.ended
    if output.points is None and (match := _END.search(output.text)):
        ended = "won" if _WON.search(match[1]) else "lost"
    return StoryState(output.memory, output.text, output.points, ended or ("over" if output.halted else ""))
