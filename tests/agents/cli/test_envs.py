"""`tsr envs`: what can be chosen, with the defaults that an environment really has."""

import json
from dataclasses import fields

import gymnasium as gym
import pytest

from tsr_gym.agents import cli
from tsr_gym.agents.cli.envs import list_scorers
from tsr_gym.agents.strategies import beam
from tsr_gym.registration import ENTRY_POINTS, OPTIONAL_ENTRY_POINTS, SHORT_NAMES


def listed(capsys, *args):
    assert cli.main(["envs", *args, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_environments_strategies_and_scorers_are_listed_with_the_worlds_that_they_fit(capsys):
    found = listed(capsys)
    assert [one["id"] for one in found["environments"]] == [*ENTRY_POINTS, *OPTIONAL_ENTRY_POINTS]
    assert {short for one in found["environments"] for short in one["short_names"]} == set(SHORT_NAMES)
    named = {one["name"] for one in found["strategies"]}
    assert {"beam", "best_of_n", "lookahead", "puct"} <= named
    assert {one["name"] for one in found["scorers"]} >= {"RewardScore", "SokobanScore"}
    worlds = {one["name"]: one["world"] for one in list_scorers()}
    assert worlds["SokobanScore"] == "tsr_gym_envs.sokoban"
    assert (worlds["RewardScore"], worlds["PotentialScore"]) == ("any", "any")
    (lake,) = listed(capsys, "frozen_lake")["environments"]
    assert {"FrozenLakeScore", "RewardScore"} <= set(lake["scorers"])
    assert "SokobanScore" not in lake["scorers"]


@pytest.mark.parametrize("name", ["tsr/Sokoban-v0", "tsr/FrozenLake-v0"])
def test_the_defaults_are_those_of_an_environment_that_was_made_without_settings(capsys, name):
    (one,) = listed(capsys, name)["environments"]
    told = {item["name"]: item["default"] for item in one["settings"]}
    settings = gym.make(name).unwrapped.settings
    made = {field.name: getattr(settings, field.name) for field in fields(settings)}
    assert {key: told[key] for key in made} == json.loads(json.dumps(made))
    assert "render_mode" in told


def test_choices_are_written_out_and_for_people_it_is_tables(capsys):
    (sokoban,) = listed(capsys, "sokoban")["environments"]
    choices = {item["name"]: item["type"] for item in sokoban["settings"]}
    assert choices["generator"] == "native | ragen | gym-sokoban"
    assert cli.main(["envs", "sokoban"]) == 0
    shown = capsys.readouterr().out
    assert "settings of tsr/Sokoban-v0" in shown
    assert "solution_length" in shown


def test_settings_of_strategies_and_of_environments_of_others_are_read(capsys):
    (ours,) = [one for one in listed(capsys)["strategies"] if one["name"] == "beam"]
    told = {item["name"]: item["default"] for item in ours["settings"]}
    assert told == beam.__kwdefaults__
    (cart,) = listed(capsys, "CartPole-v1")["environments"]
    assert (cart["id"], cart["short_names"], cart["guide"]) == ("CartPole-v1", [], "reward")
    assert "sutton_barto_reward" in {item["name"] for item in cart["settings"]}
