"""Compact texts over a corpus that fits on a page, written out by hand."""

import gymnasium as gym
import pytest

from tests.tsr_gym_envs.retrieval_qa.fakes import at, qa
from tsr_gym import ConfigError
from tsr_gym.testing import check_snapshot, check_text_env
from tsr_gym_envs.retrieval_qa.grading import exact_match
from tsr_gym_envs.retrieval_qa.protocol import plain

BORN = "doc ada moor | ada moor is a painter she was born in velden"
TOWN = "doc velden | velden is a town on the river sull its mayor is otto brand"


def compact(number=0, **settings):
    return at(number, observation_mode="compact", **settings)


def test_everything_that_is_shown_is_words_between_blanks():
    env = compact()
    assert env.observe(env.state) == "ask who is the mayor of the town where ada moor was born ?"
    assert env.instructions == ""
    assert env.step("<search> ada moor </search>")[0] == BORN
    assert env.step("<search> velden mayor </search>")[0] == TOWN
    observation, reward, terminated, _, info = env.step("<answer> otto brand </answer>")
    assert (observation, reward, terminated, info["success"]) == ("", 1.0, True, True)


def test_several_passages_follow_each_other_and_none_is_told():
    assert compact(top_k=2).step("<search> velden </search>")[0] == f"{BORN} {TOWN}"
    assert compact().step("<search> zebra </search>")[0] == "nothing"
    observation, *_, info = compact().step("velden")
    assert (observation, info["action_is_valid"]) == ("no action", False)


def test_the_transcript_is_compact_too():
    env = compact(history="transcript")
    asked = env.observe(env.state)
    assert env.step("<search> ada moor </search>")[0] == f"{asked}\n<search> ada moor </search>{BORN}"


def test_legal_and_optimal_turns_are_plain_and_mean_what_they_mean_elsewhere():
    env = compact()
    assert env.legal_actions(env.state) == (
        "<search> who is the mayor of the town where ada moor was born </search>",
        "<search> ada moor </search>",
        "<answer> yes </answer>",
        "<answer> no </answer>",
    )
    said = []
    while not env.episode.terminated:
        said.append(env.optimal_turn(env.state, env.limits.max_turns - env.episode.turns, None))
        env.step(said[-1])
    assert said == [
        "<search> where was ada moor born </search>",
        "<search> who is the mayor of velden </search>",
        "<answer> otto brand </answer>",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('"Beneath the Courtyard" (film), 1,105 metres.', "beneath the courtyard film 1,105 metres"),
        ("M. W. O'Brien-Ost's  <search> | 5 %", "m w o'brien-ost's search 5"),
        ("“Le Sœur”  ( )", "“le sœur”"),
    ],
)
def test_plain_words_are_graded_as_the_text_that_they_stand_for(text, words):
    assert plain(text) == words
    assert exact_match(words, text)


def test_every_contract_is_kept_in_compact_form():
    world = {"entities": 300, "questions": 60, "hops": [1, 2]}
    env = gym.make("tsr/RetrievalQA-v0", observation_mode="compact", top_k=2, **world)
    check_text_env(env, junk=(), seeds=(0,))
    check_snapshot(env, other_processes=False, seeds=(0,))


def test_calls_of_a_tool_have_no_compact_form():
    with pytest.raises(ConfigError, match="wanted a protocol without tool calls"):
        qa(observation_mode="compact", protocol="verl")
    with pytest.raises(ConfigError, match="wanted observation_mode of"):
        qa(observation_mode="short")
