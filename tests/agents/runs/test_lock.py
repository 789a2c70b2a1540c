"""One process at a time trains a run; the others are told which one does."""

import json
import os
import platform
import re
import subprocess
import sys
from contextlib import contextmanager

import pytest

from tests.conftest import ROOT
from tsr_gym import ConfigError
from tsr_gym.agents.runs.log import LOCK, OWNER, RunLog, training_lock

HOLD = """
import sys
from pathlib import Path
from tsr_gym.agents.runs.log import training_lock

with training_lock(Path({run!r})):
    print("mine", flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_process(run):
    """Let another process train a run."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD.format(run=str(run))],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout.readline() == "mine\n"
        try:
            yield holder
        finally:
            holder.kill()


@pytest.fixture
def run(tmp_path):
    """A run of which three updates are written down."""
    log = RunLog(tmp_path)
    with log.opened(0, lambda kind, record: None):
        for step in (1, 2, 3):
            log.update({"step": step})
    return tmp_path


def test_a_second_process_is_told_who_trains_the_run_and_changes_nothing(run):
    before = (run / "metrics.jsonl").read_bytes()
    with another_process(run) as holder:
        who = f"process {holder.pid} on {platform.node()}, for 0 minutes"
        words = re.escape(f"{run} is being trained by {who}: stop that process")
        log = RunLog(run)
        with pytest.raises(ConfigError, match=words):
            log.cut_after(1)
        with pytest.raises(ConfigError, match=words), log.opened(3, lambda kind, record: None):
            pytest.fail("two processes train one run")
    assert (run / "metrics.jsonl").read_bytes() == before


def test_who_only_reads_or_never_writes_needs_no_lock(run):
    with another_process(run):
        assert [record["step"] for record in RunLog(run).metrics.read()] == [1, 2, 3]
        silent = RunLog(run, writes=False)
        silent.cut_after(1)
        with silent.opened(3, lambda kind, record: None):
            silent.update({"step": 4})
    assert len(RunLog(run).metrics.read()) == 3


def test_the_lock_of_a_process_that_was_killed_is_taken_over(run):
    with another_process(run) as holder:
        holder.kill()
        holder.wait()
        assert (run / "checkpoints" / OWNER).exists()
        RunLog(run).cut_after(2)
    assert len(RunLog(run).metrics.read()) == 2


def test_a_run_that_ended_is_free_and_says_nothing_of_its_owner(run):
    assert [path.name for path in (run / "checkpoints").iterdir()] == [LOCK]
    with training_lock(run):
        known = json.loads((run / "checkpoints" / OWNER).read_text())
        assert (known["host"], known["pid"]) == (platform.node(), os.getpid())
    with pytest.raises(ZeroDivisionError), training_lock(run):
        raise ZeroDivisionError
    with training_lock(run):
        pass


@pytest.mark.parametrize("owner", [None, b"", b"null", b"{}", b'{"since": "noon"}', b"\xff", b"[1]"])
def test_an_owner_of_whom_nothing_can_be_read_is_another_process(run, owner):
    path = run / "checkpoints" / OWNER
    with another_process(run):
        path.unlink() if owner is None else path.write_bytes(owner)
        with pytest.raises(ConfigError, match="trained by another process: stop that process"):
            RunLog(run).cut_after(1)
