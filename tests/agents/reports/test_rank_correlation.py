"""Rank correlations against numbers worked out by hand, and against their definitions pair by pair."""

from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsr_gym.agents.reports.rank_correlation import kendall, ranks, spearman


def test_equal_values_share_the_mean_of_their_ranks():
    assert ranks([10.0, 20.0, 10.0, 5.0]).tolist() == [2.5, 4.0, 2.5, 1.0]
    # Sums of the same rewards in another order differ in the last digits.
    assert ranks([0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1, 0.0]).tolist() == [2.5, 2.5, 1.0]


@pytest.mark.parametrize(
    ("first", "second", "rho", "tau"),
    [
        ([1, 2, 3, 4], [10, 20, 30, 40], 1.0, 1.0),
        ([1, 2, 3, 4], [4, 3, 2, 1], -1.0, -1.0),
        # Rank differences 1, -1, 0, 0: 1 - 6 * 2 / (4 * 15); of six pairs one is turned round.
        ([1, 2, 3, 4], [2, 1, 3, 4], 0.8, 4 / 6),
        # Ranks 1.5 1.5 3.5 3.5 and 1 2 3 4: covariance 4, variances 4 and 5. Four pairs untied on the left, all agree.
        ([0, 0, 1, 1], [1, 2, 3, 4], 4 / sqrt(4 * 5), 4 / sqrt(4 * 6)),
        # Ties on both sides: ranks 1.5 1.5 3 and 1 2.5 2.5, deviations -.5 -.5 1 and -1 .5 .5: 0.75 of 1.5; pairs
        # 12 tied on the left, 23 tied on the right, 13 agrees.
        ([5, 5, 7], [1, 4, 4], 0.5, 1 / 2),
        # The nine pairs of two threes, half of them untied.
        ([1, 1, 1, 2, 2, 2], [1, 1, 2, 1, 2, 2], 1 / 3, (4 - 1) / 9),
    ],
)
def test_hand_worked_correlations(first, second, rho, tau):
    assert spearman(first, second) == pytest.approx(rho)
    assert kendall(first, second) == pytest.approx(tau)
    assert spearman(second, first) == pytest.approx(rho)
    assert kendall(second, first) == pytest.approx(tau)


@pytest.mark.parametrize("values", [[], [1.0], [2.0, 2.0, 2.0]])
def test_where_one_side_says_nothing_there_is_no_correlation(values):
    other = list(range(len(values)))
    for correlate in (spearman, kendall):
        assert correlate(values, other) is None
        assert correlate(other, values) is None


def pair_by_pair(first, second):
    """Return tau-b by its definition."""
    pairs = [(i, j) for i in range(len(first)) for j in range(i)]
    concordant = sum((first[i] - first[j]) * (second[i] - second[j]) > 0 for i, j in pairs)
    discordant = sum((first[i] - first[j]) * (second[i] - second[j]) < 0 for i, j in pairs)
    left = sum(first[i] != first[j] for i, j in pairs)
    right = sum(second[i] != second[j] for i, j in pairs)
    return (concordant - discordant) / sqrt(left * right) if left and right else None


def ranked(values):
    return [(sum(v < w for v in values) + sum(v <= w for v in values) + 1) / 2 for w in values]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=14))
def test_correlations_are_their_definitions(pairs):
    first, second = [one for one, _ in pairs], [two for _, two in pairs]
    tau = pair_by_pair(first, second)
    if tau is None:
        assert kendall(first, second) is None
        assert spearman(first, second) is None
        return
    assert kendall(first, second) == pytest.approx(tau)
    assert spearman(first, second) == pytest.approx(np.corrcoef(ranked(first), ranked(second))[0, 1])
