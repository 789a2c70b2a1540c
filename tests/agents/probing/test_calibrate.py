"""Calibration: its measurements, values that are not known, and settings that do not fit together."""

from dataclasses import replace

import pytest

from tests.agents.conftest import SMALL
from tests.agents.worlds import Script, letters
from tsr_gym.agents.episodes.env_pool import EnvPool
from tsr_gym.agents.episodes.play import bars, held_out
from tsr_gym.agents.probing.calibrate import CalibrationConfig, calibrate_env, search_settings
from tsr_gym.agents.teaching.base_model import build_base_model
from tsr_gym.errors import ConfigError
from tsr_gym_envs.frozen_lake.env import FrozenLakeEnv

FEW = CalibrationConfig(env="frozenlake", instances=8, widths=(2,), budgets=(1, 4), candidates=4)


@pytest.fixture(scope="module")
def lake():
    return calibrate_env(replace(FEW, score="FrozenLakeScore"))


def test_a_report_holds_ranks_drops_gains_and_bars(lake):
    assert [row.turn for row in lake.turns] == list(range(1, len(lake.turns) + 1))
    assert lake.turns[0].states == 8 * 4
    assert lake.siblings.kendall.mean > 0.5
    assert lake.siblings.lost.mean < lake.siblings.lost_by_chance.mean
    assert [(setting.label, setting.width, setting.budget) for setting in lake.settings] == [
        ("beam(width=2, branching=1)", 2, 1),
        ("beam(width=2, branching=4)", 2, 4),
    ]
    single, four = lake.settings
    # A single candidate is no search.
    assert (single.drops.dropped, single.siblings.sets) == (0, 0)
    assert (single.success, single.gain.mean) == (lake.alone, 0.0)
    assert four.drops.dropped > 0
    assert four.env_steps > single.env_steps > lake.alone_env_steps
    assert (four.sampled_tokens, lake.budget, lake.unknown) == (0.0, "branching", [])


def test_bars_scorers_and_draws_are_of_the_same_instances(lake):
    exact = bars(EnvPool("frozenlake", {"split": "test"}), tasks=held_out(8))
    assert lake.random == (exact.random,) * 3
    assert lake.optimal == pytest.approx(exact.optimal)
    reward = calibrate_env(replace(FEW, score="reward", budgets=(1,)))
    assert [(row.states, row.value) for row in reward.turns] == [(row.states, row.value) for row in lake.turns]
    assert reward.siblings.lost_by_chance == lake.siblings.lost_by_chance
    # The reward is constant before the goal.
    assert reward.siblings.kendall.mean < lake.siblings.kendall.mean
    assert reward.alone == lake.alone
    again = calibrate_env(replace(FEW, score="FrozenLakeScore", budgets=(4,), repeats=3))
    assert again.settings[0].env_steps > 2 * lake.settings[1].env_steps


def test_a_calibration_repeats_and_reports_its_progress(lake):
    steps = []
    again = calibrate_env(replace(FEW, score="FrozenLakeScore"), watch=lambda *step: steps.append(step))
    assert again == lake
    searches = [f"beam(width=2, branching={number}): {what}" for number in (1, 4) for what in ("trees", "play")]
    assert steps == [(stage, 8, 8) for stage in ("candidates", "policy alone", *searches)]


def test_sokoban_and_the_shop_have_exact_values_too():
    rooms = calibrate_env(replace(FEW, env="sokoban", score="SokobanScore(potential='oracle')", budgets=(4,)))
    assert rooms.optimal == 1.0
    assert rooms.siblings.kendall.mean > 0.4
    shop = calibrate_env(replace(FEW, env="webshop", score="WebShopScore", instances=4, budgets=(2,)))
    assert shop.optimal == 1.0
    assert shop.settings[0].drops.winnable.mean > 0
    # The bar of random play is not known exactly there, so it was played.
    assert shop.random == shop.alone


def test_without_exact_values_a_sentence_lists_the_missing_results():
    result = calibrate_env(replace(FEW, instances=3, budgets=(2,), env_set=("max_actions=null",)))
    assert (result.turns, result.siblings, result.optimal) == ([], None, None)
    assert [(setting.siblings, setting.drops) for setting in result.settings] == [(None, None)]
    assert result.settings[0].env_steps > 0
    (sentence,) = result.unknown
    assert "does not know the exact value of its states" in sentence


def test_states_without_a_value_are_counted(monkeypatch):
    best_value = FrozenLakeEnv.best_value

    def forgetful(self, state, turns_left, actions_left):
        return None if actions_left < 5 else best_value(self, state, turns_left, actions_left)

    monkeypatch.setattr(FrozenLakeEnv, "best_value", forgetful)
    result = calibrate_env(replace(FEW, budgets=(2,)))
    assert result.optimal is not None
    walked, searched = result.unknown
    assert walked.startswith("the policy's play: ")
    assert searched.startswith("beam(width=2, branching=2): ")
    assert walked.endswith(" states were left out, because their value is not known")


def test_a_model_makes_candidates(base_model):
    config = replace(FEW, env="sokoban", model=str(base_model), instances=3, budgets=(2,), candidates=2)
    result = calibrate_env(config)
    assert result.settings[0].sampled_tokens > result.alone_sampled_tokens > 0
    assert result.optimal == 1.0
    with pytest.raises(ConfigError, match="made for tsr/Sokoban-v0"):
        calibrate_env(replace(config, env="frozenlake"))


@pytest.fixture(scope="module")
def lake_model(tmp_path_factory):
    """An embedded model of FrozenLake, hardly trained."""
    folder = tmp_path_factory.mktemp("models") / "lake"
    build_base_model("frozen_lake", folder, SMALL)
    return folder


def test_draws_and_risk_reach_the_environments_of_a_model_too(lake_model):
    config = replace(FEW, model=str(lake_model), score="FrozenLakeScore", instances=6, budgets=(2,), candidates=2)
    once, mean = calibrate_env(config), calibrate_env(replace(config, repeats=8))
    cautious = calibrate_env(replace(config, repeats=8, risk=0.0))
    # A played turn takes one step for any number of draws; an imagined turn that moves takes eight.
    assert mean.settings[0].env_steps > 4 * once.settings[0].env_steps
    assert cautious.settings[0].siblings != mean.settings[0].siblings


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"env": "nonsense"}, "there is no environment 'nonsense'"),
        ({"score": "Nonsense"}, "there is no scorer 'Nonsense'"),
        ({"score": "FrozenLakeScore(height=2)"}, r"the scorer 'FrozenLakeScore' has no \['height'\]"),
        ({"score": "SokobanScore(potential='estimate')"}, "SokobanScore rates a SokobanState, and FrozenLakeEnv has"),
        ({"env": "sokoban", "score": "FrozenLakeScore"}, "FrozenLakeScore rates a FrozenLakeState, and SokobanEnv has"),
        ({"search": "dream"}, "there is no strategy 'dream'"),
        ({"split": "tset"}, "wanted split of"),
        ({"budgets": ()}, "wanted at least one of budgets"),
        ({"budgets": (2, 0)}, "wanted budgets as a whole number >= 1, got 0"),
        ({"widths": (0,)}, "wanted widths as a whole number >= 1, got 0"),
        ({"candidates": 1}, "wanted candidates as a whole number >= 2, got 1"),
        ({"instances": 0}, "wanted instances as a whole number >= 1"),
        ({"seeds": 0}, "wanted seeds as a whole number >= 1"),
        ({"depth": -1}, "wanted depth as a whole number >= 0"),
        ({"repeats": 0}, "wanted repeats as a whole number >= 1"),
        ({"repeats": 2, "noise": "same"}, "needs draws that differ"),
        ({"risk": 2.0}, "wanted risk >= 0 and <= 1"),
    ],
    ids=str,
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        calibrate_env(replace(FEW, **changes))


def shown(search, **more):
    name, settings = search_settings(search, **{"widths": None, "budgets": (2, 4), **more})
    return name, [(setting.label, setting.width, setting.budget) for setting in settings]


def test_every_width_comes_with_every_budget():
    assert shown("beam") == (
        "branching",
        [
            ("beam(width=1, branching=2)", 1, 2),
            ("beam(width=1, branching=4)", 1, 4),
            ("beam(width=2, branching=2)", 2, 2),
            ("beam(width=2, branching=4)", 2, 4),
        ],
    )


@pytest.mark.parametrize(
    ("search", "name", "label"),
    [
        ("greedy", "branching", "greedy(branching=2)"),
        ("lookahead", "branching", "lookahead(branching=2)"),
        ("best_of_n", "n", "best_of_n(n=2)"),
        ("naive", "rollouts", "naive(rollouts=2)"),
        ("puct", "simulations", "puct(simulations=2)"),
        ("tsr_gym.agents.strategies:greedy", "branching", "tsr_gym.agents.strategies:greedy(branching=2)"),
    ],
)
def test_a_strategy_without_a_width_varies_what_it_spends(search, name, label):
    result, settings = shown(search)
    assert (result, [(settings[0]), len(settings)]) == (name, [(label, None, 2), 2])


def test_numbers_that_are_given_stay_and_strategies_have_those_of_their_labels():
    assert shown("beam(width=3, rank='last')")[1][0] == ("beam(branching=2, width=3, rank='last')", None, 2)
    # With its candidates given, a lookahead varies its rollouts.
    assert shown("lookahead(branching=4)")[0] == "rollouts"
    _, settings = search_settings("beam", widths=(2,), budgets=(3,))
    env = letters({"a": 1.0, "b": 2.0, "c": 0.0}, turns=2)
    tree = env.search(Script({"": "abc", "a": "abc", "b": "abc"}), settings[0].strategy)
    assert [len(tree.children(node)) for node in range(4)] == [3, 3, 3, 0]


def test_an_unknown_or_repeated_number_is_refused():
    assert shown("lookahead", depth=1)[1][0][0] == "lookahead(branching=2, depth=1)"
    with pytest.raises(ConfigError, match="the strategy 'puct' has no depth, got depth=1"):
        shown("puct", depth=1)
    with pytest.raises(ConfigError, match=r"depth stands in .* and again as depth=1"):
        shown("lookahead(depth=3)", depth=1)
    with pytest.raises(ConfigError, match=r"has no width to vary, got widths \[1, 2\]"):
        shown("greedy", widths=(1, 2))
