"""Every registered environment keeps both contracts: a new one is tested by registering it."""

import gymnasium as gym
import pytest

import tsr_gym
from tsr_gym.registration import ENTRY_POINTS, OPTIONAL_ENTRY_POINTS
from tsr_gym.testing import check_snapshot, check_text_env
from tsr_gym.wrappers import AnswerFormat, TreeSearchWrapper

LEVEL = "#######\n#@ $ .#\n#  $ .#\n#######"
SETTINGS = {
    "tsr/FrozenLake-v0": [
        {"preset": "tsr-code"},
        {"obs_type": "coord", "is_slippery": False},
        {"obs_type": "compact", "noise": "shared"},
        {"generator": "gymnasium", "size": 5, "max_turns": None, "max_actions_per_turn": 1},
        {"desc": ["SFS", "FHF", "FGG"], "success_rate": 0.7, "split": "test"},
        {"map_name": "8x8", "max_actions": 25, "max_actions_per_turn": 2},
        {"max_actions_per_turn": None},
    ],
    "tsr/Sokoban-v0": [
        {"preset": "tsr-code"},
        {"obs_type": "coord", "dim": (7, 6), "num_boxes": 2},
        {"obs_type": "compact", "split": "valid"},
        {"level": LEVEL, "max_turns": None, "max_actions": None},
        {"max_turns": 1, "reward_box": 0.0},
    ],
}
CASES = [(name, settings) for name in ENTRY_POINTS for settings in [{}, *SETTINGS.get(name, [])]]


@pytest.mark.parametrize(("name", "settings"), CASES, ids=str)
def test_a_registered_environment_keeps_the_contract_of_text_environments(name, settings):
    check_text_env(gym.make(name, **settings))


@pytest.mark.parametrize(("name", "settings"), CASES, ids=str)
def test_snapshots_of_a_registered_environment_are_exact(name, settings):
    # Other processes are asked below, once per environment: they cost most of the time.
    check_snapshot(gym.make(name, **settings), other_processes=False)


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_a_registered_environment_plays_alike_in_other_processes(name):
    for settings in [{}, *SETTINGS.get(name, [])][:3]:
        check_snapshot(gym.make(name, **settings), seeds=(3,))


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_a_registered_environment_can_be_searched(name):
    check_snapshot(TreeSearchWrapper(AnswerFormat(gym.make(name))), seeds=(5,))


def test_all_of_tsr_is_registered_with_gymnasium():
    assert {name for name in gym.registry if name.startswith("tsr/")} == {*ENTRY_POINTS, *OPTIONAL_ENTRY_POINTS}
    assert tsr_gym.registration.ENTRY_POINTS is ENTRY_POINTS
