"""Settings of a search: every width with every budget, by whatever name the strategy has for them."""

import pytest

from tests.agents.worlds import Script, letters
from tsr_gym.agents.reports.search_settings import search_settings
from tsr_gym.errors import ConfigError


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
    found, settings = shown(search)
    assert found == name
    assert [(settings[0]), len(settings)] == [(label, None, 2), 2]


def test_numbers_that_are_given_stay():
    assert shown("beam(width=3, rank='last')")[1][0] == ("beam(branching=2, width=3, rank='last')", None, 2)
    # With its candidates given, a lookahead varies its rollouts.
    assert shown("lookahead(branching=4)")[0] == "rollouts"


def test_the_strategies_do_what_their_labels_say():
    _, settings = search_settings("beam", widths=(2,), budgets=(3,))
    env = letters({"a": 1.0, "b": 2.0, "c": 0.0}, turns=2)
    tree = env.search(Script({"": "abc", "a": "abc", "b": "abc"}), settings[0].strategy)
    assert [len(tree.children(node)) for node in range(4)] == [3, 3, 3, 0]


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ("dream", "there is no strategy 'dream'"),
        ("beam(hight=3)", "has no"),
        ("naive(rollouts=2)", "the strategy 'naive.rollouts=2.' has no number to vary"),
    ],
)
def test_what_is_no_strategy_or_has_nothing_to_vary_is_refused(search, message):
    with pytest.raises(ConfigError, match=message):
        shown(search)


def test_a_number_that_the_strategy_has_not_or_that_stands_in_both_is_refused():
    assert shown("lookahead", depth=1)[1][0][0] == "lookahead(branching=2, depth=1)"
    with pytest.raises(ConfigError, match="the strategy 'puct' has no depth, got depth=1"):
        shown("puct", depth=1)
    with pytest.raises(ConfigError, match=r"depth stands in .* and again as depth=1"):
        shown("lookahead(depth=3)", depth=1)
    with pytest.raises(ConfigError, match=r"has no width to vary, got widths \[1, 2\]"):
        shown("greedy", widths=(1, 2))
