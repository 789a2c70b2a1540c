"""A story in Jericho's Frotz, its memory as a value, and the common part of the environments that play it.

A machine is set to any memory before each command. The interpreter can end its process or hang, so a machine runs in a
child process, and no environment calls it directly.
"""

import re
import warnings
from collections.abc import Set
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tsr_gym import ConfigError, Limits, SnapshotError, Step, TextEnv
from tsr_gym.ranges import check_range
from tsr_gym.snapshots import EnvState
from tsr_gym.state_env import StateT
from tsr_gym.teaching import Teaching
from tsr_gym_envs.reasons import invalid, shown
from tsr_gym_envs.zmachine.child import MAX_SECONDS, NoAnswer

# The model that Jericho reads texts with.
ENGLISH = "en_core_web_sm"
# Bytes of the Z-machine's memory, its stack included.
Cells = NDArray[np.uint8]


class Memory(NamedTuple):
    """An interpreter's memory, which is a few hundred bytes where the whole is forty thousand.

    Attributes:
        places: Where memory or stack differ from those of the story's beginning: little-endian uint32, ascending.
        values: The bytes that stand there.
        registers: Program counter, stack and frame pointer, frames, opcode, and the three numbers of the generator.
        shown: The text that the interpreter shows last, in its own encoding.
    """

    places: bytes
    values: bytes
    registers: tuple[int, ...]
    shown: bytes


def differences(cells: Cells, start: Cells) -> tuple[bytes, bytes]:
    """Return the places where cells differ from those of the start, and their values.

    >>> start = np.zeros(9, np.uint8)
    >>> changes = differences(np.array([0, 7, 0, 0, 0, 0, 0, 0, 5], np.uint8), start)
    >>> filled(*changes, start).tolist()
    [0, 7, 0, 0, 0, 0, 0, 0, 5]
    """
    places = np.flatnonzero(cells != start)
    return places.astype("<u4").tobytes(), cells[places].tobytes()


def filled(places: bytes, values: bytes, start: Cells) -> Cells:
    """Return the cells that `differences` came from."""
    cells = start.copy()
    cells[np.frombuffer(places, "<u4")] = np.frombuffer(values, np.uint8)
    return cells


def can_be(memory: Any) -> bool:
    """Return whether a value has the form of a memory, as one that was read from bytes should."""
    return (
        type(memory) is Memory
        and isinstance(memory.places, bytes)
        and isinstance(memory.values, bytes)
        and isinstance(memory.shown, bytes)
        and len(memory.places) == 4 * len(memory.values)
    )


class Output(NamedTuple):
    """The result of a command.

    Attributes:
        memory: The memory after it.
        text: What the story printed.
        halted: Whether the interpreter stopped for good, at the end of the story or at a fault in it.
        points: The story's points; None where Jericho does not support it.
        ended: ``"won"``, ``"lost"``, or "" before the end or where Jericho does not support the story.
    """

    memory: Memory
    text: str
    halted: bool
    points: int | None
    ended: str


class Machine:
    """A story and its interpreter.

    Args:
        story: A Z-machine file.
        seed: Seed of the interpreter's generator, at least 1.

    Attributes:
        frotz: Jericho's environment.
        start: What the story prints first, and the memory then.
        supported: Whether Jericho knows where this story keeps its points.
        words: The words that the story knows, each as long as it keeps it.
    """

    def __init__(self, story: Path, seed: int = 1) -> None:
        import jericho

        # Jericho warns of unsupported stories and cut commands; the environments report both themselves.
        warnings.simplefilter("ignore")
        self.frotz: Any = jericho.FrotzEnv(str(story), seed)
        text, _ = self.frotz.reset()
        self._first: Cells = self._cells()
        self.supported = bool(self.frotz.is_fully_supported)
        self.start = self._output(text)
        # Read from the file; the story itself stays where it is.
        self.words = frozenset(str(word) for word in self.frotz.get_dictionary())

    def run(self, memory: Memory, command: str, dice: int | None = None) -> Output:
        """Return the output of a command in a story with some memory.

        Args:
            memory: The story's memory before the command.
            command: The player's command.
            dice: State of the interpreter's generator before the command; None for the one in the memory.
        """
        self.put(memory, dice)
        return self.send(command)

    def send(self, command: str) -> Output:
        """Return the output of a command in the current story."""
        output = self._output(self.frotz.step(command)[0])
        if output.halted:
            # A halted interpreter accepts no memory, so it is started again.
            self.frotz.reset()
        return output

    def put(self, memory: Memory, dice: int | None = None) -> None:
        """Set the story to a memory."""
        cells = filled(memory.places, memory.values, self._first)
        size = self.frotz.frotz_lib.getRAMSize()
        *registers, rng, interval, counter = memory.registers
        random = (rng, interval, counter) if dice is None else (dice, 0, 0)
        self.frotz.set_state((cells[:size], cells[size:], *registers, random, memory.shown))

    def max_points(self) -> int | None:
        """Return the number of points; None where Jericho does not support the story."""
        return int(self.frotz.get_max_score()) if self.supported else None

    def load_parser(self) -> None:
        """Load what `valid_actions` reads texts with, so that the question does not.

        Raises:
            ConfigError: Jericho supports the story, and spaCy's model of English is not installed.
        """
        import jericho

        if not (self.supported and self.frotz.bindings):
            return
        # Jericho would download the model, and end this process where it cannot.
        if find_spec(ENGLISH) is None:
            raise ConfigError(f"valid_actions=True needs spaCy's model: python -m spacy download {ENGLISH}")
        jericho.util.extract_objs("look")

    def valid_actions(self) -> tuple[str, ...] | None:
        """Return the commands that change the current story, by Jericho; None where it does not support the story."""
        if not (self.supported and self.frotz.bindings):
            return None
        return tuple(sorted(self.frotz.get_valid_actions(use_parallel=False)))

    def _output(self, text: str) -> Output:
        frotz, points, ended = self.frotz, None, ""
        if self.supported:
            points = int(frotz.get_score())
            ended = "won" if frotz.victory() else "lost" if frotz.game_over() else ""
        return Output(self._memory(), text, bool(frotz._emulator_halted()), points, ended)

    def _cells(self) -> Cells:
        ram, stack, *_ = self.frotz.get_state()
        return np.concatenate([ram, stack])

    def _memory(self) -> Memory:
        ram, stack, *registers, rng, shown = self.frotz.get_state()
        cells = np.concatenate([ram, stack])
        return Memory(*differences(cells, self._first), tuple(int(register) for register in (*registers, *rng)), shown)


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
        max_seconds: Processor time that the interpreter may take for a command.
        render_mode: ``"ansi"`` or None.
    """

    def __init__(self, rules: Any, *, max_turns: int | None, max_seconds: float, render_mode: str | None) -> None:
        check_range(max_seconds=max_seconds, above=0, most=MAX_SECONDS)
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
            NoAnswer: The interpreter hangs over this command, or ends itself at it.
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
            return Step(state, 0.0, False, invalid(f"the game cannot answer: {error}"))

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
