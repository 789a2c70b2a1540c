"""MiniGrid's view in words: views that are drawn here, cell by cell."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import InvalidAction

from tsr_gym import ConfigError
from tsr_gym.wrappers import MiniGridText
from tsr_gym.wrappers.minigrid_text import in_words

EMPTY, WALL, DOOR, KEY, BALL, GOAL = (1, 0, 0), (2, 5, 0), (4, 4, 2), (5, 4, 0), (6, 2, 0), (8, 1, 0)
SIGNS = {".": EMPTY, "#": WALL, "D": DOOR, "K": KEY, "B": BALL, "G": GOAL, "?": (0, 0, 0)}


def view(*rows):
    """Return an image from rows as the agent sees them, the farthest first."""
    return np.array([[SIGNS[row[x]] for row in rows] for x in range(len(rows[0]))], np.uint8)


def test_a_view_names_what_is_ahead_to_the_sides_and_carried():
    image = view("??#??", "..G..", "B....", "..D.K", "..K..")
    seen = {"image": image, "direction": 3, "mission": "get to the green goal square"}
    assert in_words(seen).split("\n") == [
        "Mission: get to the green goal square.",
        "You carry a yellow key.",
        "You look north. In front of you: a locked yellow door.",
        "The wall ahead is 4 away.",
        "You see: a locked yellow door 1 ahead; a yellow key 1 ahead and 2 to the right; "
        "a blue ball 2 ahead and 2 to the left; a green goal 3 ahead.",
    ]


def test_an_empty_view_says_so():
    seen = {"image": view("...", "...", "..."), "direction": 0, "mission": "go"}
    assert in_words(seen).split("\n")[1:] == [
        "You carry nothing.",
        "You look east. In front of you: nothing.",
        "You see no wall ahead.",
        "You see: nothing else.",
    ]


class Corridor(gym.Env):
    """Stands in for MiniGrid: it remembers the number of the last action."""

    observation_space = gym.spaces.Dict(
        image=gym.spaces.Box(0, 255, (3, 3, 3), np.uint8),
        direction=gym.spaces.Discrete(4),
        mission=gym.spaces.Text(20),
    )
    action_space = gym.spaces.Discrete(7)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return {"image": view("...", "...", "..."), "direction": 0, "mission": "go"}, {}

    def step(self, action):
        return {"image": view("...", ".#.", "..."), "direction": 1, "mission": "go"}, 0, False, False, {"took": action}


@pytest.mark.parametrize(("word", "number"), [("left", 0), (" Forward\n", 2), ("TOGGLE", 5), ("done", 6)])
def test_a_word_is_the_action_of_minigrid(word, number):
    env = MiniGridText(Corridor())
    env.reset(seed=0)
    text, reward, *_, info = env.step(word)
    assert (info["took"], info["action_is_valid"], type(reward)) == (number, True, float)
    assert "In front of you: wall." in text
    assert text in env.observation_space


def test_a_word_that_is_none_takes_a_turn_and_is_told():
    env = MiniGridText(Corridor())
    env.reset(seed=0)
    *_, info = env.step("jump")
    assert (info["took"], info["action_is_valid"]) == (6, False)
    assert info["invalid_reason"].startswith("'jump' is no action: write left, right")
    with pytest.raises(InvalidAction):
        env.step(3)


def test_another_environment_is_refused():
    with pytest.raises(ConfigError, match="wanted an environment of MiniGrid"):
        MiniGridText(gym.make("CartPole-v1"))
