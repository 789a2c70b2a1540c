"""`tsr probe`: a table and one sentence on the screen, rows in a file, and a folder in which it continues."""

import json

from tests.agents.cli.test_core_install import answers, run, with_command  # noqa: F401 (fixtures of a Python without extras)
from tsr_gym.agents import cli

RANDOM = ["probe", "frozenlake", "--model", "random", "--score", "FrozenLakeScore", "--instances", "6", "--batch", "3"]
ROW = {"search", "score", "success", "episodes", "sampled_tokens", "tokens_per_success", "prompt_tokens"}


def test_what_a_success_costs_is_shown_written_and_kept(capsys, tmp_path):
    out, file = tmp_path / "probe", tmp_path / "rows.json"
    asked = [*RANDOM, "--search", "beam", "--search", "puct(simulations=4)", "--out", str(out), "--json", str(file)]
    assert cli.main(asked) == 0
    shown = capsys.readouterr()
    for text in (
        "frozenlake, preset paper, split train, 6 instances, seed 0; random play, noise fresh",
        "what a success costs before any learning",
        "beam, FrozenLakeScore",
        "steps of the environment per success",
    ):
        assert text in shown.out
    assert shown.out.endswith(f"rows: {file}\nkept: {out / 'probe.json'}, plot: {out / 'probe.png'}\n")
    rows = json.loads(file.read_text())
    assert all(row.keys() >= ROW for row in rows)
    assert [(row["search"], row["score"]) for row in rows] == [
        ("naive", "reward"),
        ("beam", "FrozenLakeScore"),
        ("puct(simulations=4)", "FrozenLakeScore"),
    ]
    assert (out / "probe.png").read_bytes().startswith(b"\x89PNG")
    # Searches may stand behind one flag, too; nothing is measured twice.
    again = [*RANDOM, "--search", "beam", "puct(simulations=4)", "--out", str(out), "--json", str(file)]
    assert cli.main(again) == 0
    assert json.loads(file.read_text()) == rows
    assert capsys.readouterr().err == ""


def test_a_model_pays_in_tokens(capsys, base_model, tmp_path):
    file = tmp_path / "rows.json"
    few = ["--instances", "2", "--episodes", "2", "--max-tokens", "6", "--search", "beam(width=1, branching=2)"]
    assert cli.main(["probe", "sokoban", "--model", str(base_model), *few, "--json", str(file)]) == 0
    plain, beam = json.loads(file.read_text())
    assert (plain["episodes"], beam["episodes"], plain["counts"]) == (4, 2, "sampled_tokens")
    for row in (plain, beam):
        assert row["prompt_tokens"] > row["sampled_tokens"] > 0
        won = round(row["success"] * row["episodes"])
        assert row["tokens_per_success"] == (row["sampled_tokens"] / won if won else None)
    assert "sampled tokens per success" in capsys.readouterr().out


def test_random_play_needs_no_extra_and_what_does_names_it(run, tmp_path):  # noqa: F811
    few = ("probe", "frozenlake", "--instances", "2", "--search", "beam(width=1, branching=2)")
    random, default = answers(run, [*few, "--model", "random", "--json", "rows.json"], few)
    assert random[0] == 0, random[2]
    assert len(json.loads((tmp_path / "rows.json").read_text())) == 2
    assert default[2].endswith("'torch', which is not installed: pip install 'tsr-gym[agents]'\n")
