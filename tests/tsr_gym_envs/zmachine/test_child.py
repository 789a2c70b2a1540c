"""A child answers, and what hangs or ends is an error after which it answers again."""

import copy
import os
import pickle
import signal

import pytest

from tsr_gym import MissingExtra
from tsr_gym_envs.zmachine.child import Child, InterpreterFailed, NoAnswer, shared_child

OPERATIONS = "tests.tsr_gym_envs.zmachine.operations:operations"


@pytest.fixture(scope="module")
def child():
    made = Child(OPERATIONS)
    yield made
    made.stop()


def test_a_child_is_another_process_that_stays(child):
    assert child.ask("add", 2, 3) == 5
    assert child.ask("pid") == child.ask("pid") != os.getpid()


def test_what_hangs_is_ended_in_its_time_and_started_anew(child):
    before = child.ask("pid")
    with pytest.raises(NoAnswer, match=r"nothing came within 0\.2 s"):
        child.ask("hang", 60, seconds=0.2)
    assert child.ask("pid") != before
    assert child.ask("add", 1, 1) == 2


def test_what_ends_its_process_is_an_error_and_not_the_end_of_ours(child):
    with pytest.raises(NoAnswer, match="the process ended during end"):
        child.ask("end")
    assert child.ask("add", 1, 1) == 2


def test_a_child_that_was_ended_from_outside_answers_all_the_same(child):
    os.kill(child.ask("pid"), signal.SIGKILL)
    assert child.ask("add", 4, 4) == 8


def test_an_error_of_an_operation_is_told_and_the_process_stays(child):
    before = child.ask("pid")
    with pytest.raises(InterpreterFailed, match="ValueError: a fault of the library"):
        child.ask("fail")
    assert child.ask("pid") == before


def test_a_missing_library_is_the_extra_that_brings_it(child):
    with pytest.raises(MissingExtra, match=r"pip install 'tsr-gym\[jericho\]'"):
        child.ask("missing")


def test_what_a_child_makes_does_not_depend_on_the_hashes_of_its_parent(child, monkeypatch):
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    other = Child(OPERATIONS)
    assert other.ask("hash") == child.ask("hash")
    other.stop()


def test_copies_ask_the_same_process_and_what_was_pickled_its_own(child):
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
            other = child.ask("pid")
            os.write(theirs, str(other).encode())
            child.stop()
        finally:
            os._exit(0)
    os.waitpid(forked, 0)
    assert int(os.read(ours, 32)) != before
    assert child.ask("pid") == before


def test_environments_of_a_process_share_a_child():
    assert shared_child(OPERATIONS) is shared_child(OPERATIONS)
