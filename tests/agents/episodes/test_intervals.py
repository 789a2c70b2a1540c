"""Estimates over instances: means by hand, and intervals that hold the truth as often as they say."""

import numpy as np

from tsr_gym.agents.episodes.intervals import Interval, pooled, pooled_mean
from tsr_gym.agents.reports.rank_correlation import spearman


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
