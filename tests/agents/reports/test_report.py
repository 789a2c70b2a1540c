"""Reports: tables and curves from folders that are written here, with numbers worked out by hand."""

import json
import shutil
from dataclasses import replace
from math import gamma, pi, sqrt
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from tsr_gym import CheckpointError, ConfigError
from tsr_gym.agents.config import RunConfig, TrainConfig
from tsr_gym.agents.episodes.settings import SearchConfig, TaskConfig
from tsr_gym.agents.reports.methods import label_of, load_run
from tsr_gym.agents.reports.report import draw_curves, summarise_runs

CONFIG = TrainConfig(env="sokoban", search=SearchConfig(trajectories=8), run=RunConfig(label="ours"))


def write_run(folder, curve, *, label="ours", seed=0, updates=(), config=CONFIG, finish=0, **facts):
    """Write the folder of a run with held-out success at (step, tokens), and return it; `finish`: its last update."""
    folder.mkdir()
    run = replace(config.run, label=label, seed=seed, out=folder, updates=finish or curve[-1][0])
    config = replace(config, run=run)
    (folder / "run.toml").write_text(config.to_toml())
    common = {"instances": 64, "random": 0.05, "optimal": 1.0, **facts}
    names = ("step", "sampled_tokens_total", "success")
    lines = [dict(zip(names, point, strict=True)) | common for point in curve]
    for name, records in (("evaluations", lines), ("metrics", updates)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


def update(step, **seconds):
    return {"step": step, "per_instance": "8 rollouts", "seconds": seconds}


@pytest.fixture
def runs(tmp_path):
    """Three seeds of one method and one of another that sampled twice the tokens in half the updates."""
    updates = [update(1, model=1.0, env=0.5, tree=0.25, update=0.25, all=2.0)]
    updates += [update(2, model=2.0, env=0.5, tree=0.5, update=1.0, all=4.0)]
    curves = {end: [(0, 0, 0.1), (8, 800, 0.2), (16, 1600, end)] for end in (0.3, 0.4, 0.5)}
    ours = [
        write_run(tmp_path / f"ours-{end}", curve, seed=seed, updates=updates)
        for seed, (end, curve) in enumerate(curves.items())
    ]
    theirs = write_run(tmp_path / "theirs", [(0, 0, 0.1), (8, 3200, 0.9)], label="theirs")
    return [ours[0], theirs, *ours[1:]]


def table(part):
    return {row[0]: dict(zip(part.columns[1:], row[1:], strict=True)) for row in part.rows}


def test_each_method_has_its_ends_and_costs(runs):
    ends = summarise_runs(runs).ends
    assert ends.title == "sokoban, preset paper, 64 held-out instances, no search at test time"
    assert [row[0] for row in ends.rows] == ["ours", "theirs"]
    # Deviation 10 over three seeds, Student's t of two degrees of freedom: 4.303 * 10 / sqrt(3) = 24.8.
    facts = {"per instance": "8 rollouts", "seeds": "3", "base %": "10.0 ± 0.0", "final %": "40.0 ± 24.8"}
    facts |= {"gain": "30.0 ± 24.8", "worst gain": "+20.0", "tokens": "2k"}
    # Two updates of 2 and 4 seconds: 3 of 6 in the model, 1 in the environment, 0.75 in the tree, 1.25 in updates.
    facts |= {"s/update": "3.00", "model %": "50", "env %": "17", "tree %": "12", "update %": "21"}
    assert table(ends)["ours"] == facts


def test_one_seed_has_no_interval_and_no_updates_no_times(runs):
    row = table(summarise_runs(runs).ends)["theirs"]
    assert (row["seeds"], row["base %"], row["final %"], row["worst gain"]) == ("1", "10.0", "90.0", "+80.0")
    assert {row[name] for name in ("s/update", "model %", "env %", "tree %", "update %")} == {"-"}


def test_success_by_updates_and_by_tokens_is_interpolated_where_all_runs_reached_the_point(runs):
    report = summarise_runs(runs)
    # At sixteenths of the longest run: 1, 2, 4, 8 and 16 updates; from 10 % by a line to 20 % after 8.
    assert table(report.by_updates) == {
        "ours": {"1": "11.2 ± 0.0", "2": "12.5 ± 0.0", "4": "15.0 ± 0.0", "8": "20.0 ± 0.0", "16": "40.0 ± 24.8"},
        "theirs": {"1": "20.0", "2": "30.0", "4": "50.0", "8": "90.0", "16": "-"},
    }
    by_tokens = table(report.by_tokens)
    shares = [("200", "12.5 ± 0.0"), ("400", "15.0 ± 0.0"), ("800", "20.0 ± 0.0"), ("1,600", "40.0 ± 24.8")]
    assert list(by_tokens["ours"].items()) == [*shares, ("3,200", "-")]
    assert (by_tokens["theirs"]["800"], by_tokens["theirs"]["3,200"]) == ("30.0", "90.0")


def test_a_short_run_is_shown_at_each_of_its_updates_once(tmp_path):
    run = write_run(tmp_path / "short", [(0, 0, 0.1), (3, 48, 0.4)], label="short")
    assert summarise_runs([run]).by_updates.columns == ("method", "1", "3")


def student_quantile(freedom):
    """Return the two-sided 95 % quantile of Student's t, by adding up its density."""
    step = 1e-4
    x = np.arange(step / 2, 14, step)
    scale = gamma((freedom + 1) / 2) / (sqrt(freedom * pi) * gamma(freedom / 2))
    mass = np.cumsum(scale * (1 + x**2 / freedom) ** (-(freedom + 1) / 2)) * step
    return float(x[np.searchsorted(mass, 0.475)])


@pytest.mark.parametrize("seeds", [3, 4, 9, 16, 31])
def test_intervals_are_students(tmp_path, seeds):
    ends = [0.5 + 0.01 * number for number in range(seeds)]
    folders = [write_run(tmp_path / f"{seed}", [(0, 0, 0.0), (1, 10, end)], seed=seed) for seed, end in enumerate(ends)]
    centre, spread = table(summarise_runs(folders).ends)["ours"]["final %"].split(" ± ")
    percent = 100 * np.array(ends)
    assert float(centre) == pytest.approx(percent.mean(), abs=0.051)
    wanted = student_quantile(seeds - 1) * percent.std(ddof=1) / sqrt(seeds)
    assert float(spread) == pytest.approx(wanted, abs=0.06)


def test_two_seeds_have_a_mean_and_no_interval(tmp_path):
    folders = [write_run(tmp_path / str(seed), [(0, 0, 0.1), (4, 40, 0.2 + 0.3 * seed)], seed=seed) for seed in (0, 1)]
    report = summarise_runs(folders)
    row = table(report.ends)["ours"]
    assert (row["seeds"], row["final %"], row["gain"], row["worst gain"]) == ("2", "35.0", "25.0", "+10.0")
    assert table(report.by_updates)["ours"]["4"] == "35.0"


LEARN = replace(CONFIG, learn=replace(CONFIG.learn, lr=1e-3, objective=replace(CONFIG.learn.objective, clip_low=0.1)))


def test_runs_of_one_label_and_other_settings_are_other_methods(tmp_path):
    curve = [(0, 0, 0.1), (4, 40, 0.4)]
    slow, slow_too = (write_run(tmp_path / f"slow{seed}", curve, seed=seed) for seed in (0, 1))
    fast = write_run(tmp_path / "fast", curve, config=LEARN)
    other = write_run(tmp_path / "other", curve, config=LEARN, label="other")
    report = summarise_runs([slow, fast, other, slow_too])
    names = ["ours, clip_low=0.2, lr=1e-06", "ours, clip_low=0.1, lr=0.001", "other"]
    assert [(row[0], row[2]) for row in report.ends.rows] == list(zip(names, "211", strict=True))
    assert [row[0] for row in report.by_updates.rows] == names
    assert report.runs.rows == [
        (str(slow), names[0], "0", "4", "10.0", "40.0"),
        (str(slow_too), names[0], "1", "4", "10.0", "40.0"),
        (str(fast), names[1], "0", "4", "10.0", "40.0"),
        (str(other), names[2], "0", "4", "10.0", "40.0"),
    ]


def test_folder_and_checkpoint_settings_do_not_make_another_method(tmp_path):
    kept = replace(CONFIG, run=replace(CONFIG.run, checkpoint_every=3, keep_checkpoints=9, save_trees=0))
    folders = []
    for seed, config in enumerate((CONFIG, kept)):
        matched = replace(config, search=replace(CONFIG.search, match_tokens=Path(f"runs/beam-{seed}")))
        folders.append(write_run(tmp_path / str(seed), [(0, 0, 0.1)], seed=seed, config=matched))
    assert [row[0] for row in summarise_runs(folders).ends.rows] == ["ours"]
    plain = write_run(tmp_path / "plain", [(0, 0, 0.1)], seed=2)
    names = [row[0] for row in summarise_runs([*folders, plain]).ends.rows]
    assert names == ["ours, match_tokens=True", "ours, match_tokens=False"]


def test_a_seed_counts_once(tmp_path):
    run = write_run(tmp_path / "one", [(0, 0, 0.1)], seed=3)
    twin = shutil.copytree(run, tmp_path / "twin")
    with pytest.raises(ConfigError, match=r"one and .*twin are both seed 3 of ours: report one of them"):
        summarise_runs([run, twin])
    with pytest.raises(ConfigError, match="are both seed 3"):
        draw_curves([run, run], tmp_path / "curves.png")


def health(step, *, spread=1.0, entropy=1.0):
    seconds = dict.fromkeys(("model", "env", "tree", "update", "all"), 1.0)
    return {"step": step, "group_spread": spread, "entropy": entropy, "success": 0.1, "seconds": seconds}


def test_a_collapse_is_found_and_a_healthy_run_is_not_mentioned(tmp_path):
    curve = [(0, 0, 0.1), (20, 40, 0.1)]
    healthy = [health(step) for step in range(1, 21)]
    collapsed = [*healthy[:10], *[health(step, spread=0.1, entropy=0.2) for step in range(11, 21)]]
    sick = write_run(tmp_path / "sick", curve, updates=collapsed)
    well = write_run(tmp_path / "well", curve, updates=healthy, seed=1)
    young = write_run(tmp_path / "young", curve, updates=collapsed[:12], seed=2)
    findings = summarise_runs([sick, well, young]).findings
    assert list(findings) == [str(sick)]
    (finding,) = findings[str(sick)]
    assert finding.name == "echo trap"
    assert "1 -> 0.1" in finding.what


@pytest.mark.parametrize(
    ("seeds", "says"), [(1, "1 seed does not rank methods"), (3, "3 seeds do not rank methods"), (8, None)]
)
def test_a_table_of_few_seeds_warns_that_they_do_not_rank_methods(tmp_path, seeds, says):
    folders = [write_run(tmp_path / str(seed), [(0, 0, 0.1)], seed=seed) for seed in range(seeds)]
    caption = summarise_runs(folders).ends.caption
    assert "random 5.0 %, optimal 100.0 %" in caption
    assert ("rank methods" in caption) == (says is not None)
    assert says is None or says in caption
    unknown = write_run(tmp_path / "run", [(0, 0, 0.1)], random=None, optimal=None)
    assert "bars not known" in summarise_runs([unknown]).ends.caption


@pytest.mark.parametrize(
    ("search", "score", "label"),
    [
        ({}, "reward", "naive"),
        ({"search": "best_of_n(n=32)"}, "reward", "best_of_n(n=32)"),
        ({"search": "beam"}, "FrozenLakeScore", "beam, FrozenLakeScore"),
        ({"match_tokens": Path("runs/beam")}, "reward", "naive, matched tokens"),
        ({"search": "tsr_gym.agents.strategies:greedy"}, "reward", "tsr_gym.agents.strategies:greedy"),
    ],
)
def test_a_method_without_a_label_is_called_by_its_settings(search, score, label):
    config = TrainConfig(env="sokoban", search=SearchConfig(**search), task=TaskConfig(score=score))
    assert label_of(config) == label
    assert label_of(replace(config, run=RunConfig(label="mine"))) == "mine"


@pytest.fixture
def drawn(monkeypatch):
    """The figures that are saved."""
    figures, save = [], Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda own, *args, **kw: (figures.append(own), save(own, *args, **kw)))
    return figures


def test_the_curves_are_the_runs_and_their_mean(runs, tmp_path, drawn):
    draw_curves(runs, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    (figure,) = drawn
    by_updates, by_tokens = figure.axes
    assert (by_updates.get_xlabel(), by_tokens.get_xlabel()) == ("updates", "sampled tokens")
    lines = {line.get_label(): line.get_xydata().round(6).tolist() for line in by_updates.get_lines()}
    assert lines["ours"] == [[0, 10], [8, 20], [16, 40]]
    assert lines["theirs"] == [[0, 10], [8, 90]]
    assert [y for _, y in lines["random"]] == [5, 5]
    assert [y for _, y in lines["optimal"]] == [100, 100]
    # A thin line per run, a thick one per method, two bars.
    assert len(by_updates.get_lines()) == 4 + 2 + 2
    tokens = {line.get_label(): line.get_xydata().round(6).tolist() for line in by_tokens.get_lines()}
    assert tokens["ours"] == [[0, 10], [800, 20], [1600, 40]]
    legend = [text.get_text() for text in by_updates.get_legend().get_texts()]
    assert legend == ["ours", "theirs", "random", "optimal"]


SEARCHED = {
    "searched in 61 % of groups until update 14, then not": [0.6, 0.62] * 7 + [0.0] * 10,
    "searched in 50 % of groups until update 2, then in 6 %": [0.5, 0.5, 0.0625, 0.0625, 0.0625],
    "searched in 0 % of groups until update 3, then in 75 %": [0.0, 0.0, 0.0, 0.75, 0.75],
    "searched in 80 % of groups": [0.9, 0.9, 0.9, 0.5],
    "searched in 0 % of groups": [0.0],
    "": [None, None],
}


@pytest.mark.parametrize("words", SEARCHED)
def test_a_run_that_plays_first_states_how_many_groups_it_searched_and_until_when(tmp_path, words):
    updates = [update(1, model=1.0, env=0.5, tree=0.25, update=0.25, all=2.0) for _ in SEARCHED[words]]
    lines = [line | {"step": step} for step, line in enumerate(updates, start=1)]
    shares = [{} if share is None else {"share_search": share} for share in SEARCHED[words]]
    run = write_run(tmp_path / "run", [(0, 0, 0.1), (24, 40, 0.1)], updates=list(map(dict.__or__, lines, shares)))
    assert summarise_runs([run]).searched == ({str(run): words} if words else {})


def test_a_real_run_is_reported(undisturbed, tmp_path):
    row = table(summarise_runs([undisturbed]).ends)["naive"]
    assert (row["per instance"], row["seeds"]) == ("3 rollouts", "1")
    assert sum(float(row[f"{part} %"]) for part in ("model", "env", "tree", "update")) == pytest.approx(100, abs=5)
    draw_curves([undisturbed], tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 5000


def test_a_log_that_was_cut_by_a_kill_is_read_up_to_its_last_whole_line(runs):
    log = runs[0] / "evaluations.jsonl"
    log.write_text(log.read_text()[:-10])
    assert [record["step"] for record in load_run(runs[0]).evaluations] == [0, 8]


NO_RUN = r"run: wanted the folder of a run with run\.toml, found none"
NO_CONFIG = r"run\.toml: wanted TOML"
FOREIGN = "no setting .* 'model_type'"
NOT_EVALUATED = "run: the run has not been evaluated yet"


@pytest.mark.parametrize(
    ("harm", "error", "message"),
    [
        (lambda run: shutil.rmtree(run), CheckpointError, NO_RUN),
        (lambda run: (run / "run.toml").unlink(), CheckpointError, NO_RUN),
        (lambda run: (run / "run.toml").write_text('{"env": "sok'), ConfigError, NO_CONFIG),
        (lambda run: (run / "run.toml").write_text('model_type = "qwen2"'), ConfigError, FOREIGN),
        (lambda run: (run / "evaluations.jsonl").unlink(), CheckpointError, NOT_EVALUATED),
        (lambda run: (run / "evaluations.jsonl").write_text(""), CheckpointError, NOT_EVALUATED),
    ],
    ids=["no folder", "no configuration", "cut configuration", "foreign configuration", "no log", "empty log"],
)
def test_a_damaged_folder_is_named(tmp_path, harm, error, message):
    run = write_run(tmp_path / "run", [(0, 0, 0.1)])
    harm(run)
    with pytest.raises(error, match=message):
        summarise_runs([run])
    with pytest.raises(error, match=message):
        draw_curves([run], tmp_path / "curves.png")
    assert not (tmp_path / "curves.png").exists()


@pytest.mark.parametrize(
    ("config", "facts"),
    [
        (replace(CONFIG, env="frozen_lake"), {}),
        (replace(CONFIG, task=TaskConfig(env_set=("num_boxes=2",))), {}),
        (CONFIG, {"instances": 128}),
    ],
    ids=["another environment", "other rooms", "more instances"],
)
def test_runs_that_were_evaluated_on_other_instances_are_not_compared(tmp_path, config, facts):
    run = write_run(tmp_path / "one", [(0, 0, 0.1)])
    same = write_run(tmp_path / "same", [(0, 0, 0.1)], seed=1, config=replace(CONFIG, env="tsr/Sokoban-v0"))
    other = write_run(tmp_path / "other", [(0, 0, 0.1)], config=config, **facts)
    assert table(summarise_runs([run, same]).ends)["ours"]["seeds"] == "2"
    with pytest.raises(ConfigError, match=r"other was evaluated on other instances than .*one: report them apart"):
        summarise_runs([run, same, other])


@pytest.mark.parametrize(
    ("tokens", "wanted"),
    [
        (750_000, ["0", "10k", "20k", "50k", "100k", "200k", "500k"]),
        (40, ["0", "10k"]),
        (200_000_000, ["0", "10k", "100k", "1M", "10M", "100M"]),
    ],
)
def test_ticks_of_sampled_tokens_are_few_and_round(drawn, tmp_path, tokens, wanted):
    run = write_run(tmp_path / "run", [(0, 0, 0.1), (8, tokens // 2, 0.2), (16, tokens, 0.4)])
    draw_curves([run], tmp_path / "curves.png")
    axis = drawn[0].axes[1].xaxis
    assert [label.get_text() for label in axis.get_ticklabels()] == wanted
    assert len(axis.get_minorticklocs()) == 0
