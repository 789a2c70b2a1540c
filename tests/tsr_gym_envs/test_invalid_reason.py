"""Why an answer was invalid, in every world, and what is no text at all."""

import gymnasium as gym
import pytest
from gymnasium.error import InvalidAction

from tsr_gym.registration import ENTRY_POINTS
from tsr_gym.wrappers import AnswerFormat

SHOWN = "<search>who</search>"
REASONS = [
    ("Sokoban", {}, "please", "'please' is no action: write Up, Down, Left or Right"),
    ("Sokoban", {}, "Up || oops || what", "'oops' is no action: write Up, Down, Left or Right"),
    ("Sokoban", {}, " || ", "the turn holds no action"),
    ("FrozenLake", {}, "please", "'please' is no action: write Left, Down, Right or Up"),
    ("FrozenLake", {}, "", "the turn holds no action"),
    ("WebShop", {}, "red shoes", "'red shoes' is no action: write search[words] or click[name]"),
    ("WebShop", {}, "buy[now]", "'buy[now]' is no action: write search[words] or click[name]"),
    ("WebShop", {}, "click[buy now]", "the page shows no 'buy now' to click"),
    ("WebShop", {}, "click[Search]", "'search' is no click: write search[words]"),
    ("WebShop", {"rules": "original"}, "Click[x]", "'Click[x]' is no action: write search[words] or click[name]"),
    ("WebShop", {}, "\n", "the turn holds no action"),
    ("RetrievalQA", {}, "who", "the turn holds neither <search> nor <answer>"),
    ("RetrievalQA", {}, "<search>who", "the turn holds neither <search> nor <answer>"),
    ("RetrievalQA", {}, "", "the turn holds neither <search> nor <answer>"),
    (
        "RetrievalQA",
        {"protocol": {"preset": "search-r1", "both": "invalid", "cut": "never"}},
        "<search>a</search><answer>b</answer>",
        "wanted one search or one answer, got 2",
    ),
    (
        "RetrievalQA",
        {"protocol": "verl"},
        "<tool_call>{</tool_call>",
        "the search is no call of 'search' with a list of texts as \"query_list\"",
    ),
]


def step(name, settings, action):
    env = gym.make(f"tsr/{name}-v0", disable_env_checker=True, **settings)
    env.reset(seed=0)
    return env.step(action)[4]


@pytest.mark.parametrize(("name", "settings", "action", "reason"), REASONS, ids=range(len(REASONS)))
def test_an_invalid_answer_is_told_why(name, settings, action, reason):
    info = step(name, settings, action)
    assert (info["action_is_valid"], info["invalid_reason"]) == (False, reason)


@pytest.mark.parametrize(
    ("name", "action"),
    [("Sokoban", "Up || Left"), ("FrozenLake", "up"), ("WebShop", "search[mug]"), ("RetrievalQA", SHOWN)],
)
def test_a_valid_answer_has_no_reason(name, action):
    info = step(name, {}, action)
    assert info["action_is_valid"]
    assert "invalid_reason" not in info


def test_a_long_word_is_cut_in_its_reason():
    assert len(step("Sokoban", {}, "x" * 90_000)["invalid_reason"]) < 200


@pytest.mark.parametrize("name", ENTRY_POINTS)
@pytest.mark.parametrize("action", [3, None, b"Up", ["Up"], 1.5])
def test_what_is_no_text_is_a_mistake_of_the_programmer_and_named(name, action):
    env = gym.make(name, disable_env_checker=True)
    env.reset(seed=0)
    before = env.unwrapped.episode
    with pytest.raises(InvalidAction, match="wanted an action as text, got"):
        env.step(action)
    assert env.unwrapped.episode == before


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Up", "wanted <think>...</think><answer>...</answer>, with the action in the answer"),
        ("<answer>Up</answer>", "wanted <think>...</think><answer>...</answer>, with the action in the answer"),
        ("<think></think><answer></answer>", "the turn holds no action"),
        ("<think></think><answer>go</answer>", "'go' is no action: write Up, Down, Left or Right"),
    ],
)
def test_the_format_of_answers_has_reasons_of_its_own(text, reason):
    env = AnswerFormat(gym.make("tsr/Sokoban-v0"))
    env.reset(seed=0)
    info = env.step(text)[4]
    assert (info["action_is_valid"], info["invalid_reason"]) == (False, reason)
    assert "invalid_reason" not in env.step(env.format("Up"))[4]


def test_without_thoughts_the_format_asks_for_none():
    env = AnswerFormat(gym.make("tsr/Sokoban-v0"), think=False)
    env.reset(seed=0)
    assert env.step("Up")[4]["invalid_reason"] == "wanted <answer>...</answer>, with the action in the answer"
