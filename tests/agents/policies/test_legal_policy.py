"""Random play among what is legal, held against its exact value and against what each state allows."""

from collections import Counter
from functools import partial

import gymnasium as gym
import numpy as np
import pytest

from tests.agents.worlds import Letters, Word, lake
from tsr_gym.agents.episodes.env_pool import EnvPool
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.policies.legal_policy import LegalPolicy
from tsr_gym.agents.strategies import best_of_n
from tsr_gym.tree import Candidate, Expand
from tsr_gym.wrappers import TreeSearchWrapper
from tsr_gym_envs.frozen_lake.values import random_values

DESC = ("SFF", "FHF", "FFG")


class Growing(Letters):
    """Only the letters that a word does not hold yet are legal."""

    def legal_actions(self, state: Word):
        return tuple(letter for letter in "abc" if letter not in state.text)


def growing(kind=Growing):
    env = TreeSearchWrapper(kind({"a": 0.0, "b": 0.0, "c": 0.0}))
    env.reset(seed=1)
    return env


def test_only_what_is_legal_in_a_nodes_state_is_said():
    env = growing()
    (b,) = env.expand(0, [Candidate("b")])
    at_root, at_b = LegalPolicy(env.unwrapped)([(env.tree, Expand(0, 40)), (env.tree, Expand(b, 40))])
    assert {candidate.text for candidate in at_root} == {f"<think></think><answer>{name}</answer>" for name in "abc"}
    assert {candidate.text for candidate in at_b} == {f"<think></think><answer>{name}</answer>" for name in "ac"}


def test_where_nothing_is_legal_nothing_is_said():
    env = growing()
    node = 0
    for letter in "abc":
        (node,) = env.expand(node, [Candidate(letter)])
    ((candidate,),) = LegalPolicy(env.unwrapped)([(env.tree, Expand(node, 1))])
    assert candidate.text == "<think></think><answer></answer>"


def test_every_number_of_actions_and_every_action_is_equally_likely():
    env = lake(max_actions_per_turn=3)
    (candidates,) = LegalPolicy(env.unwrapped)([(env.tree, Expand(0, 3000))])
    turns = [text.split(">")[3].split("<")[0].split(" || ") for text in (one.text for one in candidates)]
    lengths = Counter(map(len, turns))
    # 3,000 draws: four standard deviations are 103 for lengths, and 134 for the 6,000 words.
    assert all(lengths[length] == pytest.approx(1000, abs=103) for length in (1, 2, 3))
    words = Counter(word for turn in turns for word in turn)
    assert set(words) == {"Left", "Down", "Right", "Up"}
    assert all(number == pytest.approx(sum(words.values()) / 4, abs=134) for number in words.values())


def test_environments_that_read_tags_are_told_the_bare_action():
    class Tagged(Growing):
        reads_tags = True

    env = growing(Tagged)
    ((candidate,),) = LegalPolicy(env.unwrapped)([(env.tree, Expand(0, 1))])
    assert candidate.text in tuple("abc")


def test_a_turn_without_a_limit_of_actions_has_one():
    env = gym.make("tsr/FrozenLake-v0", max_actions_per_turn=None).unwrapped
    assert LegalPolicy(env).max_actions == 1


def test_best_of_n_random_episodes_selects_success_as_often_as_arithmetic_says():
    pool = EnvPool("frozen_lake", {"desc": DESC, "max_turns": 4, "max_actions_per_turn": 2, "max_actions": 6})
    strategy, policy = partial(best_of_n, n=3), LegalPolicy(pool.base)
    won, selected = [], []
    for start in range(0, 400, 50):
        tasks = range(start, start + 50)
        for tree in search(pool.set(tasks), policy, strategy, seeds=tasks):
            won += [tree.nodes[leaf].info["success"] for leaf in tree.leaves()]
            selected.append(tree.nodes[tree.chosen[0]].info["success"])
    state, ice = pool.base.state, pool.base.settings.ice
    value = random_values(state.desc, 4, 6, max_actions=2, ice=ice)[0]
    # Four standard deviations of 1,200 episodes and of 400 selections.
    assert np.mean(won) == pytest.approx(value, abs=0.058)
    assert np.mean(selected) == pytest.approx(1 - (1 - value) ** 3, abs=0.1)
