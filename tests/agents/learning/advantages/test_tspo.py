"""TSPO's comparison of turns, worked out by hand."""

from math import sqrt

import pytest

from tests.agents.learning.advantages.forests import batch_of, by_turn, flat, path
from tsr_gym.agents.learning.advantages import tspo

HALF = 1 / sqrt(2)


def test_a_turn_is_compared_with_the_same_turn_of_the_others():
    # Turn 0: 1, 1, 0, 0: mean 1/2, squares 4 * 1/4 over 3. Turn 1: 1, 0, 0, 0: mean 1/4, squares 9/16 + 3/16 over 3.
    batch = batch_of([path((-1, a), (-1, b)) for a, b in ((1.0, 1.0), (1.0, 0.0), (0.0, 0.0), (0.0, 0.0))])
    first, second = 0.5 / sqrt(1 / 3), [0.75 / 0.5, -0.25 / 0.5]
    expected = [[first, second[0]], [first, second[1]], [-first, second[1]], [-first, second[1]]]
    assert [pytest.approx(turns, abs=1e-5) for turns in expected] == by_turn(batch, tspo(batch))
    mean_only = by_turn(batch, tspo(batch, scale="none"))
    assert mean_only == [[0.5, 0.75], [0.5, -0.25], [-0.5, -0.25], [-0.5, -0.25]]


def ragged():
    """Three trajectories of 3, 2 and 1 turns."""
    return batch_of([path((-1, 1.0), (-1, 3.0), (-1, 5.0)), path((-1, 1.0), (-1, 1.0)), path((-1, 4.0))])


def test_ragged_turns_are_compared_with_those_that_are_there():
    # Turn 0: 1, 1, 4: mean 2. Turn 1: 3, 1: mean 2. Turn 2 is alone.
    found = by_turn(ragged(), tspo(ragged(), scale="none"))
    assert found == [[-1, 1, 0], [-1, -1], [2]]
    scaled = by_turn(ragged(), tspo(ragged()))
    assert scaled[0] == pytest.approx([-1 / sqrt(3), HALF, 0], abs=1e-5)


def test_or_with_zeros_or_with_the_last_reward_where_a_turn_is_missing():
    # Turn 1: 3, 1, 0 has the mean 4/3. Turn 2: 5, 0, 0 has 5/3.
    zero = by_turn(ragged(), tspo(ragged(), scale="none", ragged="zero"))
    assert flat(zero) == pytest.approx([-1, 5 / 3, 10 / 3, -1, -1 / 3, 2])
    # Turn 1: 3, 1, 4 has the mean 8/3. Turn 2: 5, 1, 4 has 10/3.
    last = by_turn(ragged(), tspo(ragged(), scale="none", ragged="last"))
    assert flat(last) == pytest.approx([-1, 1 / 3, 5 / 3, -1, -5 / 3, 2])


def test_a_group_that_was_rewarded_at_its_ends_only_can_be_compared_by_trajectories():
    outcomes = [path((-1, 0.0), (-1, 1.0)), path((-1, 0.0), (-1, 0.0))]
    rewritten = [path((-1, 0.5), (-1, 0.0)), path((-1, 0.0), (-1, 0.0))]
    batch = batch_of(outcomes, rewritten)
    assert [pytest.approx(turns, abs=1e-4) for turns in ([0, HALF], [0, -HALF], [HALF, 0], [-HALF, 0])] == by_turn(
        batch, tspo(batch)
    )
    expected = [[HALF, HALF], [-HALF, -HALF], [HALF, 0], [-HALF, 0]]
    found = by_turn(batch, tspo(batch, outcome_groups="trajectory"))
    assert [pytest.approx(turns, abs=1e-4) for turns in expected] == found


def test_other_groups_are_not_asked():
    batch = batch_of([path((-1, 1.0)), path((-1, 3.0))], [path((-1, 10.0)), path((-1, 20.0))])
    assert by_turn(batch, tspo(batch, scale="none")) == [[-1], [1], [-5], [5]]
