"""Run Python in a process of its own."""

import os
import subprocess
import sys

from tests.conftest import ROOT


def run_python(code, *, hash_seed="0", cwd=ROOT, check=True):
    """Return what a program prints; where it need not succeed, the finished process."""
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
