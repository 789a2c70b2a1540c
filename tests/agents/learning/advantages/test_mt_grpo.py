"""MT-GRPO, worked out by hand."""

from math import sqrt

import pytest

from tests.agents.learning.advantages.forests import batch_of, by_turn, flat, path
from tsr_gym.agents.learning.advantages import mt_grpo

SETTINGS = {"eps": 0.0}


def tool_calls():
    """Two trajectories with a tool call, worth 1 and 0, and one that answers at once; outcomes 1, 0, 1."""
    return batch_of([path((-1, 1.0), (-1, 1.0)), path((-1, 0.0), (-1, 0.0)), path((-1, 1.0))])


def test_the_first_turn_has_its_own_comparison_besides_that_of_the_outcome():
    # Outcomes 1, 0, 1: mean 2/3, squares 1/9 + 4/9 + 1/9 over 2, deviation 1/sqrt 3. Rewards of turn 0: 1, 0, and 0
    # for the one without a call: mean 1/3, the same deviation. Returns 2, 0, 1: mean 1, deviation 1.
    outcome, call = [1 / sqrt(3), -2 / sqrt(3)], [2 / sqrt(3), -1 / sqrt(3)]
    found = by_turn(tool_calls(), mt_grpo(tool_calls(), **SETTINGS))
    assert found == [
        pytest.approx([outcome[0] + call[0], outcome[0]]),
        pytest.approx([outcome[1] + call[1], outcome[1]]),
        pytest.approx([0.0], abs=1e-6),
    ]
    half = by_turn(tool_calls(), mt_grpo(tool_calls(), turn_weight=0.5, **SETTINGS))
    assert half[0] == pytest.approx([outcome[0] + call[0] / 2, outcome[0]])


def test_one_without_a_call_can_have_the_comparison_of_outcomes():
    found = by_turn(tool_calls(), mt_grpo(tool_calls(), single_turn="outcome", **SETTINGS))
    assert found[2] == pytest.approx([1 / sqrt(3)])


def test_or_not_be_asked_about_the_call():
    # 1 and 0 alone: deviation 1/sqrt 2.
    found = by_turn(tool_calls(), mt_grpo(tool_calls(), ragged="present", **SETTINGS))
    assert found[0] == pytest.approx([1 / sqrt(3) + 1 / sqrt(2), 1 / sqrt(3)])


def test_every_turn_before_the_last_is_compared_with_its_like():
    batch = batch_of([path((-1, 1.0), (-1, 2.0), (-1, 0.0)), path((-1, 3.0), (-1, 8.0), (-1, 0.0))])
    half = 1 / sqrt(2)
    assert [pytest.approx([-half, -half, 0]), pytest.approx([half, half, 0])] == by_turn(batch, mt_grpo(batch, eps=0.0))


def test_eps_is_that_of_the_published_code():
    batch = batch_of([path((-1, 0.0)), path((-1, 1e-3))])
    expected = 5e-4 / (1e-3 / sqrt(2) + 1e-4)
    assert flat(by_turn(batch, mt_grpo(batch))) == pytest.approx([-expected, expected], rel=1e-3)
