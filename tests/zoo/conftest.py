"""Options of the zoo, and the table of outcomes at the end of its runs."""

import json
import os
import tempfile
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.zoo.test_report import report

# Frames are rendered without a screen.
os.environ.setdefault("MUJOCO_GL", "egl")
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
# Every new JAX environment is compiled again, so compiled code is cached.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(tempfile.gettempdir()) / "tsr_gym_zoo_jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
# Even cached code is lowered again for every environment, which takes longer than a few steps without compiling.
os.environ.setdefault("JAX_DISABLE_JIT", "1")
# Without ale_py the files are not collected, not even for doctests.
collect_ignore_glob = [] if find_spec("ale_py") else ["with_*.py"]
_outcomes = []


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true", help="all pairs of ids and wrappers, not a sample")
    parser.addoption("--zoo-json", metavar="PATH", help="where to write what came of every stack")


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    """Work in a separate folder, because MuJoCo writes a log file into the current one."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def outcome(record_property):
    """Record the outcome of a stack."""

    def note(group, name, result, reason):
        record_property("zoo", {"group": group, "name": name, "outcome": result, "reason": reason})

    return note


def pytest_runtest_logreport(report):
    noted = [value for name, value in report.user_properties if name == "zoo"]
    if report.when == "call":
        if report.failed and not noted:
            noted = [{"group": "crashed", "name": report.nodeid, "outcome": "crashed", "reason": str(report.longrepr)}]
        _outcomes.extend(noted)


def pytest_terminal_summary(terminalreporter, config):
    if not _outcomes:
        return
    rows = sorted(_outcomes, key=lambda one: (one["group"], one["outcome"], one["name"]))
    counts = Counter((row["group"], row["outcome"]) for row in rows)
    terminalreporter.section("the zoo")
    for (group, result), count in sorted(counts.items()):
        terminalreporter.write_line(f"{group:20} {result:14} {count:5}")
    reasons = Counter((row["outcome"], row["reason"]) for row in rows if row["outcome"] in ("refused", "not built"))
    for (result, reason), count in reasons.most_common():
        terminalreporter.write_line(f"{result}, {count} times: {reason}")
    if path := config.getoption("--zoo-json", None):
        results = report(rows, bool(config.getoption("--full", False)))
        Path(path).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
