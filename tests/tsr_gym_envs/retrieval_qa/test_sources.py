"""Settings of the generated world through the environment's keywords."""

import pytest

from tests.tsr_gym_envs.retrieval_qa.fakes import QUESTIONS, WordRetriever
from tsr_gym import ConfigError
from tsr_gym_envs.retrieval_qa.env import make
from tsr_gym_envs.retrieval_qa.sources import world_settings
from tsr_gym_envs.retrieval_qa.world import WorldSettings


def test_what_is_not_said_of_a_world_stays_as_it_is():
    assert world_settings(None, None, None, 0) == WorldSettings()
    assert world_settings(500, 90, None, 3) == WorldSettings(seed=3, num_entities=500, num_questions=90)


@pytest.mark.parametrize(
    ("hops", "shares"), [(2, (0, 1, 0, 0)), ([1, 2], (1, 1, 0, 0)), (range(1, 5), (1, 1, 1, 1)), ((4,), (0, 0, 0, 1))]
)
def test_hops_are_asked_for_equally_often_and_nothing_else_is(hops, shares):
    found = world_settings(None, None, hops, 0)
    assert found.hops == shares
    assert (found.p_comparison, found.p_yes_no) == (0, 0)


def test_the_environment_asks_the_questions_of_the_world_that_was_wanted():
    env = make(entities=300, questions=40, hops=[2], world_seed=5)
    assert len(env.questions.questions) == 40
    assert {len(question.steps) for question in env.questions.questions} == {2}
    other = make(entities=300, questions=40, hops=[2], world_seed=6)
    assert other.questions.digest != env.questions.digest


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hops": [0, 1]}, "wanted hops as numbers from 1 to 4"),
        ({"hops": []}, "wanted hops as numbers"),
        ({"hops": "1-2"}, "wanted hops as numbers"),
        ({"entities": "many"}, "wanted entities as a whole number, got 'many'"),
        ({"entities": 10}, "wanted num_entities >= 300"),
        ({"questions": QUESTIONS, "retriever": WordRetriever(), "entities": 400}, "settings of the generated world"),
        ({"questions": 40, "retriever": WordRetriever()}, "settings of the generated world"),
    ],
    ids=["none", "empty", "text", "words", "few", "beside questions", "beside a retriever"],
)
def test_settings_that_make_no_world_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        make(**settings)
