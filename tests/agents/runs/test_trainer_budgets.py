"""Budgets of a run: what is counted, what is made up for, what goes on with more, and held-out rooms of their own."""

import json

from tests.agents.runs.test_trainer import MOST_OF_A_GROUP
from tests.agents.short_runs import records, trained
from tsr_gym.agents.runs.trainer import resume_run


def test_an_update_that_took_too_much_is_made_up_for_and_the_total_is_passed_by_less_than_a_group(base_model, tmp_path):
    # Updates of one group, of which each takes more than the matched update may: the third total ends the run.
    other = trained(tmp_path / "other", base_model, run={"updates": 3}, search={"groups": 1, "trajectories": 2})
    totals = [line["sampled_tokens_total"] for line in records(other)]
    many = {"match_tokens": other, "trajectories": 6}
    lines = records(trained(tmp_path / "run", base_model, run={"updates": 3}, search=many))
    assert 0 <= lines[-1]["sampled_tokens_total"] - totals[-1] < lines[-1]["sampled_tokens"]
    assert [line["groups"] for line in lines] == [1] * len(lines)
    assert len(lines) < 3
    assert lines[-2]["sampled_tokens_total"] < totals[-1] if len(lines) > 1 else True


def test_a_budget_can_count_the_tokens_of_prompts(base_model, tmp_path):
    limit = {"total_tokens": 4000, "sampled_price": 0.0, "prompt_price": 1.0, "updates": 50}
    run = trained(tmp_path / "run", base_model, run=limit)
    *before, last = records(run)
    assert last["prompt_tokens_total"] - last["prompt_tokens"] < 4000 <= last["prompt_tokens_total"]
    # A run that matches it at the same prices counts prompts, too.
    prices = {name: limit[name] for name in ("sampled_price", "prompt_price")}
    matched = trained(
        tmp_path / "matched", base_model, search={"match_tokens": run}, run={**prices, "updates": len(before) + 1}
    )
    targets = json.loads((matched / "token_targets.json").read_text())
    assert targets == [line["prompt_tokens_total"] for line in (*before, last)]


def test_a_run_whose_tokens_are_used_up_goes_on_with_more(base_model, tmp_path):
    run = trained(tmp_path / "run", base_model, run={"total_tokens": 200, "updates": 50})
    short = records(run)
    assert resume_run(run).finished
    trainer = resume_run(run, total_tokens=400)
    assert not trainer.finished
    assert trainer.run()
    lines = records(run)
    assert lines[: len(short)] == short
    assert 400 <= lines[-1]["sampled_tokens_total"] < 400 + MOST_OF_A_GROUP
    assert [line["step"] for line in records(run, "evaluations")][-2:] == [len(short), len(lines)]


def test_optimizer_steps_are_counted_over_the_run(undisturbed):
    lines, steps = records(undisturbed), 0
    for line in lines:
        steps += line["optimizer_steps"] or 0
        assert line["optimizer_steps_total"] == steps
    assert steps > 0
    assert resume_run(undisturbed).progress.optimizer_steps == steps


def test_held_out_instances_can_have_settings_of_their_own(base_model, tmp_path):
    easy, hard = "solution_length=[1,3]", "solution_length=[6,10]"
    run = trained(tmp_path / "run", base_model, task={"env_set": (easy,), "eval_env_set": (hard,)}, run={"updates": 1})
    alike = trained(tmp_path / "hard", base_model, task={"env_set": (hard,)}, run={"updates": 1})
    # Before anything is learned both play the same rooms on the same dice.
    assert records(run, "evaluations")[0] == records(alike, "evaluations")[0]
    assert records(run)[0] != records(alike)[0]
    trainer = resume_run(run)
    assert trainer.parts.collector.pool.base.settings.solution_length == (1, 3)
    assert trainer.parts.held_out.pool.base.settings.solution_length == (6, 10)
