"""Interpreters that are killed or stopped at random times: every question gets its answer."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from tests.abuse.attacks import Counts, Outcome, attacked, counted
from tsr_gym_envs.zmachine.child import Child, InterpreterFailed, NoAnswer

OPERATIONS = "tests.tsr_gym_envs.zmachine.operations:operations"
# More processor time than a question of the campaign takes, and less than its loading and its waiting.
SECONDS = 0.05


def child_campaign(count: int, seed: int) -> Counts:
    """Return the outcomes of questions to a process that is killed or held up while it loads or answers."""
    child = Child(OPERATIONS)
    try:
        return counted(_questions(count, np.random.default_rng(seed), child))
    finally:
        child.stop()


def _questions(count: int, rng: np.random.Generator, child: Child) -> Iterator[Outcome]:
    for number in range(count):
        loading, waiting, moment = rng.uniform(0, 0.2, size=3)
        shot = int(rng.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGSTOP]))
        process = child.ask("pid")
        attacker = threading.Thread(target=_shoot, args=(process, shot, moment))
        attacker.start()
        what = f"signal {shot} at {moment:.3f} s of a question that loads {loading:.3f} s and waits {waiting:.3f} s"
        yield attacked(what, lambda asked=(loading, waiting, number): _answers(child, *asked), InterpreterFailed)
        attacker.join()


def _answers(child: Child, loading: float, waiting: float, number: int) -> bool:
    try:
        return child.ask("play", loading, waiting, number, seconds=SECONDS) == number
    except NoAnswer:
        # The environments would take it for the effect of a command.
        return False


def _shoot(process: int, shot: int, moment: float) -> None:
    time.sleep(moment)
    with suppress(ProcessLookupError):
        os.kill(process, shot)
        if shot == signal.SIGSTOP:
            time.sleep(moment)
            os.kill(process, signal.SIGCONT)


def test_killed_and_stopped_interpreters_never_change_the_game(hold):
    counts = hold("kills of interpreters", child_campaign, 8)
    assert counts.right == counts.tried
