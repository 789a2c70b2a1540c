"""Scorers by name."""

import gymnasium as gym
import pytest

from tsr_gym import ConfigError
from tsr_gym.wrappers import FrozenLakeScore
from tsr_gym.wrappers.scorers import make_scorer


@pytest.fixture
def lake():
    return gym.make("tsr/FrozenLake-v0", desc=["SFG"])


def test_a_scorer_is_named_as_a_configuration_names_it_or_given_as_it_is(lake):
    by_name = make_scorer("FrozenLakeScore(hole_penalty=3.0)", lake)
    assert type(by_name) is FrozenLakeScore
    assert by_name.hole_penalty == 3.0
    assert make_scorer(FrozenLakeScore, lake).hole_penalty == 10.0
    assert make_scorer("tsr_gym.wrappers.frozen_lake_score:FrozenLakeScore", lake).env is lake


@pytest.mark.parametrize(
    ("scorer", "message"),
    [
        ("NoSuchScore", "there is no scorer 'NoSuchScore': .*wanted one of FrozenLakeScore"),
        ("FrozenLakeScore(depth=1)", r"the scorer 'FrozenLakeScore' has no \['depth'\]; it has \['hole_penalty'\]"),
        ("AnswerFormat", "there is no scorer 'AnswerFormat'"),
        ("tsr_gym.wrappers:AnswerFormat", "made a AnswerFormat"),
    ],
)
def test_what_is_no_scorer_is_refused(lake, scorer, message):
    with pytest.raises(ConfigError, match=message):
        make_scorer(scorer, lake)
