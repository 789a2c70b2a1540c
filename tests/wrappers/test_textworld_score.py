"""TextWorldScore of states that are written down here."""

import gymnasium as gym
import pytest

from tsr_gym import ConfigError
from tsr_gym.wrappers import TextWorldScore
from tsr_gym_envs.textworld.state import Scene, TextWorldState
from tsr_gym_envs.zmachine.memory import Memory


def state(points, progress, ended=""):
    memory = Memory(b"", b"", (), b"")
    return TextWorldState(0, Scene(memory, (), "", "", "", points, (), progress, ended, ()))


@pytest.mark.parametrize(
    ("kind", "after", "score"),
    [
        ("quests", state(2, 0.4), 0.4),
        ("points", state(2, 0.4), 2.0),
        ("quests", state(2, 0.4, "lost"), -1.0),
        ("points", state(2, 0.4, "lost"), -1.0),
        ("quests", state(3, 1.0, "won"), 1.0),
    ],
)
def test_the_score_is_that_of_the_state_that_was_reached(kind, after, score):
    # Any environment serves: the score looks at states alone.
    assert TextWorldScore(gym.make("CartPole-v1"), kind=kind).score(state(0, 0.0), "look", after, 0.0) == score


def test_an_unknown_kind_is_refused():
    with pytest.raises(ConfigError, match=r"wanted kind of \['points', 'quests'\], got 'wins'"):
        TextWorldScore(gym.make("CartPole-v1"), kind="wins")
