"""Runs of the studies: when one is finished, and the row that its files make."""

import json

import pytest

from benchmarks.tsr_runs import finished, measured
from tsr_gym.agents.config import RunConfig, TrainConfig
from tsr_gym.agents.runs.progress import TARGETS


def folder_of(path, *, updates, tokens=None, evaluated):
    """Write a run's folder, evaluated at some updates and sampled tokens."""
    path.mkdir()
    config = TrainConfig(env="sokoban", run=RunConfig(updates=updates, total_tokens=tokens))
    (path / "run.toml").write_text(config.to_toml())
    kept = ("success", "total_reward", "response_length", "turns", "valid", "distinct", "random", "optimal")
    lines = [
        {"step": step, "sampled_tokens_total": sampled, "prompt_tokens_total": 2 * sampled, **dict.fromkeys(kept, 0.5)}
        for step, sampled in evaluated
    ]
    (path / "evaluations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize(
    ("updates", "tokens", "last", "over"),
    [(4, None, (4, 70), True), (4, None, (3, 70), False), (9, 100, (3, 101), True), (9, 100, (3, 99), False)],
)
def test_a_run_is_finished_after_its_last_update_or_the_last_of_its_tokens(tmp_path, updates, tokens, last, over):
    folder = folder_of(tmp_path / "run", updates=updates, tokens=tokens, evaluated=[(0, 0), last])
    assert finished(folder) is over


def test_a_run_that_matches_another_one_is_finished_with_its_tokens(tmp_path):
    folder = folder_of(tmp_path / "run", updates=2, evaluated=[(0, 0), (1, 80)])
    assert not finished(folder)
    (folder / TARGETS).write_text("[40, 80]")
    assert finished(folder)


def test_what_is_not_there_or_was_never_evaluated_is_not_finished(tmp_path):
    assert not finished(tmp_path / "nothing")
    assert measured(folder_of(tmp_path / "run", updates=0, evaluated=[])) is None


def test_costs_are_sums_over_updates_and_a_point_knows_the_seconds_until_then(tmp_path):
    folder = folder_of(tmp_path / "run", updates=3, evaluated=[(0, 0), (2, 30), (3, 45)])
    counts = ("model_calls", "env_steps", "restores", "groups", "groups_kept")
    update = dict.fromkeys(counts, 2) | {"optimizer_steps": 1}
    updates = [update | {"step": step, "seconds": {"all": float(step)}} for step in (1, 2, 3)]
    updates[0]["optimizer_steps"] = None
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in updates))
    found = measured(folder)
    assert (found["env_steps"], found["optimizer_steps"], found["seconds"]) == (6, 2, 6.0)
    # One and two seconds came before the evaluation after the second update.
    assert [point["seconds"] for point in found["points"]] == [0.0, 3.0, 6.0]
    assert [point["sampled_tokens"] for point in found["points"]] == [0, 30, 45]
