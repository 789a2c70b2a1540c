"""Who teaches a small model to search: turn by turn over a page, and how well in a generated world."""

import numpy as np
import pytest

from tests.tsr_gym_envs.retrieval_qa.fakes import PASSAGES, QUESTIONS, WordRetriever, at, qa
from tests.tsr_gym_envs.trips import trip
from tsr_gym_envs.retrieval_qa.env import make
from tsr_gym_envs.retrieval_qa.players import MAX_TURNS, WORLD, poor_turn, teacher_turn

RNG = np.random.default_rng(0)


def test_the_teacher_follows_the_decomposition_and_says_what_it_read():
    env = at(0, observation_mode="compact")
    assert trip(env, teacher_turn) == [
        "<search> where was ada moor born </search>",
        "<search> who is the mayor of velden </search>",
        "<answer> otto brand </answer>",
    ]
    assert env.teaching().accepts(env)
    assert trip(at(0), teacher_turn)[1] == "<search>Who is the mayor of Velden?</search>"


def test_the_teacher_says_nothing_that_it_has_not_read():
    env = at(0, observation_mode="compact", retriever=WordRetriever(PASSAGES[2:]))
    said = trip(env, teacher_turn)
    # Where she was born was not read, so nothing can be filled in: it looks for the question as it is, once.
    assert said[1:] == [
        "<search> who is the mayor of the town where ada moor was born </search>",
        "<answer> unknown </answer>",
    ]
    assert not env.teaching().accepts(env)


def test_a_right_answer_is_no_demonstration_where_it_was_not_read():
    env = at(0, observation_mode="compact")
    env.step("<answer> otto brand </answer>")
    assert env.is_success(env.state)
    assert not env.teaching().accepts(env)


def test_in_the_last_turn_the_teacher_answers():
    env = at(0, observation_mode="compact", max_turns=1)
    assert trip(env, teacher_turn) == ["<search> where was ada moor born </search>", "<answer> unknown </answer>"]


def test_the_guesser_searches_and_answers_words_that_it_was_shown():
    said = [turn for _ in range(40) for turn in trip(at(0, observation_mode="compact"), poor_turn, RNG)]
    assert all(turn.startswith("<search> ") for turn in said[:1])
    assert {turn.split()[0] for turn in said} == {"<search>", "<answer>"}
    assert len(set(said)) > 30


def test_words_are_those_of_a_generated_world_and_names_and_numbers_may_be_exchanged():
    assert (qa().teaching().words, qa().teaching().permutable) == (None, frozenset())
    assert qa(questions=QUESTIONS[1:]).teaching() is None
    assert qa(protocol="verl").teaching() is None
    assert qa().teaching().env_settings == {"observation_mode": "compact", "top_k": 1, "max_turns": MAX_TURNS}
    env = make(entities=300, questions=60, hops=[1, 2], observation_mode="compact", top_k=1, max_turns=3)
    teaching, seen, accepted = env.teaching(), set(), 0
    for seed in range(40):
        seen.update(env.reset(seed=seed)[0].split())
        while not (env.episode.terminated or env.episode.truncated):
            said = teaching.teacher_turn(env, RNG)
            assert len(said.split()) <= teaching.max_tokens
            seen.update((said + " " + env.step(said)[0]).split())
        accepted += teaching.accepts(env)
    assert accepted >= 32
    assert seen <= set(teaching.words)
    assert {"1", "19"} & {word[:2] for word in teaching.permutable}
    assert teaching.permutable.isdisjoint({"the", "was", "born", "ask", "doc", "<search>", "unknown"})
    names = {word for question in env.questions.questions for word in question.golden_answers[0].lower().split()}
    assert len(names & teaching.permutable) > len(names) / 2
    # Somebody asked for this world, so it stays.
    assert set(teaching.env_settings) == {"observation_mode", "top_k", "max_turns"}
    assert set(WORLD) == {"entities", "questions", "hops"}


def test_exact_random_success_is_what_random_play_reaches():
    env = at(0, observation_mode="compact", max_turns=2)
    assert env.success_bars(env.state) is None
    rng, wins = np.random.default_rng(1), 0
    world = make(entities=300, questions=60, hops=[1], observation_mode="compact", top_k=2, max_turns=2)
    bars = []
    for seed in range(400):
        world.reset(seed=seed % 60)
        bars.append(world.success_bars(world.state))
        while not (world.episode.terminated or world.episode.truncated):
            turns = world.legal_actions(world.state)
            *_, info = world.step(turns[rng.integers(len(turns))])
        wins += info["success"]
    expected = sum(random for random, _ in bars)
    assert {best for _, best in bars} == {1.0}
    assert expected > 0
    assert wins == pytest.approx(expected, abs=4 * expected**0.5 + 1)
