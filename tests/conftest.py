"""What all tests share: golden cases, hypothesis without deadlines, and Python code in its own process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
NOT_THERE = f"the golden cases and data of this project are not there: wanted the folder {SHARED}"

# Fixtures of the checkers are imported by name, also in child processes.
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

settings.register_profile("house", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("house")


@pytest.fixture(scope="session")
def shared():
    """The folder ../shared; the test is skipped where it is not there."""
    if not SHARED.is_dir():
        pytest.skip(NOT_THERE)
    return SHARED


@pytest.fixture(scope="session")
def golden(shared):
    """Read the rows of a file of golden cases, named by its path below ../shared/golden."""

    def rows(path):
        return [json.loads(line) for line in (shared / "golden" / path).read_text(encoding="utf-8").splitlines()]

    return rows


def deep(*values):
    """Return a case of a parametrised test that runs at full size alone."""
    return pytest.param(*values, marks=pytest.mark.deep)


def seeds(few, most):
    """Return seeds for a parametrised test, of which all but the first few are for the deep run."""
    return [*range(few), *map(deep, range(few, most))]


def spread(items, most):
    """Return at most so many of some items, evenly spread."""
    return items[:: -(-len(items) // most)]


def run_python(code, *, hash_seed="0", cwd=ROOT, check=True):
    """Return the output of a program; with `check=False`, the finished process."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": ""}, timeout=120,
    )  # fmt: skip
    if not check:
        return done
    assert done.returncode == 0, done.stderr
    return done.stdout


class Killed(BaseException):
    """No handler of errors catches it, because it is no `Exception`."""


def killed_at(number, do, names):
    """Run `do` and stop it before the given line of the files with these names; return whether it got that far."""
    lines = 0

    def trace(frame, event, arg):
        nonlocal lines
        if not frame.f_code.co_filename.endswith(names):
            return None
        if event == "line":
            lines += 1
            if lines == number:
                raise Killed
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        do()
    except Killed:
        return True
    finally:
        sys.settrace(before)
    return False
