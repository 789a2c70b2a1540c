"""Filters, on groups whose returns are chosen by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agents.episodes.test_trajectory import worth
from tsr_gym import TrainingDiverged
from tsr_gym.agents.episodes.trajectory import Group, Trajectory, Turn
from tsr_gym.agents.lessons.filters import (
    has_equal_returns,
    keep_all,
    keep_best,
    keep_concise,
    keep_learnable,
    keep_mixed_success,
    keep_top_k,
    keep_top_p,
    keep_uncertain,
    keep_varied,
)

# Standard deviations 0.5, 2, 0, 1, 1.
FIVE = [worth(0.0, 1.0), worth(0.0, 4.0), worth(3.0, 3.0), worth(-1.0, 1.0), worth(5.0, 7.0)]


def kept(groups, among):
    return [among.index(group) for group in groups]


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        # A fifth of five is one, anything more is two, and so on: shares are rounded up.
        (0.2, [1]),
        (0.21, [1, 3]),
        (0.25, [1, 3]),
        # Groups 3 and 4 vary equally: the earlier is preferred. The kept groups stay in their order.
        (0.4, [1, 3]),
        (0.6, [1, 3, 4]),
        (0.8, [0, 1, 3, 4]),
        # A group without variation teaches nothing and is not kept even where there is room.
        (1.0, [0, 1, 3, 4]),
    ],
)
def test_the_groups_whose_returns_vary_most_are_kept(ratio, expected):
    assert kept(keep_uncertain(FIVE, ratio), FIVE) == expected


def test_where_nothing_varies_nothing_is_kept():
    assert keep_uncertain([worth(1.0, 1.0), worth(-0.5, -0.5)], 1.0) == []
    # 0.1 + 0.2 is not 0.3 in floating point; that is no variation.
    assert keep_uncertain([worth(0.1 + 0.2, 0.3)], 1.0) == []
    assert keep_uncertain([], 0.5) == []


@pytest.mark.parametrize("ratio", [0.0, -0.5, 1.01, float("nan")])
def test_a_share_that_is_none_is_refused(ratio):
    with pytest.raises(ValueError, match="wanted ratio > 0 and <= 1"):
        keep_uncertain(FIVE, ratio)


SOME = [
    worth(0.0, 9.0),  # varies most, without a success
    worth(0.0, 1.0, success=[False, True]),
    worth(0.0, 3.0, success=[False, True]),
    worth(0.0, 8.0, success=[True, True]),
    worth(0.0, 2.0, success=[True, False]),
    worth(0.0, 0.5),
]


# Of six groups three are mixed; the share counts all six.
@pytest.mark.parametrize(("ratio", "expected"), [(1 / 6, [2]), (1 / 3, [2, 4]), (0.5, [1, 2, 4]), (1.0, [1, 2, 4])])
def test_only_groups_with_successes_and_failures_are_kept(ratio, expected):
    assert kept(keep_mixed_success(SOME, ratio), SOME) == expected


def test_without_a_mixed_group_that_varies_nothing_is_kept_and_without_a_filter_everything():
    assert keep_mixed_success([SOME[0], SOME[3]], 1.0) == []
    assert keep_mixed_success([], 1.0) == []
    assert keep_mixed_success([worth(1.0, 1.0, success=[True, False])], 1.0) == []
    assert keep_all(FIVE) == FIVE


def reasons(kept):
    return dict(kept.dropped)


def test_what_was_left_out_is_counted_by_reason():
    assert reasons(keep_uncertain(FIVE, 0.4)) == {"group_equal_returns": 1, "group_less_uncertain": 2}
    counts = {"group_all_failed": 2, "group_all_solved": 1, "group_less_uncertain": 1}
    assert reasons(keep_mixed_success(SOME, 1 / 3)) == counts
    assert reasons(keep_all(FIVE)) == {}


def rewarded(*rewards, success=False):
    """Return an episode of as many turns, each of one token."""
    turns = tuple(Turn((1,), (2,), (-1.0,), reward, is_valid=True, num_actions=1) for reward in rewards)
    return Trajectory(turns, success, 0.0, "naive")


def of(*episodes):
    return Group(0, tuple(episodes))


STEPS = st.lists(st.integers(-300, 300), min_size=1, max_size=40)


@given(steps=STEPS, data=st.data())
def test_the_same_rewards_in_another_order_or_other_parts_are_equal_returns(steps, data):
    first = [step / 100 for step in steps]
    other = data.draw(st.permutations(first))
    cut = data.draw(st.integers(0, len(other)))
    # The rest of the turns as one, whose reward is a sum with a different rounding.
    assert has_equal_returns(of(rewarded(*first), rewarded(*other[:cut], sum(other[cut:]))))
    assert not has_equal_returns(of(rewarded(*first), rewarded(*other, 0.01)))
    assert not has_equal_returns(of(rewarded(*first), rewarded(*other, 1e-6)))


def test_noise_grows_with_the_size_of_returns():
    assert has_equal_returns(of(rewarded(1e6), rewarded(1e6 + 1e-7)))
    assert not has_equal_returns(of(rewarded(1.0), rewarded(1.0 + 1e-7)))
    # One trajectory, or none, differs from nothing.
    assert has_equal_returns(of(rewarded(1.0)))
    assert has_equal_returns(of())


def test_equal_returns_teach_nothing_and_shares_and_counts_are_positive():
    groups = [worth(0.1 + 0.2, 0.3), worth(0.0, 1e-6), worth(2.0, 2.0)]
    kept = keep_varied(groups)
    assert kept == [groups[1]]
    assert reasons(kept) == {"group_equal_returns": 2}
    with pytest.raises(ValueError, match="wanted k as a whole number >= 0"):
        keep_top_k(FIVE, -1)
    assert (keep_top_p([worth(1.0, 1.0)]), keep_top_p([])) == ([], [])
    with pytest.raises(ValueError, match="wanted p > 0 and <= 1"):
        keep_top_p(FIVE, 0.0)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("keep", [keep_varied, keep_mixed_success, keep_top_p, keep_best])
def test_a_return_that_is_no_number_is_not_passed_over_in_silence(bad, keep):
    with pytest.raises(TrainingDiverged, match="trajectory 1 of task 0 is"):
        keep([of(rewarded(1.0), rewarded(0.5, bad, success=True))])


@pytest.mark.parametrize(("k", "expected"), [(0, []), (1, [1]), (2, [1, 3]), (4, [0, 1, 3, 4]), (9, [0, 1, 3, 4])])
def test_a_number_of_groups_may_be_kept(k, expected):
    assert kept(keep_top_k(FIVE, k), FIVE) == expected


# As samples of two, their deviations are 0.5, 2, 0, 1 and 1 times the square root of 2; without it:
ROOT = 2**0.5


@pytest.mark.parametrize(
    ("p", "slack", "expected"),
    [
        # 2 of 4.5 are 0.44; with 1 more 0.67, with another 1 0.89.
        (0.4, 0.0, [1]),
        (0.45, 0.0, [1, 3]),
        (0.66, 0.0, [1, 3]),
        (0.67, 0.0, [1, 3, 4]),
        (0.9, 0.0, [0, 1, 3, 4]),
        # The slack takes a little off what has to be reached.
        (0.9, 0.1 * ROOT, [1, 3, 4]),
        (1.0, 0.0, [0, 1, 3, 4]),
        # Nothing has to be reached: the batch hardly varies.
        (0.9, 4.05 * ROOT, []),
    ],
)
def test_the_fewest_groups_with_a_share_of_all_variation_are_kept(p, slack, expected):
    actual = keep_top_p(FIVE, p, slack=slack)
    assert kept(actual, FIVE) == expected
    left = {"group_equal_returns": 1, "group_beyond_top_p": 4 - len(expected)}
    assert reasons(actual) == {reason: count for reason, count in left.items() if count}


def test_with_softmax_weights_the_scale_of_returns_matters():
    # Deviations 1 and 0: e / (e + 1) is 0.73. Ten times the returns, and the first has nearly all.
    near = [worth(0.0, ROOT), worth(0.0, 1e-3)]
    assert kept(keep_top_p(near, 0.73, weights="softmax"), near) == [0]
    assert kept(keep_top_p(near, 0.74, weights="softmax"), near) == [0, 1]
    far = [worth(0.0, 10 * ROOT), worth(0.0, 1e-2)]
    assert kept(keep_top_p(far, 0.99, weights="softmax"), far) == [0]


def second_turn_pays(group):
    """A credit rule: the second turn earns 0.5 if the trajectory's first reward was positive."""
    paid = [first.turns[0].reward > 0 for first in group.trajectories]
    sizes = [len(first.turns) for first in group.trajectories]
    earned = ([0.5 * (pays and number == 1) for number in range(size)] for pays, size in zip(paid, sizes, strict=True))
    return of(*(rewarded(*rewards) for rewards in earned))


def test_failed_groups_pass_the_gate_if_credit_tells_their_turns_apart():
    mixed = of(rewarded(0.0), rewarded(1.0, success=True))
    solved = of(rewarded(1.0, success=True), rewarded(2.0, success=True))
    told = of(rewarded(1.0, 0.0), rewarded(-1.0, 0.0))
    # The same evidence everywhere, and a turn that only one has: nothing to compare.
    alike = of(rewarded(1.0, 0.0), rewarded(2.0, 0.0))
    ragged = of(rewarded(1.0, 0.0), rewarded(2.0))
    kept = keep_learnable([mixed, solved, told, alike, ragged], second_turn_pays)
    assert kept == [mixed, second_turn_pays(told)]
    assert reasons(kept) == {"group_all_solved": 1, "group_all_failed_alike": 2}


def long(tokens, reward):
    turn = Turn((1,), tuple(range(tokens)), (-1.0,) * tokens, reward, is_valid=True, num_actions=1)
    return Trajectory((turn,), reward > 0, 0.0, "naive")


# Rewards per token 0.1, 0, 0.25, 0.25 and 0.2.
LONG = of(long(10, 1.0), long(3, 0.0), long(4, 1.0), long(8, 2.0), long(5, 1.0))


@pytest.mark.parametrize(
    ("by", "keep", "expected"),
    [
        ("length", 1, [1]),
        ("length", 3, [1, 2, 4]),
        # Ties go to the earlier one.
        ("reward_per_token", 1, [2]),
        ("reward_per_token", 3, [2, 3, 4]),
        ("reward_per_token", 9, [0, 1, 2, 3, 4]),
    ],
)
def test_the_concise_trajectories_of_a_group_are_kept(by, keep, expected):
    actual = keep_concise([LONG], keep, by=by)
    assert actual == [of(*(LONG.trajectories[place] for place in expected))]
    assert actual.dropped["trajectory_less_concise"] == 5 - len(expected)


def test_the_best_trajectories_of_a_group_are_kept_and_may_have_to_be_successes():
    actual = keep_best([LONG], 2)
    assert actual == [of(LONG.trajectories[0], LONG.trajectories[3])]
    assert reasons(actual) == {"trajectory_not_best": 3}
    with pytest.raises(ValueError, match="wanted keep as a whole number >= 1"):
        keep_best([LONG], 0)
    actual = keep_best([LONG, of(long(2, 0.0), long(3, -1.0))], 9, successes_only=True)
    assert actual == [of(*(LONG.trajectories[place] for place in (0, 2, 3, 4)))]
    assert reasons(actual) == {"group_all_failed": 1, "trajectory_failed": 1}
