"""Filters, on groups whose returns are chosen by hand."""

import pytest

from tests.agents.test_trajectory import worth
from tsr_gym.agents.filters import keep_all, keep_mixed_success, keep_uncertain

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
        # The groups 3 and 4 vary alike: the earlier one goes first. What is kept stays in its order.
        (0.4, [1, 3]),
        (0.6, [1, 3, 4]),
        (0.8, [0, 1, 3, 4]),
        # A group without variation teaches nothing and is not kept even where there is room.
        (1.0, [0, 1, 3, 4]),
    ],
)
def test_the_groups_whose_returns_vary_most_are_kept(ratio, expected):
    assert kept(keep_uncertain(FIVE, ratio), FIVE) == expected


def test_the_papers_quarter_of_eight_groups_is_two():
    groups = [worth(0.0, float(spread)) for spread in (3, 1, 4, 1.5, 9, 2, 6, 5)]
    assert kept(keep_uncertain(groups, 0.25), groups) == [4, 6]


def test_where_nothing_varies_nothing_is_kept():
    assert keep_uncertain([worth(1.0, 1.0), worth(-0.5, -0.5)], 1.0) == []
    # 0.1 + 0.2 is not 0.3 in floating point; that is no variation.
    assert keep_uncertain([worth(0.1 + 0.2, 0.3)], 1.0) == []
    assert keep_uncertain([], 0.5) == []


@pytest.mark.parametrize("ratio", [0.0, -0.5, 1.01, float("nan")])
def test_a_share_that_is_none_is_refused(ratio):
    with pytest.raises(ValueError, match="wanted a ratio 0 < ratio <= 1"):
        keep_uncertain(FIVE, ratio)


SOME = [
    worth(0.0, 9.0),  # varies most, but nobody succeeded
    worth(0.0, 1.0, success=[False, True]),
    worth(0.0, 3.0, success=[False, True]),
    worth(0.0, 8.0, success=[True, True]),
    worth(0.0, 2.0, success=[True, False]),
    worth(0.0, 0.5),
]


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        # Of six groups three are mixed; the share counts all six.
        (1 / 6, [2]),
        (1 / 3, [2, 4]),
        (0.5, [1, 2, 4]),
        (1.0, [1, 2, 4]),
    ],
)
def test_only_groups_with_successes_and_failures_are_kept(ratio, expected):
    assert kept(keep_mixed_success(SOME, ratio), SOME) == expected


def test_where_no_group_is_mixed_nothing_is_kept():
    assert keep_mixed_success([SOME[0], SOME[3]], 1.0) == []
    assert keep_mixed_success([], 1.0) == []


def test_a_mixed_group_of_equal_returns_teaches_nothing():
    assert keep_mixed_success([worth(1.0, 1.0, success=[True, False])], 1.0) == []


def test_no_filter_keeps_everything():
    assert keep_all(FIVE) == FIVE
