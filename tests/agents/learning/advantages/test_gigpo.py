"""GiGPO, worked out by hand."""

import pytest

from tests.agents.learning.advantages.forests import batch_of, by_turn, path
from tsr_gym.agents.learning.advantages import gigpo


def anchored():
    """Both begin in s and pass through t, the second one later; u is seen by the second alone; one state is unknown."""
    first = path((-1, 0.0, b"s"), (-1, 4.0, b"t"))
    second = path((-1, 1.0, b"s"), (-1, 0.0, b"u"), (-1, 1.0, b"t"), (-1, 2.0, None))
    return batch_of([first, second])


def test_steps_are_compared_with_those_taken_in_the_same_state():
    # Returns 4 and 4. To come, with gamma 1/2: 2, 4; and 1 + 1/4 + 2/8 = 1.5, 1, 2, 2.
    # In s: 2 and 1.5, mean 1.75. In t: 4 and 2, mean 3.
    found = by_turn(anchored(), gigpo(anchored(), gamma=0.5, scale="none"))
    assert found == [[0.25, 1.0], [-0.25, 0.0, -1.0, 0.0]]
    assert by_turn(anchored(), gigpo(anchored(), gamma=0.5, scale="none", step_weight=2.0))[0] == [0.5, 2.0]


def test_the_deviation_is_that_of_a_sample_in_both_parts():
    # Two values always lie 1/sqrt 2 deviations off their mean.
    found = by_turn(anchored(), gigpo(anchored(), gamma=0.5))
    half = 0.5**0.5
    assert found == [pytest.approx([half, half], abs=1e-5), pytest.approx([-half, 0, -half, 0], abs=1e-5)]


def test_episodes_count_once_or_once_per_step():
    batch = batch_of([path((-1, 1.0, b"a")), path((-1, 0.0, b"b"), (-1, 4.0, b"c"))])
    # Mean of 1 and 4, or of 1, 4, 4.
    assert by_turn(batch, gigpo(batch, scale="none")) == [[-1.5], [1.5, 1.5]]
    assert by_turn(batch, gigpo(batch, scale="none", episodes="step")) == [[-2], [1, 1]]


def test_states_of_other_groups_are_other_states():
    batch = batch_of([path((-1, 1.0, b"s"))], [path((-1, 3.0, b"s"))])
    assert by_turn(batch, gigpo(batch)) == [[0], [0]]


def test_the_only_episode_of_a_group_has_its_return_where_the_published_code_is_wanted():
    batch = batch_of([path((-1, 3.0, b"s"))])
    assert by_turn(batch, gigpo(batch, alone="raw")) == [[3.0]]
