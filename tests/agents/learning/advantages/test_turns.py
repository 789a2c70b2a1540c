"""TSPO, MT-GRPO and GiGPO, worked out by hand."""

from dataclasses import replace
from math import sqrt

import pytest
import torch

from tests.agents.learning.advantages.forests import batch_of, by_turn, flat, path
from tsr_gym.agents.episodes.trajectory import Group
from tsr_gym.agents.learning.advantages import gigpo, mt_grpo, tspo
from tsr_gym.agents.learning.batch import collate
from tsr_gym.agents.lessons.credit import first_occurrence

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
    actual = by_turn(ragged(), tspo(ragged(), scale="none"))
    assert actual == [[-1, 1, 0], [-1, -1], [2]]
    scaled = by_turn(ragged(), tspo(ragged()))
    assert scaled[0] == pytest.approx([-1 / sqrt(3), HALF, 0], abs=1e-5)


def test_or_with_zeros_or_with_the_last_reward_where_a_turn_is_missing():
    # Turn 1: 3, 1, 0 has the mean 4/3. Turn 2: 5, 0, 0 has 5/3.
    zero = by_turn(ragged(), tspo(ragged(), scale="none", ragged="zero"))
    assert flat(zero) == pytest.approx([-1, 5 / 3, 10 / 3, -1, -1 / 3, 2])
    # Turn 1: 3, 1, 4 has the mean 8/3. Turn 2: 5, 1, 4 has 10/3.
    last = by_turn(ragged(), tspo(ragged(), scale="none", ragged="last"))
    assert flat(last) == pytest.approx([-1, 1 / 3, 5 / 3, -1, -5 / 3, 2])


SHOWN, NOTHING = "by Paul Walker", "nothing"


def search(*results, answer=0.0, penalties=()):
    """Return a trajectory of searches and an answer, given the results of each search and the answer's reward."""
    rewards = [0.0] * len(results) + [answer]
    for number in penalties:
        rewards[number] -= 0.1
    made = path(*[(-1, reward) for reward in rewards], success=answer > 0)
    shown = [*results, ""]
    turns = tuple(replace(turn, observation=text) for turn, text in zip(made.turns, shown, strict=True))
    return replace(made, turns=turns)


def recipe(*trajectories, **choices):
    """Return the advantages of one group by `--estimator tspo --credit first_occurrence`."""
    group = first_occurrence(Group(0, trajectories), ("Paul Walker",))
    return by_turn(collate([group]), tspo(collate([group]), **choices))


def test_the_recipe_compares_a_group_that_only_failed_by_turns():
    # Rewards .5, .5, 0 | .5, 0, 0 | 0, 0, 0. Turn 0: mean 1/3, squares 2/36 + 4/36 over 2, deviation 1/sqrt(12).
    # Turn 1: mean 1/6, deviation 1/sqrt(12) again. The answers are all worth nothing.
    actual = recipe(search(NOTHING, SHOWN), search(SHOWN, NOTHING), search(NOTHING, NOTHING))
    step = 1 / sqrt(12)
    assert [pytest.approx(turns, abs=1e-4) for turns in actual] == [
        [1 / 6 / step, 1 / 3 / step, 0],
        [1 / 6 / step, -1 / 6 / step, 0],
        [-1 / 3 / step, -1 / 6 / step, 0],
    ]


def test_the_recipe_compares_a_mixed_group_by_whole_trajectories():
    # Returns 1, 0, 0: mean 1/3, deviation 1/sqrt 3; evidence that was shown makes no difference.
    actual = recipe(search(SHOWN, answer=1.0), search(SHOWN, NOTHING), search())
    right, wrong = 2 / 3 * sqrt(3), -1 / 3 * sqrt(3)
    assert [pytest.approx(turns, abs=1e-4) for turns in actual] == [[right] * 2, [wrong] * 3, [wrong]]


def test_the_recipe_teaches_nothing_where_all_succeeded():
    assert recipe(search(SHOWN, answer=1.0), search(NOTHING, SHOWN, answer=1.0)) == [[0, 0], [0, 0, 0]]


def test_a_format_penalty_is_part_of_a_return_and_changes_no_comparison():
    # Returns 1, -0.1, 0: mean .3, squares .49 + .16 + .09 over 2.
    actual = recipe(search(SHOWN, answer=1.0), search(SHOWN, penalties=[0]), search(NOTHING))
    deviation = sqrt(0.74 / 2)
    assert [pytest.approx(turns, abs=1e-4) for turns in actual] == [
        [0.7 / deviation] * 2,
        [-0.4 / deviation] * 2,
        [-0.3 / deviation] * 2,
    ]
    # Where all succeeded, it is the only difference: 1 and .9.
    actual = recipe(search(SHOWN, answer=1.0), search(SHOWN, answer=1.0, penalties=[0]))
    assert [pytest.approx(turns, abs=1e-4) for turns in actual] == [[HALF] * 2, [-HALF] * 2]
    # Where all failed, the rule puts its own rewards in place of the turns'.
    clean, fined = (search(SHOWN), search(NOTHING)), (search(SHOWN), search(NOTHING, penalties=[0]))
    assert recipe(*clean) == recipe(*fined) == [pytest.approx([HALF, 0], abs=1e-4), pytest.approx([-HALF, 0], abs=1e-4)]


def test_a_success_that_the_rule_sees_and_the_estimator_does_not_turns_the_sign_of_evidence():
    # What such runs would learn, and why they are refused. The rule leaves the group as it is, and the estimator then
    # compares turns by -.1 and 0: the one that found the answer is the worse one.
    group = first_occurrence(
        Group(0, (search(SHOWN, penalties=[0]), search(NOTHING), search(SHOWN, answer=1.0))), ["x"]
    )
    part = collate([group]).rows(torch.arange(2))
    assert by_turn(part, tspo(part)) == [pytest.approx([-HALF, 0], abs=1e-4), pytest.approx([HALF, 0], abs=1e-4)]
    # By the choice for all groups in both it is compared by evidence, .5 and 0.
    group = first_occurrence(group, ("Paul Walker",), groups="all")
    part = collate([group]).rows(torch.arange(2))
    actual = by_turn(part, tspo(part, groups="all"))
    assert actual == [pytest.approx([HALF, 0], abs=1e-4), pytest.approx([-HALF, 0], abs=1e-4)]


def test_all_groups_can_be_compared_by_turns():
    # For rules that reward the turns of every group.
    actual = recipe(search(SHOWN, answer=1.0), search(SHOWN), groups="all")
    assert [pytest.approx(turns, abs=1e-4) for turns in actual] == [[0, HALF], [0, -HALF]]


def test_other_groups_are_not_asked():
    batch = batch_of([path((-1, 1.0)), path((-1, 3.0))], [path((-1, 10.0)), path((-1, 20.0))])
    assert by_turn(batch, tspo(batch, scale="none")) == [[-1], [1], [-5], [5]]


SETTINGS = {"eps": 0.0}


def tool_calls():
    """Two trajectories with a tool call, worth 1 and 0, and one that answers at once; outcomes 1, 0, 1."""
    return batch_of([path((-1, 1.0), (-1, 1.0)), path((-1, 0.0), (-1, 0.0)), path((-1, 1.0))])


def test_the_first_turn_has_its_own_comparison_and_that_of_the_outcome():
    # Outcomes 1, 0, 1: mean 2/3, squares 1/9 + 4/9 + 1/9 over 2, deviation 1/sqrt 3. Rewards of turn 0: 1, 0, and 0
    # for the one without a call: mean 1/3, the same deviation. Returns 2, 0, 1: mean 1, deviation 1.
    outcome, call = [1 / sqrt(3), -2 / sqrt(3)], [2 / sqrt(3), -1 / sqrt(3)]
    actual = by_turn(tool_calls(), mt_grpo(tool_calls(), **SETTINGS))
    assert actual == [
        pytest.approx([outcome[0] + call[0], outcome[0]]),
        pytest.approx([outcome[1] + call[1], outcome[1]]),
        pytest.approx([0.0], abs=1e-6),
    ]
    half = by_turn(tool_calls(), mt_grpo(tool_calls(), turn_weight=0.5, **SETTINGS))
    assert half[0] == pytest.approx([outcome[0] + call[0] / 2, outcome[0]])


def test_one_without_a_call_can_have_the_comparison_of_outcomes():
    actual = by_turn(tool_calls(), mt_grpo(tool_calls(), single_turn="outcome", **SETTINGS))
    assert actual[2] == pytest.approx([1 / sqrt(3)])


def test_or_not_be_asked_about_the_call():
    # 1 and 0 alone: deviation 1/sqrt 2.
    actual = by_turn(tool_calls(), mt_grpo(tool_calls(), ragged="present", **SETTINGS))
    assert actual[0] == pytest.approx([1 / sqrt(3) + 1 / sqrt(2), 1 / sqrt(3)])


def test_every_turn_before_the_last_is_compared_with_its_like():
    batch = batch_of([path((-1, 1.0), (-1, 2.0), (-1, 0.0)), path((-1, 3.0), (-1, 8.0), (-1, 0.0))])
    half = 1 / sqrt(2)
    assert [pytest.approx([-half, -half, 0]), pytest.approx([half, half, 0])] == by_turn(batch, mt_grpo(batch, eps=0.0))


def test_eps_is_that_of_the_published_code():
    batch = batch_of([path((-1, 0.0)), path((-1, 1e-3))])
    expected = 5e-4 / (1e-3 / sqrt(2) + 1e-4)
    assert flat(by_turn(batch, mt_grpo(batch))) == pytest.approx([-expected, expected], rel=1e-3)


def anchored():
    """Both begin in s and pass through t, the second one later; u is seen by the second alone; one state is unknown."""
    first = path((-1, 0.0, b"s"), (-1, 4.0, b"t"))
    second = path((-1, 1.0, b"s"), (-1, 0.0, b"u"), (-1, 1.0, b"t"), (-1, 2.0, None))
    return batch_of([first, second])


def test_steps_are_compared_with_those_taken_in_the_same_state():
    # Returns 4 and 4. To come, with gamma 1/2: 2, 4; and 1 + 1/4 + 2/8 = 1.5, 1, 2, 2.
    # In s: 2 and 1.5, mean 1.75. In t: 4 and 2, mean 3.
    actual = by_turn(anchored(), gigpo(anchored(), gamma=0.5, scale="none"))
    assert actual == [[0.25, 1.0], [-0.25, 0.0, -1.0, 0.0]]
    assert by_turn(anchored(), gigpo(anchored(), gamma=0.5, scale="none", step_weight=2.0))[0] == [0.5, 2.0]


def test_the_deviation_is_that_of_a_sample_in_both_parts():
    # Two values always lie 1/sqrt 2 deviations off their mean.
    actual = by_turn(anchored(), gigpo(anchored(), gamma=0.5))
    half = 0.5**0.5
    assert actual == [pytest.approx([half, half], abs=1e-5), pytest.approx([-half, 0, -half, 0], abs=1e-5)]


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
