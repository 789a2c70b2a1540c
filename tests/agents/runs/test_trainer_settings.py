"""Runs with other estimators, objectives, credit rules, budgets and held-out settings than the defaults."""

import json

import pytest

from tests.agents.runs.test_trainer import MOST_OF_A_GROUP
from tests.agents.short_runs import records, trained
from tsr_gym.agents.learning.settings import Objective
from tsr_gym.agents.runs.trainer import resume_run

GRPO = {"algorithm": "grpo"}
HALF_IMITATED = Objective(searched_weight=0.5, imitation=0.1)
BY_TURNS = Objective(ratio="turn", aggregation="turn", mismatch="truncate")
CASES = {
    "tree backup over all branches, successes imitated": {
        "search": {"search": "beam", "learn_from": "leaves", "trajectories": 2},
        "learn": {"estimator": "tree_backup", "layout": "shared", "objective": HALF_IMITATED} | GRPO,
    },
    "the best of six next to plain play, without selection bias": {
        "search": {"search": "best_of_n(n=6)", "naive": 2},
        "learn": {"estimator": "grpo(baseline='naive')"} | GRPO,
        "lessons": {"credit": ("undo_selection(samples=6, kept=3)", "format_penalty(penalty=0.05)")},
    },
    "plain play, with credit by a graph of what beams tried": {
        "search": {"search": "beam", "naive": 2},
        "learn": {"estimator": "graph(w=0.5, cost='action')", "objective": Objective(searched_weight=0.0)} | GRPO,
    },
    "turn-level PPO": {
        "learn": {"estimator": "turn_gae(lam=0.9)", "old_logprobs": "learner", "objective": BY_TURNS},
    },
    "rejected branches by a critic": {
        "search": {"search": "beam(width=2, branching=2)", "learn_from": "leaves"},
        "lessons": {"filter": "none"},
        "learn": {"estimator": "tree_backup"},
    },
    "turns rewarded by evidence": {
        "search": {"trajectories": 4},
        "lessons": {"filter": "learnable", "credit": ("first_occurrence(evidence='score')",)},
        "learn": {"estimator": "tspo"} | GRPO,
        "task": {"score": "SokobanScore"},
    },
}


@pytest.mark.parametrize("name", CASES)
def test_a_run_with_other_choices_learns_and_repeats(name, base_model, tmp_path):
    changes = {"run": {"updates": 2, "eval_every": 0, "eval_instances": 2}, **CASES[name]}
    lines = records(trained(tmp_path / "first", base_model, **changes))
    assert len(lines) == 2
    learned = [line for line in lines if line["groups_kept"]]
    assert all(line["grad_norm"] > 0 for line in learned)
    assert learned or lines[0]["dropped"]
    assert lines == records(trained(tmp_path / "second", base_model, **changes))


ONE = {"updates": 1, "eval_every": 0, "eval_instances": 2}


def test_learning_from_leaves_takes_as_many_steps_as_learning_from_what_was_selected(base_model, tmp_path):
    taken, learned_from = {}, {}
    for learn_from in ("selected", "leaves"):
        search = {"search": "beam(width=2, branching=4)", "learn_from": learn_from, "naive": 1}
        learn = {"estimator": "tree_backup", "minibatch": 4} | GRPO
        (line,) = records(trained(tmp_path / learn_from, base_model, search=search, learn=learn, run=ONE))
        taken[learn_from], learned_from[learn_from] = line["optimizer_steps"], line["trajectories"]
    # Two groups of three searched and a plain trajectory.
    assert taken == {"selected": 2, "leaves": 2}
    assert learned_from["selected"] == 8 < 3 * 8 < learned_from["leaves"]


def test_optimizer_steps_can_be_fixed_while_tokens_are_matched(base_model, tmp_path):
    other = trained(tmp_path / "other", base_model, search={"search": "best_of_n(n=12)"}, run=ONE)
    changes = {"search": {"match_tokens": other}, "run": ONE}
    (free,) = records(trained(tmp_path / "free", base_model, **changes))
    (fixed,) = records(trained(tmp_path / "fixed", base_model, **changes, learn={"steps": 2}))
    assert free["groups"] == fixed["groups"] > 2
    assert [line["optimizer_steps"] for line in (records(other)[0], free, fixed)] == [2, free["groups"], 2]


def test_later_updates_compensate_and_the_total_is_exceeded_by_less_than_a_group(base_model, tmp_path):
    # Updates of one group, each longer than the matched update: the third total ends the run.
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
    # A run that matches it at the same prices also counts prompts.
    prices = {name: limit[name] for name in ("sampled_price", "prompt_price")}
    prices["updates"] = len(before) + 1
    matched = trained(tmp_path / "matched", base_model, search={"match_tokens": run}, run=prices)
    targets = json.loads((matched / "token_targets.json").read_text())
    assert targets == [line["prompt_tokens_total"] for line in (*before, last)]


def test_a_run_without_tokens_left_continues_with_more(base_model, tmp_path):
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


def test_held_out_instances_can_have_their_own_settings(base_model, tmp_path):
    easy, hard = "solution_length=[1,3]", "solution_length=[6,10]"
    run = trained(tmp_path / "run", base_model, task={"env_set": (easy,), "eval_env_set": (hard,)}, run={"updates": 1})
    equal = trained(tmp_path / "hard", base_model, task={"env_set": (hard,)}, run={"updates": 1})
    # Before the first update both play the same rooms with the same random numbers.
    assert records(run, "evaluations")[0] == records(equal, "evaluations")[0]
    assert records(run)[0] != records(equal)[0]
    trainer = resume_run(run)
    assert trainer.parts.collector.pool.base.settings.solution_length == (1, 3)
    assert trainer.parts.held_out.pool.base.settings.solution_length == (6, 10)
