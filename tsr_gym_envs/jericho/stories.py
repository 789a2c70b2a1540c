"""Stories in Jericho's interpreter, answered in a process of its own; every answer depends on the question alone."""

import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from tsr_gym_envs.jericho.state import About, StoryState
from tsr_gym_envs.zmachine.machine import Machine, Told

# How stories that were written with Inform end: three stars, no more (Zork prints four, and goes on).
_END = re.compile(r"(?<!\*)\*{3}\s+([^*]+?)\s+\*{3}(?!\*)")
_WON = re.compile(r"\bwon\b|\bthe end\b", re.IGNORECASE)


def operations() -> dict[str, Callable[..., Any]]:
    """Return what can be asked of the process, by name."""
    return {"about": about, "begin": begin, "step": step, "valid": valid}


@lru_cache(maxsize=32)
def _opened(story: Path, seed: int) -> Machine:
    return Machine(story, seed)


def about(story: Path, seed: int) -> About:
    """Return what does not change in a story."""
    machine = _opened(story, seed)
    return About(machine.supported, machine.max_points(), machine.words)


def begin(story: Path, seed: int) -> StoryState:
    """Return the beginning of a story."""
    return _state(_opened(story, seed).start)


def step(story: Path, seed: int, state: StoryState, command: str, dice: int | None) -> StoryState:
    """Return what a command makes of a story; `dice` are those of `Machine.run`."""
    return _state(_opened(story, seed).run(state.memory, command, dice))


def valid(story: Path, seed: int, state: StoryState) -> tuple[str, ...] | None:
    """Return what Jericho finds to change the story; None where it does not know it."""
    machine = _opened(story, seed)
    machine.put(state.memory)
    return machine.valid_actions()


def _state(told: Told) -> StoryState:
    ended = told.ended
    if told.points is None and (found := _END.search(told.text)):
        ended = "won" if _WON.search(found[1]) else "lost"
    return StoryState(told.memory, told.text, told.points, ended or ("over" if told.halted else ""))
