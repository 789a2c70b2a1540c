"""`tsr calibrate`: tables on the screen, numbers and plot in a folder, and one message where something is wrong."""

import json

from tests.agents.cli.test_core_install import answers, run, with_command  # noqa: F401 (fixtures of a Python without extras)
from tsr_gym.agents.cli import calibrate

INSTALL = "pip install 'tsr-gym[agents]'\n"

FEW = ["--instances", "6", "--widths", "1", "--budgets", "1", "3", "--candidates", "3"]


def test_a_score_is_held_against_exact_values(capsys, tmp_path):
    out = tmp_path / "report"
    # The score is also called the scorer.
    assert calibrate.main(["frozenlake", "--scorer=FrozenLakeScore", *FEW, "--out", str(out)]) == 0
    shown = capsys.readouterr()
    for text in (
        "FrozenLakeScore on frozenlake, preset paper, split test, 6 instances; candidates by random play, noise fresh",
        "score against exact value, along the policy's own play",
        "what a search from the start drops and keeps",
        "success of played episodes, a search before every turn",
        "beam(width=1, branching=3)",
        "policy alone",
    ):
        assert text in shown.out
    assert shown.out.endswith(f"written: {out / 'calibration.json'}, {out / 'calibration.png'}\n")
    assert json.loads((out / "calibration.json").read_text())["config"]["instances"] == 6
    assert (out / "calibration.png").read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_known_is_said(capsys):
    assert calibrate.main(["frozenlake", *FEW, "--env-set", "max_actions=null"]) == 0
    shown = capsys.readouterr().out
    assert "not known: frozenlake does not know the exact value of its states" in shown
    assert "what a search" not in shown


def test_random_play_needs_no_extra_and_a_model_names_its_own_before_any_work(run, tmp_path):  # noqa: F811
    few = ("--instances", "2", "--widths", "1", "--budgets", "2")
    scored = (("sokoban", "SokobanScore(potential='oracle')"), ("frozenlake", "FrozenLakeScore"))
    commands = [["calibrate", name, "--scorer", scorer, *few] for name, scorer in scored]
    *random, model = answers(run, *commands, ["calibrate", "sokoban", "--model", "default"])
    for status, shown, said in random:
        assert status == 0, said
        assert "among candidates" in shown
    assert model[2].endswith("this needs the package 'torch', which is not installed: pip install 'tsr-gym[agents]'\n")
    assert list(tmp_path.iterdir()) == []
