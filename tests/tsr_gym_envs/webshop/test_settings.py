"""Settings: what rules and presets imply, and what is refused."""

import pytest

from tsr_gym import ConfigError
from tsr_gym_envs.webshop.repairs import NAMES, RULES
from tsr_gym_envs.webshop.settings import make_settings


def test_the_originals_rules_imply_its_text_and_no_limit():
    original = make_settings("default", {"rules": "original"})
    assert (original.observation_mode, original.max_turns) == ("text", None)
    fixed = make_settings("default", {})
    assert (fixed.observation_mode, fixed.max_turns) == ("text_options", 15)


def test_what_is_given_wins_over_presets_and_presets_over_rules():
    assert make_settings("paper", {"rules": "original"}).max_turns == 5
    assert make_settings("tsr-code", {"rules": "original", "max_turns": 3}).max_turns == 3
    assert make_settings("tsr-code", {"observation_mode": "rich"}).observation_mode == "rich"


def test_presets_are_what_was_published():
    paper, code = make_settings("paper", {}), make_settings("tsr-code", {})
    assert (paper.max_turns, paper.max_actions_per_turn, paper.max_actions) == (5, 2, 10)
    assert (code.max_turns, code.max_actions_per_turn, code.max_actions) == (9, 1, None)


def test_repairs_follow_the_rules_unless_they_are_named():
    assert make_settings("default", {}).chosen_repairs == RULES["fixed"]
    assert make_settings("default", {"rules": "original"}).chosen_repairs == RULES["original"]
    config = make_settings("default", {"rules": "original", "repairs": ["plain_queries"]})
    assert config.is_original
    assert [name for name in NAMES if name in str(config.repairs)] == ["plain_queries"]
    assert config.chosen_repairs.plain_queries
    assert not config.chosen_repairs.page_state


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rules": "mine"}, "wanted rules of"),
        ({"repairs": ["everything"]}, "unknown repairs"),
        ({"observation_mode": "pixels"}, "wanted observation_mode of"),
        (
            {"observation_mode": "compact", "rules": "original"},
            "the original's rules cannot parse the actions of compact pages",
        ),
        ({"split": "dev"}, "wanted split of"),
        ({"num_prev_obs": -1}, "wanted num_prev_obs >= 0"),
        ({"min_options": -1}, "wanted min_options >= 0"),
        ({"limit_goals": 0}, "wanted limit_goals >= 1"),
        ({"num_products": 0}, "wanted num_products >= 1"),
        ({"colour": "red"}, "unknown settings"),
    ],
)
def test_impossible_settings_are_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        make_settings("default", given)


def test_unknown_presets_are_refused():
    with pytest.raises(ConfigError, match="wanted preset of"):
        make_settings("quick", {})
