"""Wrappers that write text: answer formats, and MiniGrid in words."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import InvalidAction
from hypothesis import given
from hypothesis import strategies as st

from tests.tsr_gym.testing.worlds import Walk
from tsr_gym import ConfigError
from tsr_gym.wrappers import AnswerFormat, MiniGridText
from tsr_gym.wrappers.minigrid_text import in_words

TEXTS = [
    ("<think>a</think><answer>Up</answer>", "Up"),
    ("<think></think><answer></answer>", ""),
    ("<think>a</think> \n\t <answer> Up || Left </answer>", "Up || Left"),
    ("noise <think>a</think><answer>Up</answer> noise", "Up"),
    ("<think>one</think><answer>Up</answer><think>two</think><answer>Down</answer>", "Up"),
    # The first closing tag ends the answer, tags inside it are dropped.
    ("<think>a</think><answer>Up<answer>Down</answer>", "UpDown"),
    ("<think>a</think><answer>Up<|im_end|></answer>", "Up"),
    ("<think>a <answer>no</answer></think><answer>Up</answer>", "Up"),
    ("<think>a</think>b</think><answer>Up</answer>", "Up"),
    ("<think>a</think> b <answer>Up</answer>", None),
    ("<answer>Up</answer>", None),
    ("<think>a</think><answer>Up", None),
    ("<think>a<answer>Up</answer>", None),
    ("</think><answer>Up</answer>", None),
    ("</think><answer>Up</answer><think>", None),
    ("<THINK>a</THINK><ANSWER>Up</ANSWER>", None),
    ("Up", None),
    ("", None),
]


@pytest.mark.parametrize(("text", "answer"), TEXTS)
def test_the_answer_is_found_where_the_form_is_kept(text, answer):
    assert AnswerFormat.parse(text) == answer
    unthought = {"<answer>Up</answer>": "Up", "so <answer> Up</answer>": "Up", "<answer>Up": None, "Up": None, "": None}
    assert {text: AnswerFormat.parse(text, think=False) for text in unthought} == unthought


PARTS = ["<think>", "</think>", "<answer>", "</answer>", "Up", " ", "\ud800"]


@given(
    st.text(alphabet=st.sampled_from("abU p|\n<>é"), max_size=30).map(str.strip),
    st.lists(st.sampled_from(PARTS), max_size=12),
)
def test_what_format_writes_parse_reads_and_any_text_is_an_answer_or_none(action, parts):
    for think in (True, False):
        env = AnswerFormat(Walk(), think=think)
        assert AnswerFormat.parse(env.format(action, "thought"), think=think) == action
    answer = AnswerFormat.parse("".join(parts))
    assert answer is None or "<answer>" not in answer


def stack(**arguments):
    env = AnswerFormat(Walk(), **arguments)
    env.reset(seed=1)
    return env


def test_a_good_answer_is_the_action_and_costs_nothing():
    env = stack()
    observation, reward, terminated, truncated, info = env.step("<think>x</think><answer>Right || Right</answer>")
    assert observation.startswith("You are at 2")
    assert (reward, terminated, truncated) == (pytest.approx(-0.2), False, False)
    assert info["action"] == "Right || Right"
    assert info["action_is_valid"] is True
    assert info["format_penalty"] == 0.0


@pytest.mark.parametrize(
    ("text", "action", "reward"),
    [
        ("Right", "", -0.5),
        ("<think>x</think><answer></answer>", "", -0.5),
        ("<think>x</think><answer>Right || Fly</answer>", "Right || Fly", -0.6),
        ("<think>x</think><answer>Fly</answer>", "Fly", -0.5),
    ],
)
def test_a_bad_answer_is_carried_out_as_far_as_it_goes_and_costs_the_penalty(text, action, reward):
    _, came, _, _, info = stack(penalty=0.5).step(text)
    assert (came, info["action"]) == (pytest.approx(reward), action)
    assert info["action_is_valid"] is False
    assert (info["format_penalty"], info["turns_left"]) == (0.5, 5)


def test_a_negative_penalty_is_refused_and_the_wrapper_is_part_of_the_spec():
    with pytest.raises(ConfigError, match=r"wanted penalty >= 0, got -0.1"):
        AnswerFormat(Walk(), penalty=-0.1)
    again = gym.make(AnswerFormat(gym.make("tsr/Sokoban-v0"), penalty=0.3, think=False).spec)
    assert (type(again), again.penalty, again.think) == (AnswerFormat, 0.3, False)


def test_an_environment_that_knows_no_validity_is_taken_to_be_content():
    class Bare(gym.Env):
        observation_space = action_space = gym.spaces.Text(9)

        def reset(self, *, seed=None, options=None):
            return "", {}

        def step(self, action):
            return action, 1.0, False, False, {}

    env = AnswerFormat(Bare())
    env.reset()
    assert env.step("<think></think><answer>go</answer>")[:2] == ("go", 1.0)
    assert env.step("go")[:2] == ("", 0.9)


EMPTY, WALL, DOOR, KEY, BALL, GOAL = (1, 0, 0), (2, 5, 0), (4, 4, 2), (5, 4, 0), (6, 2, 0), (8, 1, 0)
SIGNS = {".": EMPTY, "#": WALL, "D": DOOR, "K": KEY, "B": BALL, "G": GOAL, "?": (0, 0, 0)}


def view(*rows):
    """Return an image from rows as the agent sees them, the farthest first."""
    return np.array([[SIGNS[row[x]] for row in rows] for x in range(len(rows[0]))], np.uint8)


def test_a_view_names_what_is_ahead_to_the_sides_and_carried():
    image = view("??#??", "..G..", "B....", "..D.K", "..K..")
    seen = {"image": image, "direction": 3, "mission": "get to the green goal square"}
    objects = "a locked yellow door 1 ahead; a yellow key 1 ahead and 2 to the right"
    assert in_words(seen).split("\n") == [
        "Mission: get to the green goal square.",
        "You carry a yellow key.",
        "You look north. In front of you: a locked yellow door.",
        "The wall ahead is 4 away.",
        f"You see: {objects}; a blue ball 2 ahead and 2 to the left; a green goal 3 ahead.",
    ]
    seen = {"image": view("...", "...", "..."), "direction": 0, "mission": "go"}
    looks = "You carry nothing.", "You look east. In front of you: nothing.", "You see no wall ahead."
    assert in_words(seen).split("\n")[1:] == [*looks, "You see: nothing else."]


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


def test_a_word_without_meaning_takes_a_turn_and_other_environments_are_refused():
    env = MiniGridText(Corridor())
    env.reset(seed=0)
    *_, info = env.step("jump")
    assert (info["took"], info["action_is_valid"]) == (6, False)
    assert info["invalid_reason"].startswith("'jump' is no action: write left, right")
    with pytest.raises(InvalidAction):
        env.step(3)
    with pytest.raises(ConfigError, match="wanted an environment of MiniGrid"):
        MiniGridText(gym.make("CartPole-v1"))
