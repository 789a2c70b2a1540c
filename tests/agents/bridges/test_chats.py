"""Chats: episodes as messages, with the environment's words and the model's."""

import pytest

from tests.agents.bridges.grown import grown_trees
from tests.agents.worlds import PUSHER, rooms
from tsr_gym import ConfigError
from tsr_gym.agents.bridges.chats import tree_chats
from tsr_gym.agents.strategies import naive
from tsr_gym_envs.frozen_lake.env import FrozenLakeEnv


def test_a_chat_is_the_words_of_a_path_in_turn():
    (tree,), _, _ = grown_trees(strategy="naive")
    (chat,) = tree_chats(tree, prompt="plain", successes=False)
    assert [message["role"] for message in chat.messages] == ["system", *["user", "assistant"] * 3]
    assert chat.messages[0]["content"] == FrozenLakeEnv.instructions
    path = tree.path(tree.leaves()[0])
    assert [message["content"] for message in chat.messages[1::2]] == [tree.nodes[at].observation for at in path[:-1]]
    assert [message["content"] for message in chat.messages[2::2]] == [tree.nodes[at].candidate.text for at in path[1:]]
    assert chat.task == tree.seed


def test_only_successes_are_shown_unless_all_are_wanted_and_instructions_may_be_given():
    env = rooms(1)
    tree = env.search(PUSHER, naive)
    (chat,) = tree_chats(tree, prompt="plain", successes=False, instructions="Push.")
    assert chat.messages[0] == {"role": "system", "content": "Push."}
    assert len(tree_chats(tree)) == chat.success
    assert tree_chats(tree, prompt="compact", successes=False)[0].messages[0]["role"] == "user"


def test_a_prompt_that_there_is_not_is_refused():
    with pytest.raises(ConfigError, match="wanted a prompt of"):
        tree_chats(rooms(1).search(PUSHER, naive), prompt="rhymes")
