"""The published tables: what the papers printed, the commands of every cell, the analysis by hand, and the page."""

import json
import math
import shlex
from dataclasses import replace
from functools import cache
from itertools import chain, product
from pathlib import Path

import pytest

from benchmarks import paper_tables
from benchmarks.measure import RESULTS
from benchmarks.paper_tables import TABLES, TableArgs, chosen, keep_runs, read_runs, regenerate, results
from benchmarks.papers.asked import ask, asked_rows, questions, runs_of
from benchmarks.papers.plan import Method, Setting, Table, cells, commands
from benchmarks.papers.published import BEAMS, LARGE, SMALL
from benchmarks.papers.report import NOTHING, PAGE, draw, nearest, reached_at, rows_of, section, write_tables
from benchmarks.papers.tsr import CONTROL
from benchmarks.tsr_runs import finished
from tests.agents.policies.stub_server import completion, serving
from tests.agents.tiny import save_chat_model
from tests.conftest import deep, spread
from tsr_gym.agents.cli.train import read_config
from tsr_gym.agents.runs.check import check_choices
from tsr_gym.agents.runs.trainer import start_run
from tsr_gym.errors import ConfigError

OUT, MODELS = Path("OUT"), Path("MODELS")
CAN_BE_RUN = [name for name, table in TABLES.items() if not table.asks]
SETTING = Setting("sokoban", "rooms", "--groups 2", 8, 16, ("big",), recipe="sokoban", published="here")
TABLE = Table(
    "made_up",
    "made up",
    "nobody",
    {"tiny": (SETTING,), "qwen": ()},
    (Method("base", trains=False), Method("search"), Method("plain", matches="search")),
    "plain",
    {"here": {"big": {"search": {"success": 50.0}}}},
    ("success",),
)


@pytest.fixture(autouse=True, scope="module")
def models_that_are_there(tmp_path_factory):
    """Put an empty model in each folder that the plans name, because a configuration reads its model's card."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("work"))
        for table, scale in product(TABLES.values(), ("tiny", "qwen")):
            for setting in table.settings[scale]:
                folder = MODELS / setting.model if setting.model else OUT / "bases" / setting.base
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "config.json").write_text("{}")
        (MODELS / LARGE).mkdir(parents=True, exist_ok=True)
        (MODELS / LARGE / "config.json").write_text("{}")
        yield


@cache
def parsed(flags):
    return read_config(flags.split()[1:])


def config_of(cell):
    """Return the configuration of a cell; the sizes of a model share theirs, which saves time."""
    return parsed(cell.flags(OUT, MODELS).replace(SMALL, LARGE))


def run(method, seed, success, tokens, seconds=(0.0, 2.0, 4.0)):
    fixed = {"response_length": 30, "turns": 3.0, "random": 0.05, "optimal": None}
    points = [
        {"step": 4 * number, "success": share, "total_reward": 2 * share, "seconds": seconds[number]}
        | {"sampled_tokens": tokens * number, "prompt_tokens": 5 * tokens * number, **fixed}
        for number, share in enumerate(success)
    ]
    counts = dict.fromkeys(("model_calls", "env_steps", "restores", "optimizer_steps", "groups", "groups_kept"), 7)
    return {"setting": "rooms", "method": method, "seed": seed, "points": points, "seconds": seconds[-1], **counts}


@pytest.mark.parametrize("most", [2, deep(999)])
@pytest.mark.parametrize("scale", ["tiny", "qwen"])
@pytest.mark.parametrize("name", CAN_BE_RUN)
def test_every_cell_is_a_run_that_can_be_configured_and_has_a_folder_of_its_own(name, scale, most):
    assert len({cell.name for cell in cells(TABLES[name], scale, 2)}) == len(list(cells(TABLES[name], scale, 2))) > 0
    # Settings of one world differ in the model alone.
    by_flags = {(cell.setting.world, cell.method.name): cell for cell in cells(TABLES[name], scale, 1)}
    for cell in spread([*by_flags.values()], most):
        config = config_of(cell)
        check_choices(config)
        assert (config.run.seed, config.env) == (0, cell.setting.world)


@pytest.mark.parametrize("scale", ["tiny", deep("qwen")])
@pytest.mark.parametrize("name", CAN_BE_RUN)
def test_methods_of_a_setting_have_steps_of_the_same_size_and_the_same_start(name, scale):
    # A row that is there at one scale alone shows what other steps do.
    planned = [cell for cell in cells(TABLES[name], scale, 1) if cell.method.scale is None]
    for setting in TABLES[name].settings[scale]:
        here = [config_of(cell) for cell in planned if cell.setting == setting]
        assert len({(run.learn.minibatch, run.learn.lr, run.model.model, run.run.eval_instances) for run in here}) == 1
        assert len({(config.run.total_tokens, config.run.update_tokens) for config in here}) == 1
        # Without a total of tokens there has to be a run that matches them.
        matching = sum(config.search.match_tokens is not None for config in here)
        assert here[0].run.total_tokens or matching == 1 or scale == "qwen"


def test_the_shop_filters_by_success_and_a_control_follows_the_run_it_matches():
    for table in TABLES.values():
        for cell in cells(table, "tiny", 1):
            if cell.setting.world == "webshop":
                assert config_of(cell).lessons.filter == "mixed_success"
    names = [cell.name for cell in cells(TABLES["tsr_table_1"], "tiny", 1)]
    control = next(cell for cell in cells(TABLES["tsr_table_1"], "tiny", 1) if cell.method.name == CONTROL)
    assert config_of(control).search.match_tokens == OUT / "cells" / control.matched.name
    assert names.index(control.matched.name) < names.index(control.name)
    assert control.matched.method.name == "lookahead"


def test_the_name_of_a_cell_says_its_configuration_so_that_tables_share_cells():
    first = {cell.name for cell in cells(TABLES["tsr_table_1"], "tiny", 1)}
    assert first < {cell.name for cell in cells(TABLES["tsr_figure_3"], "tiny", 1)}
    other = replace(SETTING, flags="--groups 3")
    changed = replace(TABLE, settings={"tiny": (other,), "qwen": ()})
    assert next(cells(TABLE, "tiny", 1)).name != next(cells(changed, "tiny", 1)).name


def test_the_papers_configuration_is_the_papers():
    config = config_of(next(cells(TABLES["tsr_table_1"], "qwen", 1)))
    search, learn, objective, run = config.search, config.learn, config.learn.objective, config.run
    assert (search.groups, search.trajectories, config.lessons.filter) == (8, 16, "uncertainty(ratio=0.25)")
    assert (learn.lr, learn.critic_lr, learn.minibatch, learn.epochs, learn.algorithm) == (1e-6, 1e-5, 32, 1, "ppo")
    assert (objective.clip_low, objective.clip_high, objective.entropy, objective.kl_weight) == (0.2, 0.28, 0.001, 0)
    assert (run.updates, run.eval_instances, run.eval_temperature, config.model.temperature) == (200, 256, 0.5, 1.0)
    shop = config_of(next(cells(TABLES["tsr_table_2"], "qwen", 1)))
    assert (shop.run.updates, shop.learn.algorithm, shop.model.model) == (100, "grpo", f"MODELS/{LARGE}")


def test_the_papers_numbers_are_those_that_it_printed():
    def printed(name, where, model, method):
        return tuple(TABLES[name].paper[where][model][method].values())

    assert printed("tsr_table_1", "sokoban", SMALL, "beam") == (38.3, 98, 3.8)
    assert printed("tsr_table_1", "sokoban", LARGE, "instance filtering") == (43.7, 161, 4.1)
    assert printed("tsr_table_1", "frozen_lake", SMALL, "base") == (6.4, 276, 4.6)
    assert printed("tsr_table_1", "frozen_lake", LARGE, "lookahead") == (57.0, 135, 3.3)
    assert printed("tsr_table_2", "webshop", LARGE, "best-of-N") == (77.3, 504, 6.5)
    assert printed("tsr_table_3", "sokoban", "GPT-4o", "as it is") == (27.73,)
    assert printed("tsr_table_3", "frozen_lake", "Qwen2.5-72B", "as it is") == (23.83,)
    assert printed("tsr_tables_4_7", "sokoban", LARGE, "beam, B=1 M=4") == (50.6, 156, 3.7)
    assert printed("tsr_tables_4_7", "sokoban", LARGE, "beam, B=2 M=6") == (53.1, 150, 3.55)
    assert printed("tsr_tables_4_7", "frozen_lake", SMALL, "beam, B=1 M=8") == (29.5,)
    assert printed("tsr_tables_4_7", "webshop", LARGE, "beam, B=2 M=8") == (86.3,)
    assert printed("tsr_tables_8_10", "sokoban", SMALL, "beam") == (3.69, 50, 0.92, 90, 1.66)
    assert printed("tsr_tables_8_10", "webshop", LARGE, "instance filtering") == (6.24, 78, 4.87, 85, 5.31)
    assert printed("tree_grpo_budget", "one hop", "Qwen2.5-1.5B", "tree") == (47.5,)
    assert printed("tree_grpo_budget", "several hops", "Llama-3.2-3B", "chain") == (26.7,)
    assert printed("tree_grpo_budget", "several hops", "model not named", "tree, budget of 2") == (26.7,)
    assert printed("tspo_ablation", "retrieval_qa", "Qwen2.5-7B", "TSPO: FOLR where all are wrong") == (13.6,)
    assert printed("graph_credit", "sokoban", "VL-3B", "GraphGPO") == (87.0,)
    assert printed("graph_credit", "webshop", "1.5B", "GRPO") == (71.4,)


def test_the_beam_of_the_first_table_is_one_of_the_budgets():
    for world, by_model in TABLES["tsr_tables_4_7"].paper.items():
        for model, numbers in by_model.items():
            of_table_1 = TABLES["tsr_table_1"].paper[world][model]["beam"]["success"]
            assert numbers["beam, B=2 M=4"]["success"] == of_table_1
            assert list(numbers) == list(BEAMS)


def test_a_row_pairs_seeds_with_the_controls_evaluation_at_equal_tokens():
    ours = [run("search", seed, (0.1, 0.3, end), 100) for seed, end in enumerate((0.5, 0.6, 0.7))]
    theirs = [run("plain", seed, (0.1, middle, 0.9), 210) for seed, middle in enumerate((0.4, 0.4, 0.2))]
    base, search, plain = rows_of(TABLE, "tiny", [*ours, *theirs])
    # Ours ends with 200 tokens; the control has 210 at its second evaluation. Differences of 10, 20 and 50 points:
    # mean 26.67, deviation 20.82, Student's t of 2 degrees of freedom 4.303.
    assert (search["pairs"], search["difference"]["points"], search["control_sampled_tokens"]) == (3, 26.67, 210)
    assert search["difference"]["low"] == pytest.approx(26.67 - 4.303 * 20.8167 / math.sqrt(3), abs=0.01)
    assert (search["success"]["points"], search["reward"]["points"], search["sampled_tokens"]) == (60.0, 1.2, 200)
    assert (search["random"], search["optimal"], search["env_steps"]) == (5.0, None, 7)
    assert search["paper"] == {"big": {"success": 50.0}}
    assert (base["success"]["points"], "sampled_tokens" in base, "difference" in plain) == (10.0, False, False)


def test_two_seeds_have_no_interval_and_what_was_not_run_has_only_the_papers_numbers():
    found = rows_of(TABLE, "tiny", [run("search", seed, (0.1, 0.2), 10) for seed in range(2)])
    assert (found[1]["success"]["low"], "difference" in found[1]) == (None, False)
    assert found[2] == {"setting": "rooms", "method": "plain", "paper": {}}


def test_the_clock_stops_at_the_first_evaluation_with_a_share_of_the_final_success():
    points = run("search", 0, (0.1, 0.4, 0.5), 10)["points"]
    # 80 % of .5 is .4, reached at the second evaluation; 95 % only at the last one.
    assert (reached_at(points, 0.8)["step"], reached_at(points, 0.95)["step"]) == (4, 8)
    assert reached_at(run("search", 0, (0.0, 0.0), 10)["points"], 0.8) is None
    assert nearest(points, 14)["sampled_tokens"] == 10
    timed = rows_of(TABLE, "tiny", [run("search", 0, (0.1, 0.4, 0.5), 10)])[1]
    assert (timed["step_to_80"], timed["seconds_to_80"], timed["seconds_to_convergence"]) == (4.0, 2.0, 4.0)


def test_a_section_says_what_kind_of_run_it_shows():
    result = {"scale": "tiny", "seeds": 2, "date": "2026-01-02", "quick": True, "control": "plain", "bases": []}
    shown = section(TABLE, [result | {"rows": rows_of(TABLE, "tiny", [run("search", 0, (0.1, 0.25), 1000)])}])
    assert "A quick run" in shown
    assert "2 seeds, 2026-01-02" in shown
    row = "| rooms | search | big: 50 | 25.0 | 0.50 | 30 | 3.0 | 5, – | – | 1 | 1k | 5k | 7 | 7 | 7 of 7 | 7 | 4 |"
    assert row in shown
    assert f"| rooms | plain | {NOTHING} | {NOTHING} |" in shown


def test_a_figure_has_a_curve_for_each_run(tmp_path):
    runs = [run("search", seed, (0.1, 0.3, 0.5), 10) for seed in range(2)]
    draw(replace(TABLE, view="success"), {"runs": runs}, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    shown = {"scale": "tiny", "seeds": 2, "date": "2026-01-02", "quick": False, "control": "", "bases": []}
    text = section(replace(TABLE, view="success"), [shown | {"rows": rows_of(TABLE, "tiny", runs)}])
    assert "](images/made_up.png)" in text


def test_models_are_asked_in_every_world_or_in_their_own():
    asked = list(questions("tiny", ["sokoban=small", "large"], 2, 64))
    pairs = ("sokoban", "small"), ("sokoban", "large"), ("frozen_lake", "large")
    assert [(row.world, row.model, row.seed) for row in asked] == [(*pair, seed) for seed in (0, 1) for pair in pairs]
    assert len({one.file for one in asked}) == len(asked)


def test_a_model_is_asked_with_the_settings_of_its_command_and_only_once(tmp_path):
    asked = list(questions("tiny", ["sokoban=small"], 1, 4))
    with serving(lambda number, body: (200, completion("<answer>Up</answer>"))) as (url, stub):
        ask(asked, url, tmp_path)
        num_requests = len(stub.asked)
        ask(asked, url, tmp_path)
    assert len(stub.asked) == num_requests > 0
    body = stub.asked[0][1]
    assert (body["model"], body["max_tokens"], body["temperature"]) == ("small", 16, 0.5)
    (run,) = runs_of(asked, tmp_path)
    assert (run["instances"], run["success"], run["requests"]) == (4, 0.0, num_requests)
    settings = "--env-set obs_type=compact --prompt compact --history markov --max-tokens 16 --instances 4"
    assert run["command"] == f"tsr eval sokoban --engine openai {settings} --model small --seed 0"


def test_what_was_answered_stands_beside_the_paper(tmp_path):
    asked = list(questions("tiny", ["sokoban=small"], 2, 64))
    for one, success in zip(asked, (0.25, 0.5), strict=True):
        found = {
            "evaluation": dict.fromkeys(("total_reward", "turns", "response_length", "valid", "instances"), 2.0),
            "bars": {"random": 0.03125, "optimal": 1.0},
            "ledger": {"requests": 100, "prompt_tokens": 2000, "sampled_tokens": 300},
        }
        found["evaluation"]["success"] = success
        (tmp_path / "asked").mkdir(exist_ok=True)
        (tmp_path / "asked" / one.file).write_text(json.dumps(found))
    (row,) = asked_rows(runs_of(asked, tmp_path))
    assert (row["success"]["points"], row["requests"], row["prompt_tokens"]) == (37.5, 200, 4000)
    shown = {"scale": "tiny", "seeds": 2, "date": "2026-01-02", "quick": False, "control": "", "bases": []}
    text = section(TABLES["tsr_table_3"], [shown | {"rows": [row]}])
    assert "| sokoban | GPT-4o | 27.73 |" in text
    assert "| sokoban | small | – | 37.5 | 3.1, 100 | 2.0 | 2 | 200 | 4,000 | 600 |" in text


def test_the_larger_scale_asks_for_its_models_before_it_begins(tmp_path):
    with pytest.raises(ConfigError, match=f"pretrained model {SMALL}"):
        regenerate(TableArgs(name="tsr_table_1", scale="qwen", out=tmp_path, models=tmp_path))
    with pytest.raises(ConfigError, match="wanted --base-url URL --ask NAME"):
        regenerate(TableArgs(name="tsr_table_3"))
    with pytest.raises(ConfigError, match="tsr_table_9"):
        chosen(TableArgs(name="tsr_table_9"))
    with pytest.raises(ConfigError, match="scale tiny"):
        chosen(TableArgs(name="tsr_table_1", scale="qwen", quick=True))


def test_a_dry_run_prints_a_command_for_every_cell(capsys, tmp_path):
    regenerate(TableArgs(name="tree_grpo_budget", scale="qwen", seeds=1, dry_run=True, out=tmp_path, models=MODELS))
    lines = [shlex.split(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == len(list(cells(TABLES["tree_grpo_budget"], "qwen", 1)))
    for line in lines:
        assert line[:6] == ["torchrun", "--nproc-per-node", "8", "-m", "tsr_gym", "train"]
        assert read_config(line[6:]).search.groups == 512
    small = commands(list(cells(TABLE, "tiny", 1)), "tiny", OUT, MODELS)
    assert [line.split()[:2] for line in small] == [["tsr", "base-model"], ["tsr", "train"], ["tsr", "train"]]


@pytest.mark.parametrize(("name", "method"), [("tsr_table_1", "beam"), ("graph_credit", "GraphGPO")])
def test_a_run_of_the_larger_scale_makes_an_update_with_random_weights_of_that_shape(name, method, tmp_path):
    cell = next(one for one in cells(TABLES[name], "qwen", 1) if one.method.name == method)
    model = save_chat_model(tmp_path / "model")
    config = config_of(cell)
    config = replace(
        config,
        task=replace(config.task, env_set=(*config.task.env_set, "max_turns=1")),
        search=replace(config.search, groups=1, trajectories=2),
        model=replace(config.model, model=str(model), max_tokens=4),
        lessons=replace(config.lessons, filter="none"),
        run=replace(config.run, out=tmp_path / "run", updates=1, eval_instances=2),
    )
    assert start_run(config, model).run()
    assert finished(tmp_path / "run")
    assert not finished(tmp_path)


def test_a_quick_result_never_takes_the_place_of_a_full_one(tmp_path, monkeypatch):
    full = tmp_path / "results" / "tspo_ablation.json"
    full.parent.mkdir()
    full.write_text('{"quick": false}')
    monkeypatch.setattr(paper_tables, "FOLDER", full.parent)
    monkeypatch.setattr(paper_tables, "publish", lambda: None)
    regenerate(TableArgs(name="tspo_ablation", quick=True, collect=True, out=tmp_path))
    assert full.read_text() == '{"quick": false}'
    quick = json.loads((tmp_path / "tspo_ablation.json").read_text())
    assert (quick["quick"], quick["runs"]) == (True, [])


def test_the_page_is_that_of_the_runs_in_the_result_files():
    by_name = results()
    assert {path.stem for path in (RESULTS / "paper_tables").glob("*.json")} >= set(by_name) > {"tsr_table_1"}
    for result in chain.from_iterable(by_name.values()):
        assert result["planned_runs"] == len(result["runs"])
    assert write_tables(PAGE.read_text(), TABLES, by_name) == PAGE.read_text()


def test_a_run_is_kept_once_for_all_tables_that_it_stands_in(tmp_path, monkeypatch):
    monkeypatch.setattr(paper_tables, "FOLDER", tmp_path)
    keep_runs("first", [{"command": "a", "seconds": 1}, {"command": "b", "seconds": 1}])
    keep_runs("second", [{"command": "b", "seconds": 2}, {"command": "c", "seconds": 2}])
    keep_runs("first", [{"command": "b", "seconds": 3}])
    assert read_runs() == [
        {"command": "b", "seconds": 3, "tables": ["first", "second"]},
        {"command": "c", "seconds": 2, "tables": ["second"]},
    ]
