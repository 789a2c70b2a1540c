"""The demonstration: its output where no bars can be drawn."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks import demo


def test_piped_it_tells_each_evaluation_in_a_line_and_nothing_twice(tmp_path, capsys):
    cell = demo.Cell(demo.CONTRAST.setting, "S1", demo.TSR_PLUS, 3)
    folder = tmp_path / "cells" / cell.name
    folder.mkdir(parents=True)
    with demo._bars() as bars:
        tasks = {cell: bars.add_task(cell.title, total=32, last="waiting")}
        demo._show(tmp_path, tasks, bars)
        assert capsys.readouterr().out == ""
        for updates, success in ((0, 0.1), (10, 0.25)):
            (folder / "metrics.jsonl").write_text("{}\n" * updates)
            with open(folder / "evaluations.jsonl", "a") as file:
                file.write(json.dumps({"success": success}) + "\n")
            for _ in range(2):
                demo._show(tmp_path, tasks, bars)
    assert capsys.readouterr().out.splitlines() == [
        "tsr+, seed 3: 0 of 32 updates, held out 10 %",
        "tsr+, seed 3: 10 of 32 updates, held out 25 %",
    ]


@pytest.mark.parametrize(
    ("low", "high", "shown"), [(2.0, 9.0, "search paid"), (-1.0, 9.0, "nothing"), (-9.0, -1.0, "lost")]
)
def test_its_headline_says_what_the_interval_says(low, high, shown):
    row = {"method": "tsr+", "control": "filtering", "success": 40.0, "control_success": 20.0, "points": 20.0}
    counts = {"seeds": 8, "sampled_tokens": 9, "control_sampled_tokens": 9}
    assert shown in demo.headline(row | counts | {"low": low, "high": high})
    assert "says nothing" in demo.headline(None)


def test_it_names_the_command_of_the_python_that_runs_it():
    assert Path(demo.TSR).resolve() == Path(sys.executable).with_name("tsr").resolve()
