"""Recipes of the command line: their flags, but for those that were given."""

import pytest

from tsr_gym.agents.cli.recipes import RECIPES, follow_recipe
from tsr_gym.agents.cli.train import _configured
from tsr_gym.errors import ConfigError


@pytest.mark.parametrize(
    ("env", "guide"),
    [
        ("sokoban", "SokobanScore(potential='next_push')"),
        ("tsr/FrozenLake-v0", "FrozenLakeScore"),
        ("retrieval_qa", "RetrievalQAScore(kind='novelty')"),
    ],
)
def test_a_recipe_goes_by_the_public_guide_of_the_world(env, guide):
    args = follow_recipe([env, "--recipe", "tsr+"])
    assert args[args.index("--score") + 1] == guide


def test_where_there_is_no_public_guide_a_search_that_needs_none_takes_its_place():
    args = follow_recipe(["CartPole-v1", "--recipe", "tsr+"])
    assert args == follow_recipe(["CartPole-v1", "--recipe", "levin"])
    assert args[args.index("--search") + 1] == "levin(expansions=60)"
    assert "--score" not in args


def test_what_is_given_wins_over_a_recipe():
    config = _configured(follow_recipe(["sokoban", "--recipe=tsr+", "--minibatch=32", "--score", "reward"]))
    assert (config.learn.minibatch, config.task.score) == (32, "reward")
    assert (config.search.search_when, config.search.naive, config.learn.lr_decay_from) == ("failed", 4, 0.5)


@pytest.mark.parametrize("name", RECIPES)
def test_every_flag_of_a_recipe_is_one_of_training(name):
    _configured(follow_recipe(["sokoban", "--recipe", name]))


@pytest.mark.parametrize(
    ("args", "message"),
    [(["sokoban", "--recipe", "tsr"], "did you mean tsr\\+"), (["--recipe", "tsr+"], "wanted the environment before")],
)
def test_an_unknown_recipe_and_one_without_a_world_are_refused(args, message):
    with pytest.raises(ConfigError, match=message):
        follow_recipe(args)


def test_without_a_recipe_a_command_line_stays_as_it_is():
    assert follow_recipe(["sokoban", "--lr", "1e-3"]) == ["sokoban", "--lr", "1e-3"]
