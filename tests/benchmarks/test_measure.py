"""The harness of measurements: a quiet machine, pinned threads, two clocks, and trials that record nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import measure
from benchmarks.measure import ONE_THREAD, Work, alternate, run_timed, write_result

ROOT = Path(measure.__file__).parent


def run(monkeypatch, folder, *arguments, load=0.3):
    """Run a script that writes one result; return what stands in the record."""
    (folder / "speed.json").write_text("before")
    monkeypatch.setattr(measure, "RESULTS", folder)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(sys, "argv", ["speed.py", *arguments])
    for name in ONE_THREAD:
        monkeypatch.setenv(name, "1")
    run_timed(lambda: write_result("speed", {"arguments left": sys.argv[1:]}))
    text = (folder / "speed.json").read_text()
    return text if text == "before" else json.loads(text)


def test_a_result_has_both_clocks_the_processor_and_its_load(monkeypatch, tmp_path):
    result = run(monkeypatch, tmp_path, "part")
    assert 0 <= result["processor_seconds"] <= result["wall_seconds"] + 0.2
    assert (result["load_before"], result["arguments"], result["arguments left"]) == (0.3, ["part"], ["part"])
    assert {"processor", "load", "threads"} <= result["machine"].keys()


def test_a_busy_machine_records_nothing_unless_it_shall(monkeypatch, tmp_path):
    with pytest.raises(SystemExit, match=r"load of at most 1\.5 .*got 1\.60.*--anyway"):
        run(monkeypatch, tmp_path, load=1.6)
    assert (tmp_path / "speed.json").read_text() == "before"
    result = run(monkeypatch, tmp_path, "--anyway", "part", load=1.6)
    assert (result["load_before"], result["arguments"]) == (1.6, ["--anyway", "part"])
    # Scripts do not know the flag.
    assert result["arguments left"] == ["part"]


@pytest.mark.parametrize("flag", sorted(measure.TRIALS))
def test_a_trial_runs_on_a_busy_machine_and_records_nothing(monkeypatch, tmp_path, flag, capsys):
    assert run(monkeypatch, tmp_path, flag, load=9.0) == "before"
    assert json.loads(capsys.readouterr().out)["load_before"] == 9.0


def test_a_script_begins_again_with_one_thread_for_each_library(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os, numpy, sys\n"
        "from benchmarks.measure import ONE_THREAD, run_timed\n"
        "run_timed(lambda: print(sys.argv[1:], [os.environ[name] for name in ONE_THREAD]))\n"
    )
    environment = {name: value for name, value in os.environ.items() if name not in ONE_THREAD}
    environment |= {"PYTHONPATH": str(ROOT.parent), "MKL_NUM_THREADS": "2"}
    command = [sys.executable, script, "a b", "--quick"]
    text = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    assert text.split("\n")[0] == "['a b', '--quick'] ['1', '1', '2']"


def test_rates_are_those_of_both_clocks():
    rates = alternate({"sum": Work(lambda: sum(range(20_000)), 5, "Python")}, 3)["sum"]
    assert 0 < rates["min"] <= rates["median"] <= rates["max"]
    # Wall-clock time is at least processor time, up to the resolution of the clocks.
    assert 0 < rates["wall"] <= 1.1 * rates["max"]


# Modules without a result of their own.
PARTS = {"measure.py", "search_puct.py"}


@pytest.mark.parametrize("path", sorted(ROOT.glob("*.py")), ids=lambda path: path.name)
def test_every_script_with_a_clock_runs_measured(path):
    text = path.read_text()
    if any(clock in text for clock in ("process_time()", "perf_counter()", "best_seconds", "alternate", "_speed")):
        assert path.name in PARTS or "run_timed(" in text or "write_result(" not in text
