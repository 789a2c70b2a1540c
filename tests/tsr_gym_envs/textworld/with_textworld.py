"""Further checks of `make test-textworld`: the contracts in full, and many commands compared with TextWorld."""

import gymnasium as gym
import pytest

from tests.tsr_gym_envs.textworld.beside import compare
from tsr_gym.testing import check_snapshot, check_text_env
from tsr_gym.wrappers import AnswerFormat, TextWorldScore, TreeSearchWrapper

SETTINGS = [
    {"game": "simple", "num_games": 3, "observation_mode": "commands"},
    {"game": "coin_collector", "level": 105, "num_games": 3, "observation_mode": "feedback"},
    {"game": "treasure_hunter", "level": 21, "num_games": 3},
    {"game": "cooking", "level": 9, "num_games": 3},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: settings["game"])
def test_a_game_keeps_both_contracts_here_and_in_other_processes(settings):
    check_text_env(gym.make("tsr/TextWorld-v0", **settings))
    check_snapshot(gym.make("tsr/TextWorld-v0", **settings), seeds=(3,))


def test_a_game_can_be_searched():
    env = gym.make("tsr/TextWorld-v0", **SETTINGS[3])
    check_snapshot(TreeSearchWrapper(TextWorldScore(AnswerFormat(env))), seeds=(5,))


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: settings["game"])
def test_ten_thousand_commands_bring_what_textworld_says_they_bring(settings, tmp_path, monkeypatch):
    # TextWorld's own interpreter writes transcripts where it stands.
    monkeypatch.chdir(tmp_path)
    assert compare({**settings, "num_games": 10}, 2500, seed=11) == 2500
