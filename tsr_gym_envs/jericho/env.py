"""The Jericho environment: a Z-machine story of the user's, its interpreter's memory as a value."""

import re
from functools import lru_cache
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from tsr_gym import ConfigError, Step
from tsr_gym.codec import encode
from tsr_gym.optional import require
from tsr_gym_envs.jericho.stories import About, JerichoSettings, StoryState, make_settings
from tsr_gym_envs.zmachine.child import Child, NoAnswer, shared_child
from tsr_gym_envs.zmachine.machine import Memory, StoryEnv, refusal

OPERATIONS = "tsr_gym_envs.jericho.stories:operations"
INSTRUCTIONS = (
    "You play a text adventure. Every turn is one short command, such as 'north', 'open mailbox', 'take lamp', "
    "'inventory' or 'look'."
)
# Commands that every story understands in some way; the story decides which of them have an effect.
COMMON = (
    *("look", "inventory", "north", "south", "east", "west", "northeast", "northwest", "southeast", "southwest"),
    *("up", "down", "in", "out", "take all", "open door", "wait"),
)
# The interpreter's generator takes numbers below a thousand for something else.
_DICE = (1000, 1 << 31)
_VERSIONS, _HEADER = range(1, 9), 64
# The prompt, and the line above the text that the interpreter prints behind it.
_STATUS = re.compile(r"\s*\n>(?: {8,}[^\n]*)?\Z")


class JerichoEnv(StoryEnv[StoryState]):
    """Play any text adventure that is a Z-machine file, such as Zork.

    ## Description
    A story file from you, played by Jericho's interpreter (arXiv 1909.05398) in a child process. This package contains
    no story. A state holds the interpreter's whole memory, as what differs from the story's beginning. Needs
    the extra ``jericho``.

    ## Action Space
    Text: one command, as the story reads it. ``save``, ``restore``, ``undo``, ``restart``, ``quit`` and ``script`` mean
    nothing, nor do words that the story does not know, and commands of more than 198 bytes. All else is answered by
    the story, also what cannot be done.

    ## Observation Space
    Text: what the story printed.

    ## Starting State
    The story's beginning.

    ## Rewards
    Where Jericho supports the file, the points that a turn brought, as a share of all points. Elsewhere 1 for the turn
    that wins the story, judged by its last words (``*** You have won ***``, ``*** The End ***``), and 0.

    ## Episode End
    Terminates when the story ends: as Jericho reports where it supports the file, elsewhere by words between three
    stars or because the interpreter stops. Truncates after `max_turns`.

    ## Information
    As every `TextEnv`; also ``supported``: whether Jericho supports the file, by its checksum; ``points`` and
    ``max_points``, None where it does not; ``won``, ``lost``; and ``valid_actions``, None unless asked for and
    supported: the commands that change the story, which Jericho takes much longer than a turn to find.

    ## Arguments
    | keyword | default |
    |---|---|
    | `story` | a Z-machine file, such as ``zork1.z5`` |
    | `dice` | ``fresh``: drawn anew every turn, from this environment's random numbers, so that no search foresees |
    | | them; ``story``: the interpreter's own, which a snapshot holds and a search foresees |
    | `story_seed` | 1: seed of the interpreter's own generator |
    | `valid_actions` | False: whether `info` and `legal_actions` hold Jericho's valid actions; needs spaCy's model |
    | `max_turns` | 100; None for any number |
    | `max_seconds` | 10: processor time after which the interpreter is ended; that command then means nothing |
    | `preset` | ``default`` |
    | `render_mode` | None or ``ansi`` |

    ## Version History
    v0: first version.
    """

    def __init__(
        self, story: Path, settings: JerichoSettings, *, max_seconds: float = 10.0, render_mode: str | None = None
    ) -> None:
        # A story is its content, wherever it lies.
        super().__init__(
            (settings, blake2b(story.read_bytes(), digest_size=16).hexdigest()),
            max_turns=settings.max_turns,
            max_seconds=max_seconds,
            render_mode=render_mode,
        )
        self.story = story
        self.settings = settings
        self.draws_noise = settings.dice == "fresh"
        self.instructions = INSTRUCTIONS

    @property
    def about(self) -> About:
        """The constant facts of the story."""
        return _about(self.story, self.settings.story_seed)

    def memory(self, state: StoryState) -> Memory:
        """Return the interpreter's memory in a state."""
        return state.memory

    def words(self, state: StoryState) -> frozenset[str]:
        """Return the words that the story knows."""
        return self.about.words

    def initial(self, rng: np.random.Generator, options: dict[str, Any]) -> StoryState:
        """Return the story's beginning.

        Raises:
            ConfigError: There are options.
        """
        if options:
            raise ConfigError(f"unknown options of reset {sorted(options)}; known: none")
        return _beginning(self.story, self.settings.story_seed)

    def run_command(self, state: StoryState, command: str, rng: np.random.Generator) -> Step:
        """Return the effect of a command on the story."""
        dice = int(rng.integers(*_DICE)) if self.draws_noise else None
        asked = (self.story, self.settings.story_seed, state, command, dice)
        after: StoryState = _child().ask("step", *asked, seconds=self.max_seconds)
        if after.points is None or state.points is None:
            reward = float(after.ended == "won")
        else:
            reward = (after.points - state.points) / max(self.about.max_points or 0, 1)
        return Step(after, reward, bool(after.ended), {})

    def observe(self, state: StoryState) -> str:
        """Return the text that the story printed."""
        return _STATUS.sub("", state.text).strip()

    def state_key(self, state: StoryState) -> bytes:
        """Return the bytes of the interpreter's memory, without its generator.

        Stories count their turns in it, so states are rarely equal that were reached in different numbers of turns.
        """
        memory = state.memory
        return encode((memory.places, memory.values, memory.registers[:-3], state.ended))

    def is_success(self, state: StoryState) -> bool:
        """Return whether the story is won, judged by its output."""
        return state.ended == "won"

    def legal_actions(self, state: StoryState) -> tuple[str, ...]:
        """Return Jericho's valid actions where they are asked for and known; else common commands of known words."""
        common = tuple(command for command in COMMON if refusal(command, self.about.words) is None)
        return self._valid_actions(state) or common

    def _valid_actions(self, state: StoryState) -> tuple[str, ...] | None:
        if not self.settings.valid_actions or state.ended:
            return None
        return _valid(self.story, self.settings.story_seed, state, self.max_seconds)

    def _facts(self, state: StoryState) -> dict[str, Any]:
        return {
            "success": self.is_success(state),
            "supported": self.about.supported,
            "points": state.points,
            "max_points": self.about.max_points,
            "won": state.ended == "won",
            "lost": state.ended == "lost",
            "valid_actions": self._valid_actions(state),
        }


def _child() -> Child:
    return shared_child(OPERATIONS)


@lru_cache(maxsize=64)
def _about(story: Path, seed: int) -> About:
    facts: About = _child().ask("about", story, seed)
    return facts


@lru_cache(maxsize=64)
def _beginning(story: Path, seed: int) -> StoryState:
    state: StoryState = _child().ask("begin", story, seed)
    return state


@lru_cache(maxsize=1024)
def _valid(story: Path, seed: int, state: StoryState, max_seconds: float) -> tuple[str, ...] | None:
    """Return Jericho's valid actions; None where it does not know the story, or hangs over the question."""
    try:
        actions: tuple[str, ...] | None = _child().ask("valid", story, seed, state, seconds=max_seconds)
    except NoAnswer:
        return None
    return actions


def make(
    story: str | PathLike[str],
    *,
    preset: str = "default",
    max_seconds: float = 10.0,
    render_mode: str | None = None,
    **settings: Any,
) -> JerichoEnv:
    """Make the environment behind ``gym.make("tsr/Jericho-v0", story=PATH)``; `JerichoEnv` documents the keywords.

    Raises:
        ConfigError: A setting is unknown or impossible, or the file is no Z-machine story.
        MissingExtra: Jericho is not installed.
    """
    require("jericho", "jericho")
    checked = make_settings(preset, settings)
    path = Path(story).expanduser().resolve()
    check_story(path)
    return JerichoEnv(path, checked, max_seconds=max_seconds, render_mode=render_mode)


def check_story(path: Path) -> None:
    """Raise ConfigError where a file is no Z-machine story, by what every story begins with."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEADER)
    except OSError as error:
        raise ConfigError(f"wanted story=PATH of a Z-machine file, such as zork1.z5; {path}: {error}") from error
    if len(head) < _HEADER or head[0] not in _VERSIONS:
        raise ConfigError(f"{path} is no Z-machine story: wanted a header of version 1 to 8, such as a .z5 or .z8 file")
