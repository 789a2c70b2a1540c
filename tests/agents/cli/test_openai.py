"""`tsr eval` and `tsr calibrate` with a model behind a server."""

import json

import pytest

from tests.agents.policies.stub_server import completion, error, serving
from tests.conftest import run_python
from tsr_gym.agents import cli

KEY = "sk-very-secret-7"


def walker(number, body):
    """Answer with a turn that depends on the seed alone."""
    action = ("Up", "Down", "Left", "Right")[body["seed"] % 4]
    return 200, completion(f"<think>so</think><answer>{action}</answer>")


@pytest.mark.parametrize("search", [[], ["--search", "greedy", "--branching", "2"]], ids=["plain", "search"])
def test_a_model_behind_a_server_is_evaluated_and_its_cost_told(capsys, tmp_path, monkeypatch, search):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    out = tmp_path / "result.json"
    with serving(walker) as (url, stub):
        args = ["sokoban", "--engine", "openai", "--base-url", url, "--model", "stub", "--instances", "3", *search]
        assert cli.main(["eval", *args, "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    asked = len(stub.asked)
    assert shown.startswith(f"sokoban, preset paper, split test, {'search greedy' if search else 'no search'}")
    assert (
        f"asked: {asked} requests (0 retries, 0 failed, 0 malformed), {20 * asked:,} prompt tokens "
        f"({4 * asked:,} cached) and {5 * asked:,} sampled"
    ) in shown
    result = json.loads(out.read_text())
    assert result["ledger"]["requests"] == asked
    # Every answer has 5 tokens, and every turn is an answer.
    assert result["evaluation"]["response_length"] == pytest.approx(5 * result["evaluation"]["turns"]) != 0
    assert KEY not in shown + out.read_text()
    assert {body["model"] for _, body in stub.asked} == {"stub"}
    # The conversation of a second turn repeats the first.
    assert any(len(body["messages"]) > 2 for _, body in stub.asked)


def test_asking_a_server_needs_no_library_of_learning():
    code = (
        "import sys; sys.modules['torch'] = sys.modules['transformers'] = None\n"
        "import tsr_gym.agents.reports.model_evaluation, tsr_gym.agents.probing.calibrate\n"
        "print('httpx' in sys.modules)"
    )
    assert run_python(code).strip() == "False"


def test_a_score_is_calibrated_with_the_candidates_of_a_server(capsys):
    with serving(walker) as (url, stub):
        args = ["frozen_lake", "--engine", "openai", "--base-url", url, "--model", "stub", "--instances", "2"]
        assert cli.main(["calibrate", *args, "--budgets", "2", "--widths", "1", "--candidates", "2"]) == 0
    assert f"asked: {len(stub.asked):,} requests" in capsys.readouterr().err


def test_a_server_that_refuses_ends_the_command_with_its_words(capsys, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving(lambda number, body: (401, error(f"no such key {KEY}"))) as (url, _):
        args = ["--engine", "openai", "--base-url", url, "--model", "stub", "--instances", "1"]
        assert cli.main(["eval", "sokoban", *args]) == 1
    shown = capsys.readouterr()
    assert "with status 401" in shown.err
    assert KEY not in shown.out + shown.err
