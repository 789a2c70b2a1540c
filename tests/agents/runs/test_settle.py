"""Settle: what the card of a model says of training, and who wins."""

import pytest

from tsr_gym import ConfigError
from tsr_gym.agents.models.card import ModelCard
from tsr_gym.agents.runs.config import TrainConfig
from tsr_gym.agents.runs.settle import settle

CONFIG = TrainConfig(env="sokoban")
CARD = ModelCard(learn={"lr": 3e-4, "algorithm": "grpo", "filter": "mixed_success", "groups": 4})


def test_settings_of_every_section_come_from_the_card():
    config, words = settle(CONFIG, CARD, set())
    assert (config.learn.lr, config.learn.algorithm) == (3e-4, "grpo")
    assert (config.lessons.filter, config.search.groups) == ("mixed_success", 4)
    assert config.search.trajectories == CONFIG.search.trajectories
    for told in ("lr 0.0003 (the model's card)", "filter mixed_success (the model's card)", "groups 4 (the model's"):
        assert told in words
    assert "critic_lr 1e-05 (default)" in words


def test_what_was_given_wins_and_is_told_where_it_is_of_learning():
    config, words = settle(CONFIG, CARD, {"lr", "groups"})
    assert (config.learn.lr, config.search.groups) == (CONFIG.learn.lr, CONFIG.search.groups)
    assert "lr 1e-06 (command line)" in words
    assert "groups" not in words


@pytest.mark.parametrize("learn", [{"wings": 2}, {"lr": -1.0}, {"filter": "varied("}, {"groups": 0}])
def test_a_setting_that_there_is_not_or_cannot_be_is_refused(learn):
    with pytest.raises(ConfigError, match=r"the settings of learning in the model's tsr_gym\.json"):
        settle(CONFIG, ModelCard(learn=learn), set())
