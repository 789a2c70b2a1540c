"""`tsr eval`: what a model or a run plays, in words and in a file."""

import json
import re
from dataclasses import asdict

import pytest

from tsr_gym.agents import cli
from tsr_gym.agents.episodes.settings import SearchConfig, TaskConfig
from tsr_gym.agents.models.settings import ModelConfig
from tsr_gym.agents.reports.model_evaluation import evaluate_model

FEW = ["--instances", "6"]


def test_success_stands_beside_its_interval_and_the_bars(capsys, base_model, tmp_path):
    out = tmp_path / "result.json"
    assert cli.main(["eval", str(base_model), *FEW, "--seed", "2", "--out", str(out)]) == 0
    shown = capsys.readouterr()
    wanted = evaluate_model(str(base_model), None, "test", 6, 0.5, 2, TaskConfig(), SearchConfig(), ModelConfig())
    played, bars = wanted.evaluation, wanted.bars
    low, high = played.interval
    assert shown.out == (
        "tsr/Sokoban-v0, preset paper, split test, no search: "
        f"success {played.success:.3f} [{low:.3f}, {high:.3f}], 95 % over instances\n"
        f"    random: {bars.random:.3f}\n"
        "   optimal: 1.000\n"
        f"    return: {played.total_reward:.2f}, turns {played.turns:.2f}\n"
    )
    assert shown.err.endswith("episodes: 100 %\n")
    assert json.loads(out.read_text()) == json.loads(json.dumps(asdict(wanted)))


def test_a_run_is_played_with_its_own_settings_and_searched_where_wanted(capsys, undisturbed):
    assert cli.main(["eval", str(undisturbed), *FEW, "--split", "train", "--search", "beam", "--branching", "2"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("sokoban, preset paper, split train, search beam(branching=2): success ")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--env", "frozenlake"], "plays sokoban: leave out --env, got frozenlake"),
        (["--score=SokobanScore", "--device", "cpu"], "is a run with its own --device, --score: leave it out"),
    ],
    ids=str,
)
def test_what_a_run_brings_itself_is_not_taken_from_elsewhere(capsys, undisturbed, flags, message):
    assert cli.main(["eval", str(undisturbed), *flags]) == 2
    assert message in capsys.readouterr().err


def test_bars_that_are_not_known_are_said_to_be_not_known(capsys, chat_model):
    env = ["--env", "frozen_lake", "--env-set", "max_actions=null"]
    assert cli.main(["eval", str(chat_model), *env, "--instances", "1", "--max-tokens", "2"]) == 0
    assert len(re.findall("(random|optimal): not known", capsys.readouterr().out)) == 2


def test_a_result_that_cannot_be_written_is_told_after_it_was_shown(capsys, base_model, tmp_path):
    assert cli.main(["eval", str(base_model), "--instances", "1", "--out", str(tmp_path / "no" / "result.json")]) == 1
    shown = capsys.readouterr()
    assert "success" in shown.out
    assert "No such file or directory" in shown.err
