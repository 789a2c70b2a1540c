"""`tsr report`: tables on the screen, curves in a file."""

import shutil

import pytest

from tsr_gym import cli


def test_runs_are_held_beside_each_other_and_drawn(capsys, undisturbed, tmp_path):
    twin = shutil.copytree(undisturbed, tmp_path / "twin")
    out = tmp_path / "curves.png"
    assert cli.main(["report", str(undisturbed), str(twin), "--out", str(out)]) == 0
    shown = capsys.readouterr()
    assert out.read_bytes().startswith(b"\x89PNG")
    assert shown.out.endswith(f"curves: {out}\n")
    assert shown.err == ""
    for text in (
        "sokoban, preset paper, 4 held-out instances, no search at test time",
        "held-out success, %, after so many updates",
        "held-out success, %, after so many sampled tokens",
        "3 rollouts",
        "2 seeds do not rank methods",
    ):
        assert text in shown.out
    # One row of two seeds; the same run twice has no spread.
    (row,) = [line.split("│")[1:-1] for line in shown.out.splitlines() if "3 rollouts" in line]
    assert [cell.strip() for cell in row][:3] == ["naive", "3 rollouts", "2"]
    assert row[4].strip().endswith("± 0.0")


@pytest.mark.parametrize(
    ("harm", "status", "message"),
    [
        (shutil.rmtree, 1, "run: wanted the folder of a run with config.json, found none"),
        (lambda run: (run / "config.json").write_text("{"), 2, "config.json: not the configuration of a run"),
        (lambda run: (run / "evaluations.jsonl").unlink(), 1, "run: the run has not been evaluated yet"),
    ],
    ids=["gone", "damaged", "not evaluated"],
)
def test_a_folder_that_holds_no_run_is_named(capsys, undisturbed, tmp_path, harm, status, message):
    run = shutil.copytree(undisturbed, tmp_path / "run")
    harm(run)
    out = tmp_path / "curves.png"
    assert cli.main(["report", str(undisturbed), str(run), "--out", str(out)]) == status
    shown = capsys.readouterr()
    assert (shown.out, out.exists()) == ("", False)
    assert shown.err.startswith("tsr report: ")
    assert message in shown.err


def test_without_runs_it_asks_for_one(capsys):
    assert cli.main(["report"]) == 2
    assert capsys.readouterr().err == "tsr report: wanted the folder of at least one run\n"


def test_curves_that_cannot_be_written_are_told(capsys, undisturbed, tmp_path):
    assert cli.main(["report", str(undisturbed), "--out", str(tmp_path / "no" / "curves.png")]) == 1
    assert "No such file or directory" in capsys.readouterr().err
