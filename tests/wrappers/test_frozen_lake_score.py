"""FrozenLakeScore: TSR's Eq. 14 through the wrapper."""

import gymnasium as gym
import pytest

from tsr_gym.wrappers import AnswerFormat, FrozenLakeScore

LAKE = ["SFF", "FHF", "FFG"]


@pytest.mark.parametrize(
    ("turn", "score"),
    [
        ("", -4.0),
        ("Right", -3.0),
        ("Down", -3.0),
        ("Right || Right", -2.0),
        ("Right || Down", -2.0 - 10.0),
        ("Right || Right || Down || Down", 0.0),
        ("Left", -4.0),
    ],
)
def test_a_turn_is_rated_by_the_state_that_it_reached(turn, score):
    env = FrozenLakeScore(gym.make("tsr/FrozenLake-v0", desc=LAKE, is_slippery=False))
    env.reset(seed=1)
    assert env.step(turn)[4]["score"] == score


def test_the_penalty_of_a_hole_is_a_keyword():
    env = FrozenLakeScore(gym.make("tsr/FrozenLake-v0", desc=LAKE, is_slippery=False), hole_penalty=0.5)
    env.reset(seed=1)
    assert env.step("Right || Down")[4]["score"] == -2.5


def test_scores_rate_states_so_that_a_tree_takes_the_last_one():
    env = FrozenLakeScore(AnswerFormat(gym.make("tsr/FrozenLake-v0")))
    assert env.score_of == "state"
    assert gym.make(env.spec).hole_penalty == 10.0
