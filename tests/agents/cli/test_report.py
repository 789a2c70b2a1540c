"""`tsr report`: tables on the screen, curves in a file."""

import json
import re
import shutil

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
    assert re.fullmatch(r"(runs: \d+ %\n)*", shown.err)
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
