"""Pairs of runs: differences at equal cost, worked out by hand, from folders that are written here."""

import json
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import pytest

from tests.agents.reports.test_report import CONFIG, table, write_run
from tests.conftest import deep, spread
from tsr_gym import CheckpointError, ConfigError
from tsr_gym.agents import cli
from tsr_gym.agents.episodes.intervals import crossed_mean
from tsr_gym.agents.reports.methods import differences, group_cost, load_run, runs_by_method
from tsr_gym.agents.reports.report import summarise_runs


def update(step, tokens, *, groups=2, prompt=10, seconds=2.0, steps=3):
    parts = dict.fromkeys(("model", "env", "tree", "update"), seconds / 4)
    counts = {"sampled_tokens": tokens, "prompt_tokens": tokens * prompt, "env_steps": tokens // 10}
    return counts | {"step": step, "groups": groups, "optimizer_steps": steps, "seconds": {**parts, "all": seconds}}


def write(folder, label, seed, curve, *, twins=(), finish=0, **kwargs):
    """Write a run from (tokens, which instances were solved) after 0, 1, 2, ... updates."""
    steps = [(step, tokens, won.count("1") / len(won)) for step, (tokens, won) in enumerate(curve)]
    taken = [after[0] - before[0] for before, after in pairwise(curve)]
    updates = [update(step, tokens, **kwargs) for step, tokens in enumerate(taken, start=1)]
    run = write_run(folder, steps, label=label, seed=seed, updates=updates, instances=len(curve[0][1]), finish=finish)
    lines = (run / "evaluations.jsonl").read_text().splitlines()
    more = [json.dumps({"won": won, "twins": twins}) for _, won in curve]
    whole = [f"{line[:-1]}, {facts[1:]}\n" for line, facts in zip(lines, more, strict=True)]
    (run / "evaluations.jsonl").write_text("".join(whole))
    return run


def gains(*folders, **kwargs):
    return {gain.at: gain for gain in differences(runs_by_method([load_run(folder) for folder in folders]), **kwargs)}


@pytest.fixture
def pairs(tmp_path):
    """Two seeds of a method and of its control, of four instances, and a seed that the control lacks."""
    curves = {
        ("ours", 0): [(0, "0000"), (400, "1100"), (800, "1110")],
        ("ours", 1): [(0, "0000"), (400, "1000"), (800, "1011")],
        ("ours", 2): [(0, "0000"), (400, "1000"), (800, "1111")],
        ("control", 0): [(0, "0000"), (800, "1000")],
        ("control", 1): [(0, "0000"), (800, "0000")],
    }
    return [write(tmp_path / f"{label}{seed}", label, seed, curve) for (label, seed), curve in curves.items()]


def test_differences_are_those_of_equal_seeds_at_shares_of_the_tokens(pairs):
    at = gains(*pairs, against="control")
    assert list(at) == ["1/2", "3/4", "1"]
    # At 400 tokens 2 and 1 of four; of the control half of what it has at 800: 1/2 and 0 of four.
    assert (at["1/2"].success, at["1/2"].control_success, at["1/2"].points) == (37.5, 6.25, 31.25)
    # At 600 ours lies between its evaluations: 2.5 and 2 of four, the control at 0.75 and 0.
    assert at["3/4"].points == pytest.approx(100 * (2.5 + 2 - 0.75) / 8)
    assert (at["1"].points, at["1"].seeds, at["1"].instances) == (62.5, (0, 1), 4)
    # Two pairs have no interval.
    assert (at["1"].method, at["1"].control, at["1"].low, at["1"].high) == ("ours", "control", None, None)


def test_the_interval_is_that_of_the_differences_by_seed_and_instance(pairs, tmp_path):
    third = write(tmp_path / "control2", "control", 2, [(0, "0000"), (800, "0010")])
    # Differences at the end by seed and instance.
    wanted = crossed_mean([[0, 1, 1, 0], [1, 0, 1, 1], [1, 1, 0, 1]])
    gain = gains(*pairs, third, against="control")["1"]
    assert (gain.points, gain.low, gain.high) == pytest.approx([100 * end for end in wanted])


def test_an_unfinished_run_is_named_and_in_no_pair_and_no_final_success(pairs, capsys, tmp_path):
    begun = write(tmp_path / "begun", "control", 2, [(0, "1111")], finish=1)
    report = summarise_runs([*pairs, begun], against="control")
    assert report.unfinished == {str(begun): "unfinished, 0 of 1 updates evaluated"}
    assert {gain.seeds for gain in report.differences} == {(0, 1)}
    control = table(report.ends)["control"]
    assert (control["seeds"], control["base %"], control["final %"]) == ("2 of 3", "33.3 ± 143.4", "12.5")
    assert ("begun", "0 (unfinished)") in [(Path(row[0]).name, row[3]) for row in report.runs.rows]
    assert cli.main(["report", *map(str, [*pairs, begun]), "--out", str(tmp_path / "curves.png")]) == 0
    assert f"{begun}: unfinished, 0 of 1 updates evaluated" in capsys.readouterr().out
    # A run also ends by its tokens.
    config = (begun / "run.toml").read_text()
    (begun / "run.toml").write_text(config.replace('total_tokens = "none"', "total_tokens = 1"))
    assert not load_run(begun).is_finished
    (begun / "evaluations.jsonl").write_text((begun / "evaluations.jsonl").read_text().replace("0, ", "1, ", 2))
    assert load_run(begun).is_finished


ODD = (None, True, -1, 5, 10**400, float("nan"), float("inf"), "0.5", "\ud800", [], [5], [[9, 0]], {}, {"a": {}})


# The sample is every third pair, so that every name and every value is in it.
@pytest.mark.parametrize("most", [38, deep(999)])
@pytest.mark.parametrize("log", ["evaluations", "metrics"])
def test_no_value_in_a_log_ends_in_another_error_than_one_that_names_the_line(pairs, log, most):
    path = pairs[0] / f"{log}.jsonl"
    lines = path.read_text().splitlines()
    record, messages = json.loads(lines[-1]), []
    for name, value in spread(list(product(record, ODD)), most):
        path.write_text("\n".join([*lines[:-1], json.dumps({**record, name: value})]) + "\n")
        try:
            summarise_runs(pairs)
        except CheckpointError as error:
            messages.append(str(error))
    assert len(messages) > min(len(record), most // 4)
    assert all(f"{log}.jsonl, line {len(lines)}" in text or "the evaluation of step" in text for text in messages)


def test_a_difference_has_the_costs_of_both_sides(pairs):
    half, end = (gains(*pairs, against="control")[at] for at in ("1/2", "1"))
    # Ours took two updates of 400 tokens, the control one of 800.
    wanted = {"sampled_tokens": 800, "prompt_tokens": 8000, "env_steps": 80, "seconds": 4.0, "optimizer_steps": 6}
    assert end.spent == wanted
    assert end.control_spent == {**wanted, "seconds": 2.0, "optimizer_steps": 3}
    assert half.spent == {name: value / 2 for name, value in wanted.items()}


def test_instances_that_are_equal_up_to_symmetry_count_once(tmp_path):
    # Three rooms are one: of the two distinct ones ours solves 1/3 and 1, the control 0 and 1.
    ours = write(tmp_path / "ours", "ours", 0, [(0, "0000"), (8, "0101")], twins=[(1, 0), (2, 0)])
    control = write(tmp_path / "control", "control", 0, [(0, "0000"), (8, "0001")], twins=[(1, 0), (2, 0)])
    gain = gains(control, ours)["1"]
    assert (gain.instances, gain.points) == (2, pytest.approx(100 / 6))
    assert (gain.success, gain.control_success) == (pytest.approx(200 / 3), 50)


def test_runs_that_end_within_a_group_of_each_other_are_read_at_their_ends(tmp_path):
    # Updates of two groups took 404 tokens at most: a group is 202.
    ours = write(tmp_path / "ours", "ours", 0, [(0, "00"), (400, "00"), (804, "11")])
    control = write(tmp_path / "control", "control", 0, [(0, "00"), (800, "00")])
    assert group_cost(load_run(ours), "sampled_tokens") == 202
    at = gains(control, ours)
    assert list(at) == ["1/2", "3/4", "1"]
    assert (at["1"].points, at["1"].spent["sampled_tokens"], at["1"].control_spent["sampled_tokens"]) == (100, 804, 800)
    # The table by tokens has the run's success at its end, too.
    assert table(summarise_runs([control, ours]).by_tokens)["control"]["804"] == "0.0"


def test_runs_that_end_further_apart_are_read_at_the_shorter_ones_total_and_at_their_ends(tmp_path):
    ours = write(tmp_path / "ours", "ours", 0, [(0, "0000"), (400, "0000"), (1200, "1111")], groups=4)
    control = write(tmp_path / "control", "control", 0, [(0, "0000"), (800, "1000")])
    at = gains(control, ours)
    assert list(at) == ["1/2", "3/4", "1", "end"]
    # Half of the way from 400 to 1,200 tokens: half of each instance, compared with one of four.
    assert (at["1"].points, at["1"].spent["sampled_tokens"]) == (25, 800)
    assert (at["end"].points, at["end"].spent["sampled_tokens"]) == (75, 1200)
    caption = summarise_runs([control, ours]).pairs.caption
    assert "end: at the ends of runs, which are further apart than a group." in caption


def test_pairs_can_be_compared_at_another_equal_cost(tmp_path):
    # Ours reads ten prompt tokens for each that it samples, the control twenty: 4,000 each after 400 and 200.
    ours = write(tmp_path / "ours", "ours", 0, [(0, "00"), (400, "11")])
    control = write(tmp_path / "control", "control", 0, [(0, "00"), (400, "10")], prompt=20, groups=40)
    at = gains(control, ours, equal="prompt_tokens")
    assert at["1"].points == 100 - 25
    assert (at["1"].spent["prompt_tokens"], at["1"].control_spent["prompt_tokens"]) == (4000, 4000)
    assert gains(control, ours)["1"].points == 50


def test_runs_without_a_record_of_solved_instances_are_paired_by_seed_alone(tmp_path):
    ours = [write_run(tmp_path / f"o{seed}", [(0, 0, 0.0), (2, 8, 0.5)], seed=seed) for seed in range(3)]
    control = [
        write_run(tmp_path / f"c{seed}", [(0, 0, 0.0), (2, 8, 0.1 + 0.1 * seed)], seed=seed, label="control")
        for seed in range(3)
    ]
    report = summarise_runs([*control, *ours])
    gain = report.differences[-1]
    assert (gain.instances, gain.points) == (1, pytest.approx(30))
    # Deviation 10 over three seeds: 4.303 * 10 / sqrt(3) = 24.84.
    assert (gain.low, gain.high) == (pytest.approx(30 - 24.84, abs=0.01), pytest.approx(30 + 24.84, abs=0.01))
    assert report.pairs.caption.endswith("95 % over seeds (Student's t), from 3 pairs on.")
    row = dict(zip(report.pairs.columns, report.pairs.rows[-1], strict=True))
    assert (row["points"], row["95 %"], row["prompt tokens"]) == ("+30.0", "+5.2 to +54.8", "- / -")


def test_the_table_names_both_sides_and_the_first_method_is_the_control(pairs):
    report = summarise_runs(pairs, against="control")
    assert report.pairs.title == "pairs of equal seeds, at equal sampled tokens"
    assert report.pairs.caption.endswith("95 % over seeds and instances (Student's t), from 3 pairs on.")
    row = dict(zip(report.pairs.columns, report.pairs.rows[-1], strict=True))
    assert [row[name] for name in ("method", "against", "at", "pairs")] == ["ours", "control", "1", "2"]
    assert [row[name] for name in ("%", "control %", "points")] == ["75.0", "12.5", "+62.5"]
    assert [row[name] for name in ("sampled tokens", "seconds")] == ["800 / 800", "4 / 2"]
    assert row["95 %"] == "-"
    assert {gain.control for gain in gains(*pairs).values()} == {"ours"}
    report = summarise_runs(pairs[:3])
    assert (report.pairs.rows, report.differences) == ([], [])


def test_unknown_or_ambiguous_controls_and_missing_costs_are_refused(pairs, tmp_path):
    with pytest.raises(ConfigError, match="against: wanted one of the methods ours, control, got 'filtering'"):
        gains(*pairs, against="filtering")
    slow = replace(CONFIG, learn=replace(CONFIG.learn, lr=1e-3))
    other = write_run(tmp_path / "slow", [(0, 0, 0.1)], label="control", config=slow)
    with pytest.raises(ConfigError, match="got 'control'"):
        gains(*pairs, other, against="control")
    old = write_run(tmp_path / "old", [(0, 0, 0.1), (1, 8, 0.2)], label="old", instances=4)
    with pytest.raises(CheckpointError, match=r"old: its metrics\.jsonl does not record prompt_tokens"):
        gains(*pairs, old, equal="prompt_tokens")


@pytest.mark.parametrize(
    ("sound", "damaged"), [('"twins": []', '"twins": [[9, 0]]'), ('"won": "1110"', '"won": "111"')]
)
def test_a_damaged_evaluation_is_named(pairs, sound, damaged):
    log = pairs[0] / "evaluations.jsonl"
    assert sound in log.read_text()
    log.write_text(log.read_text().replace(sound, damaged))
    with pytest.raises(CheckpointError, match=r"ours0: the evaluation of step . is damaged"):
        gains(*pairs, against="control")
