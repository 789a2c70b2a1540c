"""`tsr report`: tables on the screen, curves in a file."""

import json
import shutil

import pytest

from tsr_gym.agents import cli


def other_seed(run, folder, seed):
    """Return a copy of a run with another seed."""
    copy = shutil.copytree(run, folder)
    text = (copy / "run.toml").read_text()
    assert "\nseed = 0\n" in text
    (copy / "run.toml").write_text(text.replace("\nseed = 0\n", f"\nseed = {seed}\n"))
    return copy


def test_runs_are_held_beside_each_other_and_drawn(capsys, undisturbed, tmp_path):
    twins = [other_seed(undisturbed, tmp_path / f"twin{seed}", seed) for seed in (1, 2)]
    out = tmp_path / "curves.png"
    assert cli.main(["report", str(undisturbed), *map(str, twins), "--out", str(out)]) == 0
    shown = capsys.readouterr()
    assert out.read_bytes().startswith(b"\x89PNG")
    assert shown.out.endswith(f"curves: {out}\n")
    assert shown.err == ""
    for text in (
        "sokoban, preset paper, 4 held-out instances, no search at test time",
        "held-out success, %, by updates",
        "held-out success, %, by sampled tokens",
        "3 rollouts",
        "3 seeds do not rank methods",
        "each run",
        "twin2",
    ):
        assert text in shown.out
    # One row of three seeds; the same numbers three times have no spread.
    (row,) = [line.split("│")[1:-1] for line in shown.out.splitlines() if "3 rollouts" in line]
    assert [cell.strip() for cell in row][:3] == ["naive", "3 rollouts", "3"]
    assert row[4].strip().endswith("± 0.0")


def test_the_same_run_twice_is_refused(capsys, undisturbed, tmp_path):
    twin = shutil.copytree(undisturbed, tmp_path / "twin")
    assert cli.main(["report", str(undisturbed), str(twin), "--out", str(tmp_path / "curves.png")]) == 2
    assert "twin are both seed 0 of naive: report one of them" in capsys.readouterr().err


def test_what_is_wrong_with_a_run_is_said_and_written(capsys, undisturbed, tmp_path):
    sick = shutil.copytree(undisturbed, tmp_path / "sick")
    record = json.loads((sick / "metrics.jsonl").read_text().splitlines()[0])
    lines = [{**record, "step": step, "equal_groups": 1.0, "success": 0.0, "entropy": 1.0} for step in range(1, 21)]
    (sick / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    curves, numbers = tmp_path / "curves.png", tmp_path / "report.json"
    assert cli.main(["report", str(sick), "--out", str(curves), "--json", str(numbers)]) == 0
    shown = capsys.readouterr().out
    assert f"{sick}: nothing to learn: in most groups every trajectory earns the same (share 1 -> 1)\n" in shown
    written = json.loads(numbers.read_text())
    assert [finding["name"] for finding in written["findings"][str(sick)]] == ["nothing to learn"]
    assert written["ends"]["columns"][0] == "method"
    # A run without findings has no line.
    assert cli.main(["report", str(undisturbed), "--out", str(curves)]) == 0
    assert f"{undisturbed}:" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("harm", "status", "message"),
    [
        (shutil.rmtree, 1, "run: wanted the folder of a run with run.toml, found none"),
        (lambda run: (run / "run.toml").write_text("{"), 2, "run.toml: wanted TOML"),
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
