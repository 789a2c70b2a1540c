"""Prompts: the two arrangements written out, and the names of histories."""

import pytest

from tsr_gym import Candidate, ConfigError, Node
from tsr_gym.agents.policies.prompts import PROMPTS, History, compact_prompt, paper_prompt, plain_prompt

FORM = "<think> [your reasoning] </think> <answer> [your actions] </answer>"


def node(depth, reward=0.0, **info):
    return Node(depth - 1 if depth else None, depth, Candidate(""), "P_G", reward, 0.0, False, False, info, None)


def test_the_papers_arrangement_has_rules_in_the_system_message_and_state_and_budget_each_turn():
    prompt = paper_prompt("Reach the goal.", max_tokens=100)
    assert prompt.system == "You are a helpful assistant.\nReach the goal."
    assert (prompt.forced, prompt.think, prompt.stop) == ("<think>", True, "")
    assert prompt.turn(node(0, actions_left=10)) == (
        "Turn 1:\nState:\nP_G\nYou have 10 actions left.\n"
        f"Always answer in the form {FORM} and write nothing else. Use at most 100 tokens."
    )


def test_later_turns_begin_with_the_reward_of_the_turn_before():
    turn = paper_prompt("").turn
    lines = turn(node(2, reward=-0.1 + -0.2, actions_left=7)).splitlines()
    # Not -0.30000000000000004.
    assert lines[:7] == ["Reward:", "-0.3", "", "Turn 3:", "State:", "P_G", "You have 7 actions left."]
    assert turn(node(1, reward=10.9)).startswith("Reward:\n10.9\n")


def test_the_compact_arrangement_adds_two_numbers_and_the_plain_one_nothing():
    assert "actions left" not in paper_prompt("").turn(node(0, actions_left=None))
    assert compact_prompt().turn(node(0, actions_left=None)) == "P_G\nturn 1"
    prompt = compact_prompt("rules that nobody reads", max_tokens=3)
    assert prompt.turn(node(3, reward=1.0, actions_left=4)) == "P_G\nturn 4 left 4"
    assert (prompt.system, prompt.forced, prompt.think, prompt.stop) == ("", "<answer>", False, "</answer>")
    assert set(PROMPTS) == {"paper", "compact", "plain", "words", "tools"}
    prompt = plain_prompt("Write <search> or <answer>.", max_tokens=3)
    assert prompt.turn(node(3, reward=1.0, actions_left=4)) == "P_G"
    assert (prompt.system, prompt.forced, prompt.stop) == ("Write <search> or <answer>.", "", "")


@pytest.mark.parametrize(
    ("text", "turns", "first"),
    # The first turn that the prompt of the fifth node shows.
    [("full", None, 0), ("markov", 0, 4), ("window(1)", 1, 3), ("window(3)", 3, 1), ("window(12)", 12, 0)],
)
def test_histories_by_name(text, turns, first):
    history = History.parse(text)
    assert (history.turns, history.first(4)) == (turns, first)


@pytest.mark.parametrize("text", ["", "all", "window", "window()", "window(-1)", "window(2", "Full", "window(1.5)"])
def test_a_history_without_a_meaning_is_refused(text):
    with pytest.raises(ConfigError, match=r"wanted a history of full, without_thoughts, markov or window\(k\)"):
        History.parse(text)
