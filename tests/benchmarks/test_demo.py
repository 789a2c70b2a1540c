"""The demonstration: what it tells where no bars can be drawn."""

import json
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT


@pytest.fixture
def demo(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from benchmarks import demo

    return demo


def test_piped_it_tells_each_evaluation_in_a_line_and_nothing_twice(demo, tmp_path, capsys):
    job = demo.Job("2-beam-s0", (), 20)
    folder = tmp_path / job.name
    folder.mkdir()
    with demo._bars() as bars:
        task = bars.add_task(job.name, total=job.updates, last="waiting")
        demo._show(tmp_path, job, bars, task)
        assert capsys.readouterr().out == ""
        for updates, success in ((0, 0.1), (10, 0.25)):
            (folder / "metrics.jsonl").write_text("{}\n" * updates)
            with open(folder / "evaluations.jsonl", "a") as file:
                file.write(json.dumps({"success": success}) + "\n")
            for _ in range(2):
                demo._show(tmp_path, job, bars, task)
    assert capsys.readouterr().out.splitlines() == [
        "2-beam-s0: 0 of 20 updates, held out 10 %",
        "2-beam-s0: 10 of 20 updates, held out 25 %",
    ]


def test_it_names_the_command_of_the_python_that_runs_it(demo):
    assert Path(demo.TSR).resolve() == Path(sys.executable).with_name("tsr").resolve()
