"""Estimates over instances: means by hand, and intervals that hold the truth as often as promised."""

from itertools import product
from math import exp, lgamma, log, sqrt

import numpy as np
import pytest

from tsr_gym.agents.episodes.intervals import (
    Interval,
    crossed_mean,
    poisson,
    pooled,
    pooled_mean,
    price_of_success,
    share_of,
    student,
    wilson,
)
from tsr_gym.agents.probing.rankings import spearman


def test_the_mean_is_over_measurements_and_the_interval_over_instances():
    # The second instance has three of the four measurements.
    assert pooled_mean([0.0, 1.0, 1.0, 1.0], [7, 3, 3, 3]) == Interval(0.75, 0.0, 1.0)
    # Where every instance is the same nothing is left to chance, however much their measurements differ.
    assert pooled_mean([0.0, 1.0] * 5, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]) == Interval(0.5, 0.5, 0.5)
    assert pooled_mean([], []) is None
    values, owners = list(np.arange(10.0).repeat(50)), list(np.arange(10).repeat(50))
    together, apart = pooled_mean(values, owners), pooled_mean(values, range(500))
    assert together.mean == apart.mean == 4.5
    assert together.high - together.low > 5 * (apart.high - apart.low)


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(200):
        values = (rng.normal(size=40)[:, None] + rng.normal(size=(40, 3))).ravel()
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
    # Resamples in which it is not defined are left out.
    assert pooled(spearman, [0.0, 1.0], [0.0, 1.0], [0, 1]) == Interval(1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("successes", "number", "low", "high"),
    [
        # Of nothing nothing is known.
        (0, 0, 0.0, 1.0),
        # With z^2 = 3.8416: from 0 to 3.8416 / 13.8416; from 10 / 13.8416 to 1.
        (0, 10, 0.0, 0.277540),
        (10, 10, 0.722460, 1.0),
        # (8 + 1.9208 -+ 1.96 sqrt(1.6 + 0.9604)) / 13.8416.
        (8, 10, 0.490157, 0.943319),
    ],
)
def test_wilsons_interval(successes, number, low, high):
    assert wilson(successes, number) == pytest.approx((low, high), abs=2e-6)


def test_wilsons_interval_holds_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(1)
    hits = [low <= 0.2 <= high for low, high in (wilson(int(rng.binomial(60, 0.2)), 60) for _ in range(2000))]
    assert 0.93 <= np.mean(hits) <= 0.975


def test_the_price_of_a_success_is_all_that_was_paid_over_all_that_succeeded():
    # Garwood's interval of a count of 2 is 0.24221 to 7.22469.
    wanted = (20.0, 40 / 7.22469, 40 / 0.24221)
    assert price_of_success([10, 30], [1, 1], [1, 1]) == pytest.approx(wanted, rel=1e-4)
    # Without tokens they cost none.
    assert price_of_success([0, 0], [1, 0], [1, 1]) == (0.0, 0.0, 0.0)
    # Nothing succeeded: at most -log(.025) = 3.68888 instances, of five episodes each, would.
    mean, low, high = price_of_success([40, 60], [0, 0], [5, 5])
    assert (mean, low, high) == (None, pytest.approx(100 / (5 * 3.68888), rel=1e-5), None)


@pytest.mark.parametrize("count", [1, 2, 3, 17.5, 400])
def test_poissons_interval_leaves_a_fortieth_at_each_end(count):
    low, high = poisson(count)
    if count == int(count):
        terms = [exp(number * log(mean) - mean - lgamma(number + 1)) for mean in (low, high) for number in range(1200)]
        below = [sum(terms[:1200][: int(count)]), sum(terms[1200:][: int(count) + 1])]
        assert below == pytest.approx([0.975, 0.025], abs=1e-6)
    # Between whole counts it rises.
    assert poisson(count - 0.5)[0] < low < count < high < poisson(count + 0.5)[1]


def shared(rng, share, likeness, instances, episodes):
    """Return the successes of each instance; `likeness` is the correlation of episodes of an instance."""
    weight = 1 / likeness - 1 if likeness else None
    chances = rng.beta(share * weight, (1 - share) * weight, instances) if weight else np.full(instances, share)
    return rng.binomial(episodes, chances)


@pytest.mark.parametrize("tries", [30, pytest.param(600, marks=pytest.mark.deep)])
@pytest.mark.parametrize(("instances", "episodes"), [(64, 4), (16, 4), (32, 8), (64, 1)])
def test_intervals_of_few_successes_on_shared_instances_hold_the_truth(instances, episodes, tries):
    rng = np.random.default_rng(0)
    for share, likeness in product((0.005, 0.03, 0.1, 0.4, 0.9, 0.99), (0, 0.2, 0.6) if episodes > 1 else (0,)):
        missed = np.zeros(4)
        for _ in range(tries):
            won = shared(rng, share, likeness, instances, episodes)
            estimate = share_of(won, [episodes] * instances)
            price = price_of_success([10] * instances, won, [episodes] * instances)
            truth = 10 / (episodes * share)
            missed += [estimate.low > share, estimate.high < share, price.low > truth, (price.high or truth) < truth]
        # A fortieth at each end is promised; the rest is chance, and the steps of small counts.
        assert missed.max() <= (0.2 if tries < 100 else 0.09) * tries, (share, likeness, missed / tries)


def crossed_table(rng, seeds, instances, of_seeds, of_instances):
    noise = rng.normal(size=(seeds, instances))
    return noise + rng.normal(0, of_seeds, (seeds, 1)) + rng.normal(0, of_instances, (1, instances))


@pytest.mark.parametrize("tries", [400, pytest.param(4000, marks=pytest.mark.deep)])
@pytest.mark.parametrize("seeds", [3, 4, 8, 16])
def test_the_interval_over_seeds_and_instances_misses_at_neither_end_more_often_than_promised(seeds, tries):
    rng = np.random.default_rng(1)
    for instances, (of_seeds, of_instances) in product((16, 128), ((1, 0), (0, 1), (0.2, 0.7), (0, 0))):
        tables = (crossed_table(rng, seeds, instances, of_seeds, of_instances) for _ in range(tries))
        ends = np.array([crossed_mean(table)[1:] for table in tables])
        missed = (ends[:, 0] > 0).mean(), (ends[:, 1] < 0).mean()
        # A fortieth, a hundredth for the approximation of few seeds, and three deviations of chance.
        assert max(missed) <= 0.035 + 3 * sqrt(0.025 / tries), (instances, of_seeds, missed)


def test_the_interval_of_a_table_is_that_of_its_rows_and_columns():
    rows = ((0.0, 1.0, 5.0), (2.0, 3.0, 4.0), (9.0, 7.0, 1.0))
    # Row means 2, 3, 17/3: variance 3.5926. Column means 11/3, 11/3, 10/3: variance 0.0370. Degrees of freedom:
    # (3.5926 + 0.0370)^2 / ((3.5926^2 + 0.0370^2) / 2) = 2.04, rounded down to 2: t = 4.303.
    spread = 4.303 * sqrt((3.592593 + 0.037037) / 3)
    assert crossed_mean(rows) == pytest.approx((32 / 9, 32 / 9 - spread, 32 / 9 + spread), abs=1e-4)
    # A column that is alone has nothing to differ from.
    assert crossed_mean([[30], [40], [50]]) == student([30, 40, 50])
    assert crossed_mean([[1.0] * 3] * 3) == (1, 1, 1)
    assert crossed_mean(rows[:2]) is None


def test_students_interval_is_that_of_three_or_more():
    # Deviation 10 of three: 4.303 * 10 / sqrt(3) = 24.843.
    assert student([30, 40, 50]) == (40, pytest.approx(15.157, abs=1e-3), pytest.approx(64.843, abs=1e-3))
    assert student([30, 50]) is None
