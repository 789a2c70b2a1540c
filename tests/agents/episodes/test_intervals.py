"""Estimates over instances: means by hand, and intervals that hold the truth as often as promised."""

from itertools import product

import numpy as np
import pytest

from tsr_gym.agents.episodes.intervals import (
    Interval,
    crossed_mean,
    pooled,
    pooled_mean,
    price_of_success,
    student,
    wilson,
)
from tsr_gym.agents.probing.rankings import spearman


def test_the_mean_is_over_measurements_and_the_interval_over_instances():
    # The second instance has three of the four measurements.
    found = pooled_mean([0.0, 1.0, 1.0, 1.0], [7, 3, 3, 3])
    assert found == Interval(0.75, 0.0, 1.0)
    # Where every instance is the same nothing is left to chance, however much their measurements differ.
    assert pooled_mean([0.0, 1.0] * 5, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]) == Interval(0.5, 0.5, 0.5)
    assert pooled_mean([], []) is None


def test_measurements_of_one_instance_hang_together():
    values, owners = list(np.arange(10.0).repeat(50)), list(np.arange(10).repeat(50))
    together, apart = pooled_mean(values, owners), pooled_mean(values, range(500))
    assert together.mean == apart.mean == 4.5
    assert together.high - together.low > 5 * (apart.high - apart.low)


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(200):
        instances = rng.normal(size=40)
        values = (instances[:, None] + rng.normal(size=(40, 3))).ravel()
        found = pooled_mean(list(values), list(np.arange(40).repeat(3)))
        hits += found.low <= 0.0 <= found.high
    assert 0.88 <= hits / 200 <= 0.99


def test_a_statistic_of_pairs_has_an_interval_too():
    rng = np.random.default_rng(0)
    first = rng.normal(size=120)
    second = first + rng.normal(size=120)
    owners = list(np.arange(40).repeat(3))
    found = pooled(spearman, list(first), list(second), owners)
    assert found.mean == spearman(first, second)
    assert found.low < found.mean < found.high
    assert 0.2 < found.high - found.low < 0.5
    assert pooled(spearman, [1.0, 1.0], [1.0, 2.0], [0, 1]) is None


def test_resamples_in_which_a_statistic_is_not_defined_are_left_out():
    found = pooled(spearman, [0.0, 1.0], [0.0, 1.0], [0, 1])
    assert found == Interval(1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("successes", "number", "low", "high"),
    [
        # With z = 1.96 and z^2 = 3.8416. Half of 100: (50 + 1.9208 -+ 1.96 sqrt(25 + 0.9604)) / 103.8416.
        (50, 100, 0.403830, 0.596170),
        # None of 10: from 0 to 3.8416 / 13.8416.
        (0, 10, 0.0, 0.277540),
        # All of 10: from 10 / 13.8416 to 1.
        (10, 10, 0.722460, 1.0),
        # One of one.
        (1, 1, 0.206543, 1.0),
        # (8 + 1.9208 -+ 1.96 sqrt(1.6 + 0.9604)) / 13.8416.
        (8, 10, 0.490157, 0.943319),
    ],
)
def test_wilsons_interval(successes, number, low, high):
    assert wilson(successes, number) == pytest.approx((low, high), abs=2e-6)


def test_of_nothing_nothing_is_known():
    assert wilson(0, 0) == (0.0, 1.0)


def test_wilsons_interval_holds_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(1)
    hits = [low <= 0.2 <= high for low, high in (wilson(int(rng.binomial(60, 0.2)), 60) for _ in range(2000))]
    assert 0.93 <= np.mean(hits) <= 0.975


def test_the_price_of_a_success_is_all_that_was_paid_over_all_that_succeeded():
    # Draws of two instances: both the first one, 10 a success; both the second, 30; one of each, 40 for two.
    assert price_of_success([10, 30], [1, 1], [1, 1]) == pytest.approx((20.0, 10.0, 30.0))
    # Draws without any success cost more than any number.
    assert price_of_success([10, 10], [1, 0], [1, 1]) == (20.0, 10.0, None)
    # Without tokens they cost none.
    assert price_of_success([0, 0], [1, 0], [1, 1]) == (0.0, 0.0, 0.0)


def test_where_nothing_succeeded_the_price_has_a_lower_end_only():
    # 100 paid for ten episodes, of which at most 3.8416 / 13.8416 succeed by Wilson's interval.
    mean, low, high = price_of_success([40, 60], [0, 0], [5, 5])
    assert (mean, high) == (None, None)
    assert low == pytest.approx(10 * 13.8416 / 3.8416)


def test_a_table_is_drawn_by_rows_and_by_columns_each_by_themselves():
    rows = ((0.0, 1.0, 5.0), (2.0, 3.0, 4.0), (9.0, 7.0, 1.0))
    means = [
        sum(rows[row][column] for row in drawn for column in columns) / 9
        for drawn in product(range(3), repeat=3)
        for columns in product(range(3), repeat=3)
    ]
    found = crossed_mean(rows)
    assert found.mean == pytest.approx(32 / 9)
    assert (found.low, found.high) == pytest.approx(np.quantile(means, [0.025, 0.975]), abs=0.15)
    # Rows that were drawn with the columns of the same numbers would never give 0.
    assert crossed_mean(((1, 0), (0, 1))) == (0.5, 0, 1)


def test_a_table_of_one_row_or_one_column_is_drawn_by_the_other():
    assert crossed_mean([[1.0, 1.0, 1.0]]) == (1, 1, 1)
    # Two of two: 0, 0.5 and 1, the ends in a quarter of the draws each.
    assert crossed_mean([[0, 1]]) == crossed_mean([[0], [1]]) == (0.5, 0, 1)


def test_students_interval_is_that_of_three_or_more():
    # Deviation 10 of three: 4.303 * 10 / sqrt(3) = 24.843.
    assert student([30, 40, 50]) == (40, pytest.approx(15.157, abs=1e-3), pytest.approx(64.843, abs=1e-3))
    assert student([30, 50]) is None
