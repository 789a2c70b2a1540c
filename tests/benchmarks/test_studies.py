"""Studies of search: their runs, what a search pays, and Boxoban at test time."""

import json
import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch

from benchmarks import boxoban_search, recipes
from benchmarks.does_search_pay import analysed
from benchmarks.measure import RESULTS
from benchmarks.pay.plan import FILTERING, TSR_PLUS, Cell, Contrast, Part, cells, contrasts, sokoban
from benchmarks.pay.report import (
    PAGE,
    README,
    difference,
    equal_difference,
    interval,
    law,
    price_words,
    success_at,
    write_tables,
)
from benchmarks.tsr_runs import finished, measured
from tests.agents.worlds import cycle, letters, words_of
from tests.conftest import deep, spread
from tsr_gym.agents.cli.train import read_config
from tsr_gym.agents.config import RunConfig, TrainConfig
from tsr_gym.agents.runs.progress import TARGETS
from tsr_gym.agents.strategies import best_first
from tsr_gym.tree import Expand
from tsr_gym.wrappers import TreeSearchWrapper
from tsr_gym_envs.sokoban.discrete_env import SokobanDiscreteEnv
from tsr_gym_envs.sokoban.levels import parse_level
from tsr_gym_envs.sokoban.settings import make_settings


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


def test_a_run_is_finished_with_the_tokens_that_it_matches_once_evaluated(tmp_path):
    folder = folder_of(tmp_path / "run", updates=2, evaluated=[(0, 0), (1, 80)])
    assert not finished(folder)
    (folder / TARGETS).write_text("[40, 80]")
    assert finished(folder)
    assert not finished(tmp_path / "nothing")
    assert measured(folder_of(tmp_path / "empty", updates=0, evaluated=[])) is None


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


def test_the_page_and_readme_have_the_numbers_of_the_recipes():
    rows = recipes.analysed(json.loads((RESULTS / "recipes.json").read_text())["runs"])
    page = recipes.PAGE.read_text()
    assert recipes.write_between_marks(page, recipes.tables(rows)) == page
    expert = {row["way"]: f"{row['success']:.1f} %" for row in rows if row["case"] == "expert"}
    best = max((row for row in rows if "plain play" in row["way"]), key=lambda row: row["success"])
    assert (best["seeds"], best["low"] > 0) == (8, True)
    assert all(expert[way] in README.read_text() for way in ("expert", best["way"], "filtering"))
    # README: auto is in five settings, on new seeds, a point at most below the best of the others.
    fresh = [row for row in rows if row["case"].startswith("fresh")]
    assert (len({row["case"] for row in fresh}), {row["seeds"] for row in fresh}) == (5, {8})
    assert min(row["points"] for row in fresh if row["way"] != "auto") > -1.05


def test_what_was_planned_was_run():
    runs = json.loads((RESULTS / "recipes.json").read_text())["runs"]
    done = {(run["case"], run["way"], run["seed"]) for run in runs}
    for name, (_, _, ways, seeds, forecast, _) in recipes.planned().items():
        assert forecast
        assert {(name, way, seed) for way in ways for seed in seeds} <= done


def test_the_runs_of_the_recipes_can_be_configured():
    for *_, flags in list(recipes.cells(Path("out")))[::8]:
        command, _, rest = flags.partition(" --model ")
        config = read_config([*command.split()[1:], *rest.split()[1:]])
        assert config.run.total_tokens in (20_000, 40_000, 60_000, 90_000, 130_000, 400_000)


RESULT = RESULTS / "does_search_pay.json"
CONTRAST = Contrast("headline", sokoban(10, 16), "S1", TSR_PLUS, FILTERING, 3)


def run(method, seed, success, tokens=100):
    names = ("sampled_tokens", "prompt_tokens", "seconds", "success")
    numbers = [(tokens * share // 4, tokens * share, share / 4, success * share / 4) for share in range(5)]
    points = [dict(zip(names, row, strict=True)) for row in numbers]
    about = {"world": "sokoban", "setting": "10 to 16 moves", "base": "S1", "method": method, "seed": seed}
    return about | {"env_steps": 5, "optimizer_steps": 2, "seconds": 1.0, "points": points}


def test_a_difference_pairs_the_seeds_that_both_have_finished():
    ours = [run("tsr+", seed, success) for seed, success in enumerate((0.5, 0.4, 0.6, 0.9))]
    theirs = [run("filtering", seed, success) for seed, success in ((0, 0.2), (1, 0.2), (2, 0.1), (7, 0.8))]
    found = difference(CONTRAST, ours + theirs, [])
    # Differences of 30, 20 and 50 points: mean 33.33, deviation 15.28, Student's t of 2 degrees of freedom 4.303.
    assert (found["seeds"], found["points"]) == (3, 33.33)
    half = 4.303 * 15.2753 / math.sqrt(3)
    assert [found["low"], found["high"]] == pytest.approx([33.33 - half, 33.33 + half], abs=0.01)
    assert found["at_half"]["points"] == pytest.approx(33.33 / 2, abs=0.01)
    assert found["control_success_by_seed"] == [20.0, 20.0, 10.0]
    assert difference(CONTRAST, ours, []) is None


def test_a_price_counts_half_a_success_where_there_was_none():
    search, score = CONTRAST.method.search
    names = ("search", "score", "success", "episodes", "sampled_tokens", "tokens_per_success")
    facts = ("naive", "reward", 0.0, 50, 1000, None), (search, score, 0.5, 8, 400, 100.0)
    rows = [dict(zip(names, row, strict=True)) for row in facts]
    probe = {"world": "sokoban", "setting": "10 to 16 moves", "base": "S1", "rows": rows}
    both = [run(name, seed, 0.5) for name in ("tsr+", "filtering") for seed in range(2)]
    found = difference(CONTRAST, both, [probe])
    assert (found["tokens_per_success"], found["control_tokens_per_success"]) == (100.0, None)
    assert found["ratio"] == 2000 / 100
    # Exact ends of a Poisson mean, from a table: four successes 1.0899 to 10.2416, none at most 3.6889.
    assert found["tokens_per_success_interval"] == [round(400 / 10.2416), round(400 / 1.0899)]
    assert found["control_tokens_per_success_interval"] == [round(1000 / 3.6889), None]
    # Another search's price is not this one's.
    other = replace(CONTRAST, method=replace(CONTRAST.method, flags="--search greedy"))
    assert difference(other, both, [probe])["ratio"] is None


def test_prices_of_the_readme_have_their_intervals():
    row = {"tokens_per_success": 1140.3, "tokens_per_success_interval": [888, 2_130_000]}
    assert price_words(row) == "1.1k [0.89k, 2,100k]"


def test_success_is_read_off_the_nearest_evaluation_at_equal_cost():
    assert success_at(run("tsr+", 0, 0.8), 0.7) == pytest.approx(60.0)
    ours, theirs = run("tsr+", 0, 0.8, tokens=200), run("filtering", 0, 0.2, tokens=100)
    # After 400 of its 800 prompt tokens ours was at 40 %; it took as many seconds as the other.
    assert equal_difference(ours, theirs, "prompt_tokens") == pytest.approx(40 - 20)
    assert equal_difference(ours, theirs, "seconds") == pytest.approx(80 - 20)
    assert interval([3.0, 5.0]) == {"points": 4.0, "low": None, "high": None}


def test_the_law_counts_a_cell_once_and_draws_base_models():
    numbers = [(world, sign, n) for world, sign in (("a", 1.0), ("b", -1.0)) for n in range(1, 9)]
    rows = [
        {"world": world, "setting": str(n), "base": f"{world}{n // 2}", "ratio": float(n), "points": sign * n}
        | {"low": 0.0, "high": 0.0}
        for world, sign, n in numbers
    ]
    again = rows[0] | {"points": 99.0}
    result = law([*rows, again, rows[0] | {"base": "unprobed", "ratio": None}])
    assert (result["cells"], result["bases"]) == (16, 10)
    assert [result[name]["b"]["rank_correlation"] for name in ("within", "without")] == [-1.0, 1.0]
    assert (result["within"]["a"]["low"], result["within"]["a"]["high"]) == (1.0, 1.0)
    one_base = [row | {"base": "same"} for row in rows]
    assert law(one_base)["low"] is None
    clear = [row | {"low": row["points"] - 1.5, "high": row["points"] + 1.5} for row in rows]
    assert (law(clear)["clear"], law(clear)["right"]) == (14, 7)
    assert law(rows[:4]) is None


@pytest.mark.parametrize("most", [2, deep(999)])
@pytest.mark.parametrize("part", get_args(Part))
def test_every_run_of_the_plan_is_one_that_can_be_configured_and_has_a_folder_of_its_own(part, most):
    planned = list(cells(part))
    assert len({cell.name for cell in planned}) == len(planned) > 0
    runs = sorted({(cell.setting.world, cell.flags().rpartition(" --seed")[0]) for cell in planned})
    for world, flags in spread(runs, most):
        config = read_config([world, *flags.split()])
        assert config.run.update_tokens * 32 == config.run.total_tokens


def test_a_contrast_has_equal_budgets_on_both_sides():
    for one in contrasts("headline"):
        budgets = [
            Cell(one.setting, one.base, method, 0).flags().partition("--total")[2]
            for method in (one.method, one.control)
        ]
        assert budgets[0] == budgets[1]


def test_the_differences_and_the_tables_of_the_page_are_those_of_the_runs_in_the_result_file():
    result = json.loads(RESULT.read_text())
    wanted = [one for part in get_args(Part) for one in contrasts(part)]
    again = analysed(wanted, result["runs"], result["probes"])
    assert again == {name: result[name] for name in again}
    for page in (PAGE, README):
        assert write_tables(page.read_text(), result) == page.read_text()


ROWS = ("#@       #", "# $      #", "#    $   #", "#        #", "#        #", "# ..     #", "#        #", "#        #")
LEVEL = "\n".join(["#" * 10, *ROWS, "#" * 10])
# Rows and columns of up, down, left and right.
DELTAS = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])


def standing(boards):
    return np.argwhere(boards >= 5)[:, 1:]


@pytest.mark.parametrize("view", range(8))
def test_in_every_view_a_move_goes_where_the_player_stands_next(view):
    found = boxoban_search.seen_from(boxoban_search.positions_of([parse_level(LEVEL)]), view)
    steps = standing(found.boards)[1:] - standing(found.boards)[:-1]
    assert len(steps) > 10
    assert (steps == DELTAS[found.moves[:-1]]).all()
    assert found.left.tolist() == list(range(len(found.moves), 0, -1))


def level_env():
    env = TreeSearchWrapper(SokobanDiscreteEnv(make_settings("paper", {"obs_type": "array", "level": LEVEL})))
    env.reset(seed=0)
    return env


def test_the_player_lists_all_moves_and_those_against_a_wall_last():
    torch.manual_seed(0)
    player = boxoban_search.Player(boxoban_search.BoxobanNet().eval())
    (said,) = player([(level_env().tree, Expand(0, 4))])
    chances = [np.exp(candidate.logprobs[0]) for candidate in said]
    assert sorted(candidate.text for candidate in said) == [0, 1, 2, 3]
    # Up and left of the start there is wall.
    assert {candidate.text for candidate in said[2:]} == {0, 2}
    assert chances[0] >= chances[1] >= 0.005
    assert sum(chances) == pytest.approx(1.0)


def test_a_search_ends_at_its_first_solution_or_at_its_expansions():
    env = letters({"a": 1.0, "b": 2.0, "x": 0.0}, "x", turns=9)
    bound = partial(boxoban_search.until_solved, strategy=partial(best_first, expansions=50, samples=3), expansions=9)
    tree = env.search(cycle("abx"), bound)
    assert [words_of(tree)[end] for end in tree.chosen] == ["x"]
    assert len(tree.nodes) == 4
    tree = letters({"a": 1.0, "b": 2.0}, turns=99).search(cycle("ab"), bound)
    assert tree.chosen == ()
    assert sum(bool(tree.children(node)) for node in tree.below()) == 9


def test_what_is_told_counts_solutions_within_every_budget():
    rows = [{"expansions": 10, "moves": 4}, {"expansions": 30, "moves": 6}, {"expansions": 60, "moves": None}]
    told = boxoban_search.told(rows, 60)
    assert [(point["expansions"], point["solved"]) for point in told["curve"]] == [(10, 1), (20, 1), (50, 2), (60, 2)]
    assert (told["solved"], told["total_expansions"], told["mean_length"]) == (2, 100, 5.0)
    assert told["expansions_by_level"] == [10, 30, None]
