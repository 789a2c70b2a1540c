"""RetrievalQAScore: each kind through the wrapper, on a corpus that fits on a page."""

import gymnasium as gym
import pytest

from tests.tsr_gym_envs.retrieval_qa.fakes import qa
from tsr_gym import ConfigError
from tsr_gym.wrappers import RetrievalQAScore

CHOICE = {"question_id": "q0", "data_source": "handmade"}
BORN, TOWN = "<search>Ada Moor born</search>", "<search>Velden town</search>"


def scores(kind, *texts, **settings):
    env = RetrievalQAScore(qa(**settings), kind=kind)
    env.reset(options=CHOICE)
    return [env.step(text)[4]["score"] for text in texts]


def test_first_occurrence_rises_with_the_passage_that_holds_the_answer():
    assert scores("first_occurrence", BORN, "hm", TOWN, BORN) == [0.0, 0.0, 0.5, 0.5]
    assert scores("first_occurrence", TOWN, "<answer>Otto Brand</answer>") == [0.5, 1.0]
    assert scores("first_occurrence", TOWN, "<answer>Ada Moor</answer>") == [0.5, 0.0]


def test_supporting_counts_the_passages_that_were_named():
    assert scores("supporting", BORN, BORN, TOWN) == [0.5, 0.5, 1.0]
    assert scores("supporting", BORN, "<answer>Mayor Brand</answer>") == [0.5, 1.0]


def test_an_episode_that_ends_without_an_answer_is_worth_nothing():
    assert scores("supporting", TOWN, BORN, TOWN, max_turns=2) == [0.5, 1.0, 0.0]
    assert scores("first_occurrence", TOWN, "hm", max_turns=1) == [0.5, 0.0]


def test_novelty_uses_no_label_and_pays_a_passage_once():
    first, again, bridge, junk = scores("novelty", BORN, BORN, TOWN, "hm")
    # Of the question's 7 words the first passage holds Ada, Moor and born; the second mayor and town.
    assert (first, again, bridge, junk) == pytest.approx((3 / 7, 0.0, 2 / 7, 0.0))
    # All of Otto Brand was read, and five words of the question.
    assert scores("novelty", BORN, TOWN, "<answer>Otto Brand</answer>")[-1] == pytest.approx(5 / 7)
    assert scores("novelty", "<answer>Otto Brand</answer>") == [0.0]
    blind = scores("novelty", BORN, TOWN, questions=[qa().questions.questions[0]._replace(golden_answers=("x",))])
    assert blind == pytest.approx([3 / 7, 2 / 7])


def test_states_are_rated_by_labels_and_turns_without():
    rated = {kind: RetrievalQAScore(qa(), kind=kind).score_of for kind in ("first_occurrence", "supporting", "novelty")}
    assert rated == {"first_occurrence": "state", "supporting": "state", "novelty": "turn"}


def test_alpha_is_a_keyword():
    env = RetrievalQAScore(qa(), alpha=0.2)
    env.reset(options=CHOICE)
    assert env.step(TOWN)[4]["score"] == 0.2


def test_other_kinds_and_environments_are_refused():
    with pytest.raises(ConfigError, match="wanted kind of"):
        RetrievalQAScore(qa(), kind="recall")
    with pytest.raises(ConfigError, match="wanted a RetrievalQAEnv under the wrappers, got a FrozenLakeEnv"):
        RetrievalQAScore(gym.make("tsr/FrozenLake-v0"))
