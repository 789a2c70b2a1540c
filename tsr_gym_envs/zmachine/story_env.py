"""StoryEnv: the common part of environments whose states hold an interpreter's memory, and the commands it accepts."""

import re
from collections.abc import Set
from typing import Any

import numpy as np

from tsr_gym import ConfigError, Limits, SnapshotError, Step, TextEnv
from tsr_gym.snapshots import EnvState
from tsr_gym.state_env import StateT
from tsr_gym.teaching import Teaching
from tsr_gym_envs.reasons import invalid, shown
from tsr_gym_envs.zmachine.child import NoAnswer
from tsr_gym_envs.zmachine.machine import Memory, can_be

# The longest command of the interpreter, in bytes of UTF-8.
MAX_COMMAND = 198
# These write files, or stop the interpreter; a search undoes and restores by itself.
RESERVED = frozenset(
    (
        *("save", "restore", "undo", "restart", "quit", "q", "unscript", "record", "replay"),
        *("script", "script on", "script off", "transcript", "transcript on", "transcript off"),
        *("recording", "recording on", "recording off"),
    )
)
# TextWorld's internal commands, which reveal and change what a player must not.
_INNER = re.compile(r"tw-|restrict |print_state|print state")
_CLAUSES = re.compile(r"[.,;!?]|\bthen\b|\band\b")
_WORDS = re.compile(r"[^\s.,;:!?\"()]+")
# A dictionary keeps the beginning of a word: six letters in early games, nine in later ones, fewer of other signs.
_KEPT = range(4, 10)


def command_of(action: str) -> str:
    r"""Return the command that an action stands for: its words, one blank between them.

    >>> command_of("  take  lamp\n")
    'take lamp'
    """
    return " ".join(action.split())


def refusal(command: str, dictionary: Set[str]) -> str | None:
    """Return the reason why a command is not passed to the interpreter; None if it is passed.

    Args:
        command: What `command_of` returned.
        dictionary: The words that the game knows.

    >>> words = {"go", "north", "save", "cat", "the", "examin"}
    >>> refusal("examine the cat", words), refusal("jump north", words)
    (None, "'jump' is no word of this game")
    >>> refusal("go north. Save", words)
    "'save' is left to the search: write what the player does"
    """
    if len(command.encode("utf-8", "replace")) > MAX_COMMAND:
        return f"the command is longer than {MAX_COMMAND} bytes"
    words = _WORDS.findall(command.lower())
    if not words:
        return f"{shown(command)} holds no word"
    for clause in _CLAUSES.split(command.lower()):
        words_of_clause = " ".join(clause.split())
        if words_of_clause in RESERVED or _INNER.match(words_of_clause):
            return f"{shown(words_of_clause)} is left to the search: write what the player does"
    for word in words:
        if not (word.isdecimal() or word in dictionary or any(word[:kept] in dictionary for kept in _KEPT)):
            return f"{shown(word)} is no word of this game"
    return None


class StoryEnv(TextEnv[StateT]):
    """A text environment whose turns are commands to a story.

    Args:
        rules: What the rules depend on.
        max_turns: Turns of an episode; None for any number.
        max_seconds: When the interpreter is ended because it does not answer a command.
        render_mode: ``"ansi"`` or None.
    """

    def __init__(self, rules: Any, *, max_turns: int | None, max_seconds: float, render_mode: str | None) -> None:
        if max_seconds <= 0:
            raise ConfigError(f"wanted max_seconds > 0, got {max_seconds}")
        super().__init__(rules, limits=Limits(max_turns, 1), separator=None, render_mode=render_mode)
        self.max_seconds = max_seconds

    def memory(self, state: StateT) -> Memory:
        """Return the interpreter's memory in a state."""
        raise NotImplementedError

    def words(self, state: StateT) -> Set[str]:
        """Return the words that the story knows."""
        raise NotImplementedError

    def run_command(self, state: StateT, command: str, rng: np.random.Generator) -> Step:
        """Return the effect of a command that passed `refusal`.

        Raises:
            NoAnswer: The interpreter hangs, or ended.
        """
        raise NotImplementedError

    def transition(self, state: StateT, action: str, rng: np.random.Generator) -> Step:
        """Return the effect of a command; a command that stops the interpreter is invalid."""
        command = command_of(action)
        reason = refusal(command, self.words(state))
        if reason is not None:
            return Step(state, 0.0, False, invalid(reason))
        try:
            return self.run_command(state, command, rng)
        except NoAnswer as error:
            return Step(state, 0.0, False, invalid(f"the game did not answer: {error}"))

    def teaching(self) -> Teaching | None:
        """Return None: the texts are not for a very small model."""
        return None

    def set_env_state(self, state: EnvState, *, seed: int | None = None) -> None:
        """Continue from what `env_state` returned.

        Raises:
            SnapshotError: The state belongs to something else, or is damaged; this environment is then unchanged.
        """
        inner = state.episode.state if isinstance(state, EnvState) else None
        try:
            is_sound = inner is not None and can_be(self.memory(inner))
        # Foreign bytes can hold any value in place of the state.
        except (AttributeError, TypeError):
            is_sound = False
        if not is_sound:
            raise SnapshotError(f"wanted a state of {type(self).__name__} with an interpreter's memory: damaged")
        super().set_env_state(state, seed=seed)
