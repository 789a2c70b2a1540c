"""Estimates over instances: means by hand, and intervals that hold the truth as often as they say."""

import numpy as np
import pytest

from tsr_gym.agents.episodes.intervals import Interval, pooled, pooled_mean, price_of_success, wilson
from tsr_gym.agents.reports.calibration import spearman


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
    # 100 paid for ten episodes, of which Wilson's interval says at most 3.8416 / 13.8416 succeed.
    mean, low, high = price_of_success([40, 60], [0, 0], [5, 5])
    assert (mean, high) == (None, None)
    assert low == pytest.approx(10 * 13.8416 / 3.8416)
