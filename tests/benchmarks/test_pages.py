"""Pages and the programs behind them: the new user's path, environments, speeds of the viewer, the demonstration."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks import demo
from benchmarks.environment_pages import DOCS, PAGES, page_text
from benchmarks.new_user import JOURNEYS, Step, begin, steps_of, timed
from tests.conftest import ROOT
from tsr_gym.registration import ENTRY_POINTS, OPTIONAL_ENTRY_POINTS


def test_every_page_is_its_commands_in_order_and_its_python_in_one_piece():
    steps = list(steps_of("docs/index.md"))
    assert [step.kind for step in steps].count("python") == 1
    commands = [step.text for step in steps if step.kind == "console"]
    assert (commands[0], commands[3]) == ("pip install '.[cli]'", "tsr doctor")
    assert [one.split()[1] for one in commands if one.startswith("tsr ")][-4:] == ["train", "train", "report", "view"]
    assert all(list(steps_of(page)) for page in JOURNEYS.values())


@pytest.mark.deep
def test_steps_run_in_a_clone_of_this_repository(tmp_path):
    done = begin(tmp_path / "clone", None)
    assert [one["step"] for one in done] == ["git clone", "python -m venv .venv"]
    assert (tmp_path / "clone" / "docs" / "index.md").exists()
    where = timed(
        Step("page.md", "python", "import sys; assert sys.prefix.endswith('clone/.venv')"), tmp_path / "clone"
    )
    assert (where["page"], where["status"]) == ("page.md", 0)
    assert tmp_path != ROOT


HEADINGS = ("Description", "Action Space", "Observation Space", "Starting State", "Rewards", "Episode End")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_docstring_says(name):
    text = (DOCS / "environments" / f"{name}.md").read_text(encoding="utf-8")
    assert text == page_text(name), "run python -m benchmarks.environment_pages"
    assert all(f"\n## {heading}\n" in text for heading in (*HEADINGS, "Arguments", "Version History"))
    # The signs of reStructuredText are gone, and a row of a table has as many cells as the row above.
    assert "``" not in text.replace("```", "")
    assert (DOCS / "images" / f"env_{name}.png").stat().st_size > 500


def test_every_environment_has_a_page():
    assert set(ENTRY_POINTS) <= {page.env for page in PAGES.values()} <= {*ENTRY_POINTS, *OPTIONAL_ENTRY_POINTS}


def test_the_page_quotes_the_medians_and_pages_are_painted_within_a_second():
    page = " ".join((ROOT / "docs" / "view.md").read_text(encoding="utf-8").split())
    found = json.loads((ROOT / "benchmarks" / "results" / "view_speed.json").read_text(encoding="utf-8"))
    pages = found["pages"]
    large = pages["tree of 2,000 nodes"]
    assert f"painted the page {large['painted']['median']} ms after the visit began" in page
    assert f"drawn the visible part of the tree after {large['drawn']['median']} ms" in page
    assert all(times["painted"]["max"] <= 1000 for times in pages.values())
    for name, times in found["scrolled"].items():
        assert f"| {name} | {times['median']:g} | {times['p95']:g} | {times['max']:g} |" in page
        # Half of the frames come as fast as a screen shows them.
        assert times["median"] < 17


def test_piped_it_tells_each_evaluation_in_a_line_and_nothing_twice(tmp_path, capsys):
    cell = demo.Cell(demo.CONTRASTS[0].setting, "S1", demo.AUTO, 3)
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
        "10 to 16 moves: auto, seed 3: 0 of 32 updates, held out 10 %",
        "10 to 16 moves: auto, seed 3: 10 of 32 updates, held out 25 %",
    ]


@pytest.mark.parametrize(
    ("low", "high", "shown"), [(2.0, 9.0, "is ahead"), (-1.0, 9.0, "is level"), (-9.0, -1.0, "is behind")]
)
def test_its_headline_says_what_the_interval_says(low, high, shown):
    row = {"method": "auto", "control": "filtering", "success": 40.0, "control_success": 20.0, "points": 20.0}
    counts = {"seeds": 8, "sampled_tokens": 9, "optimizer_steps": 5}
    counts |= {f"control_{name}": count for name, count in counts.items() if name != "seeds"}
    assert shown in demo.headline(row | counts | {"low": low, "high": high}, 0.5)
    assert "says nothing" in demo.headline(None)


def test_it_names_the_command_of_the_python_that_runs_it():
    assert Path(demo.TSR).resolve() == Path(sys.executable).with_name("tsr").resolve()
