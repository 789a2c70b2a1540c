"""Memories as differences, commands that are refused, and the child process that plays."""

import copy
import math
import os
import pickle
import re
import signal

import numpy as np
import pytest

from tsr_gym import ConfigError, MissingExtra
from tsr_gym_envs.zmachine.child import ASKED, Child, InterpreterFailed, NoAnswer, shared_child
from tsr_gym_envs.zmachine.machine import Memory, StoryEnv, can_be, command_of, differences, filled, refusal


@pytest.mark.parametrize("changes", [0, 1, 17, 4000])
def test_cells_come_back_from_their_differences(changes):
    rng = np.random.default_rng(changes)
    start = rng.integers(256, size=4000, dtype=np.uint8)
    cells, before = start.copy(), start.copy()
    places = rng.choice(4000, size=changes, replace=False)
    cells[places] += 1
    kept = differences(cells, start)
    assert kept == differences(cells.copy(), start)
    assert np.array_equal(filled(*kept, start), cells)
    filled(*kept, start)[0] ^= 9
    assert np.array_equal(start, before)
    assert (len(kept[0]), len(kept[1])) == (4 * changes, changes)


def test_words_of_the_game_reach_it_and_a_limit_that_is_no_time_is_refused():
    commands = (
        "go north",
        "TAKE LAMP",
        "take lamp. go north",
        "save lamp",
        "examined lamp",
        "superbriefly",
        "take 3 lamp",
    )
    assert {refusal(command, WORDS) for command in (*commands, "x")} == {None}
    for seconds in (0, -1, math.nan, math.inf, 1e9, "10"):
        with pytest.raises(ConfigError, match="wanted max_seconds > 0"):
            StoryEnv((), max_turns=5, max_seconds=seconds, render_mode=None)


@pytest.mark.parametrize(
    "forged", [None, (), (b"", b"", (), b""), Memory(b"\0", b"", (), b""), Memory(b"", "", (), b"")], ids=repr
)
def test_what_cannot_be_a_memory_is_known(forged):
    assert not can_be(forged)
    assert can_be(Memory(b"\0\0\0\0", b"\1", (1, 2), b""))


WORDS = frozenset(
    ("go", "north", "take", "lamp", "save", "undo", "quit", "script", "on", "examine", "superbrie", "tw-print", "x")
)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("save", "'save' is left to the search"), ("go north. undo", "'undo' is left to the search"),
        ("take lamp then QUIT", "'quit' is left to the search"), ("script on", "'script on' is left to the search"),
        ("tw-print score", "'tw-print score' is left to the search"), ("dance", "'dance' is no word of this game"),
        ("take the lamp", "'the' is no word of this game"), ("||", r"'\|\|' is no word of this game"),
        ("...", "holds no word"), ("take " * 50, "the command is longer than 198 bytes"),
        ("漢字", "is no word of this game"),
    ],
)  # fmt: skip
def test_everything_else_is_told_why_not(command, reason):
    assert re.match(rf".*{reason}", refusal(command_of(command), WORDS))


OPERATIONS = "tests.tsr_gym_envs.zmachine.operations:operations"


@pytest.fixture(scope="module")
def child():
    made = Child(OPERATIONS)
    yield made
    made.stop()


def test_a_child_is_a_process_that_stays_and_its_errors_are_reported(child):
    assert child.ask("add", 2, 3) == 5
    assert child.ask("pid") == child.ask("pid") != os.getpid()
    before = child.ask("pid")
    with pytest.raises(InterpreterFailed, match="ValueError: a fault of the library"):
        child.ask("fail")
    assert child.ask("pid") == before
    with pytest.raises(MissingExtra, match=r"pip install 'tsr-gym\[jericho\]'"):
        child.ask("missing")


@pytest.mark.parametrize("end", [("hang",), ("end", 3), ("shot", signal.SIGSEGV)], ids=str)
def test_a_command_that_hangs_or_ends_the_interpreter_has_no_answer_and_the_next_question_has(child, end):
    before = child.ask("pid")
    with pytest.raises(NoAnswer):
        child.ask(*end, seconds=0.2)
    assert child.ask("pid") != before
    assert child.ask("add", 1, 1) == 2


@pytest.mark.parametrize(("loading", "waiting"), [(0.5, 0.0), (0.0, 0.5)])
def test_neither_loading_nor_a_busy_machine_takes_the_time_of_a_command(child, loading, waiting):
    os.kill(child.ask("pid"), signal.SIGKILL)
    assert child.ask("play", loading, waiting, 7, seconds=0.05) == 7


@pytest.mark.parametrize("end", [("shot", signal.SIGKILL), ("shot", signal.SIGTERM), ("unloaded",)], ids=str)
def test_a_process_that_was_ended_from_outside_or_before_it_loaded_is_an_error_and_no_fact_of_the_game(child, end):
    with pytest.raises(InterpreterFailed, match=f"{ASKED} times") as error:
        child.ask(*end, seconds=1.0)
    assert not isinstance(error.value, NoAnswer)
    assert child.ask("add", 1, 1) == 2


@pytest.mark.parametrize("stage", ["loading", "after"])
def test_a_question_that_the_clock_ends_is_an_error_and_no_fact_of_the_game(stage, monkeypatch):
    child = Child(OPERATIONS)
    child.ask("pid")
    monkeypatch.setattr("tsr_gym_envs.zmachine.child.LOAD_SECONDS", 0.1)
    with pytest.raises(InterpreterFailed, match=r"no answer to play within 0\.\d+ s") as error:
        child.ask("play", *((30, 0) if stage == "loading" else (0, 30)), 7, seconds=0.05)
    assert not isinstance(error.value, NoAnswer)
    child.stop()


def test_what_a_child_makes_does_not_depend_on_the_hashes_of_its_parent(child, monkeypatch):
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    other = Child(OPERATIONS)
    assert other.ask("hash") == child.ask("hash")
    other.stop()


def test_copies_ask_the_same_process_and_what_was_pickled_its_own(child):
    assert shared_child(OPERATIONS) is shared_child(OPERATIONS)
    assert copy.deepcopy(child).ask("pid") == child.ask("pid")
    other = pickle.loads(pickle.dumps(child))
    assert other.ask("pid") != child.ask("pid")
    other.stop()


def test_a_forked_process_starts_a_child_of_its_own(child):
    before = child.ask("pid")
    ours, theirs = os.pipe()
    forked = os.fork()
    if forked == 0:
        # Nothing of the tests may run on here.
        try:
            os.write(theirs, str(child.ask("pid")).encode())
            child.stop()
        finally:
            os._exit(0)
    os.waitpid(forked, 0)
    assert int(os.read(ours, 32)) != before
    assert child.ask("pid") == before
