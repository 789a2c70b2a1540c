"""Output: a command that works longer than a few seconds shows what it does, into a pipe too."""

import ast
import re
import time
from pathlib import Path

import pytest

from tsr_gym.agents import cli
from tsr_gym.agents.cli import output

# Interactive, or done at once.
QUICK = {"completion"}


@pytest.mark.parametrize("command", sorted(set(cli.COMMANDS) - QUICK))
def test_every_command_reports_its_work(command):
    module = cli.COMMANDS[command][0].partition(":")[0].rpartition(".")[2]
    tree = ast.parse((Path(cli.__file__).parent / f"{module}.py").read_text())
    calls = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert calls & {"progress_bar", "still_working"}


def test_silence_is_broken_by_the_stage_and_how_far_it_is(capsys, monkeypatch):
    monkeypatch.setattr(output, "SILENCE", 0.01)
    with output.progress_bar("loading") as watch:
        time.sleep(0.7)
        watch("trees", 2, 1000)
        time.sleep(0.7)
        watch("trees", 500, 1000)
    shown = capsys.readouterr().err
    assert re.fullmatch(r"loading \.\.\. \d+ s\ntrees: 2 of 1,000 \.\.\. \d+ s\ntrees: 50 %\n", shown)


@pytest.mark.parametrize(
    ("args", "slow", "shown"),
    [
        (["report", "{run}", "--out", "{out}"], "agents.reports.methods:load_run", "loading ..."),
        (["report", "{run}", "--out", "{out}"], "agents.reports.report:draw_curves", "drawing the curves ..."),
        (["tree", "{run}"], "tree:Tree.load", "loading ..."),
        (["export", "{run}", "--out", "{out}", "--kind", "nodes"], "tree:Tree.load", "..."),
        (["view", "{run}", "--export", "{out}"], "agents.reports.view.site:read_tree", "..."),
        (["envs"], "agents.cli.envs:list_scorers", "importing scorers"),
        (["doctor", "--no-self-test"], "agents.cli.doctor:extras", "examining packages ..."),
        (["eval", "{run}", "--instances", "2"], "agents.models.language_model:load_policy", "loading ..."),
        (["audit", "{rows}"], "agents.bridges.audit:audit", "loading ..."),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_slow_commands_show_what_they_do_into_a_pipe(capsys, monkeypatch, undisturbed, tmp_path, args, slow, shown):
    monkeypatch.setattr(output, "SILENCE", 0.01)
    module, _, name = f"tsr_gym.{slow}".partition(":")
    owner = __import__(module, fromlist=["x"])
    if "." in name:
        owner, name = getattr(owner, name.partition(".")[0]), name.partition(".")[2]
    real, calls = getattr(owner, name), []

    def slowly(*given, **settings):
        time.sleep(0 if calls else 0.7)
        calls.append(1)
        return real(*given, **settings)

    monkeypatch.setattr(owner, name, slowly)
    (tmp_path / "rows.jsonl").write_text('{"input_ids": [1, 2], "mask": [0, 1]}')
    places = {"run": undisturbed, "out": tmp_path / "out", "rows": tmp_path / "rows.jsonl"}
    cli.main([part.format(**places) for part in args])
    assert calls
    assert re.search(re.escape(shown) + r".*\d+ s\n", capsys.readouterr().err)
