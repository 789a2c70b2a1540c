"""Trees as messages and back, without verifiers."""

import json

import pytest

from tests.agents.bridges.helpers import branching_tree, window_tree
from tsr_gym import InvalidTree, MissingExtra
from tsr_gym.agents.bridges.rows import tree_nodes
from tsr_gym.agents.bridges.verifiers import tree_from_messages, tree_messages, tree_trace


@pytest.mark.parametrize("tree", [branching_tree(), window_tree()], ids=["full history", "window"])
def test_messages_hold_the_whole_tree_as_json_too(tree):
    nodes, info = json.loads(json.dumps(tree_messages(tree)))
    assert tree_nodes(tree_from_messages(nodes, info)) == tree_nodes(tree)


def test_a_message_holds_the_tokens_that_a_prompt_adds_and_an_answer_the_sampled_ones():
    nodes = tree_messages(branching_tree()).nodes
    assert [message["token_ids"] for message in nodes] == [[11, 12], [1, 2], [13, 14], [3], [4, 5], [6]]
    assert [message["parent"] for message in nodes] == [None, 0, 1, 2, 2, 0]
    assert [message["sampled"] for message in nodes] == [False, True, False, True, True, True]
    assert [message["message"]["content"] for message in nodes] == ["start", "left", "wall", "up", "down", "right"]
    # A prompt that extends nothing begins a separate path.
    nodes = tree_messages(window_tree()).nodes
    assert [message["parent"] for message in nodes] == [None, 0, None, 2]
    assert [message["token_ids"] for message in nodes] == [[11, 12], [1, 2], [15, 16], [3]]


@pytest.mark.parametrize("info", [{}, {"tsr_gym": None}, {"tsr_gym": [{"message": 99}]}, {"tsr_gym": [{}]}], ids=str)
def test_a_trace_without_a_tree_is_refused(info):
    with pytest.raises(InvalidTree):
        tree_from_messages(tree_messages(branching_tree()).nodes, info)


def test_without_verifiers_its_extra_is_named(monkeypatch):
    monkeypatch.setattr("tsr_gym.optional.find_spec", lambda package: None)
    with pytest.raises(MissingExtra, match=r"pip install 'tsr-gym\[verifiers\]'"):
        tree_trace(branching_tree())
