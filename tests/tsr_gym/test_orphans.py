"""Processes that work for another one end with it, also where it is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tsr_gym.orphans import end_with_parent

# Programs that start processes, given a folder.
PROGRAMS = {
    "one": """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "from tests.tsr_gym.test_orphans import work; work('one', %r)"]).wait()
""",
    # The third job waits for its turn, and must never have it.
    "a pool": """
from pathlib import Path
from benchmarks.tsr_runs import Job, run_all
from tests.tsr_gym.test_orphans import work
if __name__ == "__main__":
    folder = %r
    run_all([Job(work, (name, folder), Path(folder) / f"{name}.log") for name in "abc"], 2)
""",
}


def work(name, folder):
    """Work for ever, after a file with this process's number was written."""
    if name == "one":
        end_with_parent()
    (Path(folder) / f"{name}.pid").write_text(str(os.getpid()))
    while True:
        time.sleep(0.05)


def is_running(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_until(happened):
    end = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="states of processes are read from /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize(("program", "count"), [("one", 1), ("a pool", 2)])
def test_processes_end_with_the_one_that_started_them(tmp_path, program, count, number):
    script = tmp_path / "script.py"
    script.write_text(PROGRAMS[program] % str(tmp_path))
    parent = subprocess.Popen([sys.executable, script], env={**os.environ, "PYTHONPATH": str(ROOT)})

    def workers():
        return [int(file.read_text() or 0) for file in tmp_path.glob("*.pid")]

    try:
        wait_until(lambda: len([pid for pid in workers() if pid]) == count)
    finally:
        parent.send_signal(number)
        parent.wait()
    wait_until(lambda: not any(map(is_running, workers())))
    assert len(workers()) == count
