"""Run Python code in its own process, or stop it at one of its lines."""

import os
import subprocess
import sys

from tests.conftest import ROOT


def run_python(code, *, hash_seed="0", cwd=ROOT, check=True):
    """Return the output of a program; with `check=False`, the finished process."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": ""},
        timeout=120,
    )
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
