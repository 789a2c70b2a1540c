"""Step values, worked out by hand."""

import pytest

from tests.agents.learning.advantages.forests import Sampled, leaf, path
from tests.agents.learning.test_batch import episode
from tests.agents.learning.test_batch import turn as turn_of
from tsr_gym.agents.bridges.step_values import StepValue, step_values
from tsr_gym.agents.episodes.trajectory import Group


def tree():
    """Turn 1 leads to 2, worth 0, and to 3, worth 4; turn 4 was left."""
    left = path(Sampled(4, 9.0), finished=False)
    return Group(50, (leaf([1, 2], 0.0), leaf([1, 3], 4.0), left))


def test_every_turn_has_a_row_with_its_tokens_and_what_it_led_to():
    assert step_values([tree()]) == [
        StepValue(50, (1,), (11, 12), 2.0, 2, 0),
        StepValue(50, (1, 11, 12, 2), (12, 13), 0.0, 1, 1),
        StepValue(50, (1, 11, 12, 2), (13, 14), 4.0, 1, 1),
    ]


def test_a_left_branch_can_count_as_what_it_earned():
    assert step_values([tree()], unfinished="return")[-1] == StepValue(50, (1,), (14, 15), 9.0, 1, 0)


def test_tasks_are_those_of_the_groups_also_where_one_has_no_words():
    silent = Group(51, (episode(turn_of([1], [], 0.0)),))
    found = step_values([Group(49, (leaf([1], 3.0),)), silent, tree()])
    assert [row.task for row in found] == [49, 50, 50, 50]


def test_values_are_means_over_children_or_over_leaves():
    group = Group(1, (leaf([1, 2, 3], 0.0), leaf([1, 2, 4], 2.0), leaf([1, 5], 4.0)))
    assert step_values([group])[0].value == 2.5
    assert step_values([group], backup="leaf_mean")[0].value == pytest.approx(2.0)


def test_a_prompt_that_begins_anew_is_that_of_the_turn_alone():
    group = Group(1, (episode(turn_of([1, 2], [3], 0.0, -1), turn_of([7], [8, 9], 1.0, -1, -1)),))
    assert step_values([group]) == [StepValue(1, (1, 2), (3,), 1.0, 1, 0), StepValue(1, (7,), (8, 9), 1.0, 1, 1)]
