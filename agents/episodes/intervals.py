"""Estimates over task instances, with intervals from resampling instances.

Measurements on one instance are correlated, so the bootstrap draws instances and never single measurements.
"""

from collections.abc import Callable, Sequence
from math import sqrt
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

RESAMPLES, CROSSED = 1000, 4000
# Two-sided 95 % quantiles of Student's t for 2 to 30 degrees of freedom.
_T = (
    4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


class Interval(NamedTuple):
    """A number and its 95 % interval over instances."""

    mean: float
    low: float
    high: float


def wilson(successes: float, number: int) -> tuple[float, float]:
    """Return the 95 % Wilson score interval of a share.

    >>> [round(end, 3) for end in wilson(8, 10)]
    [0.49, 0.943]
    """
    if number == 0:
        return 0.0, 1.0
    share, z = successes / number, 1.96
    centre = share + z**2 / (2 * number)
    spread = z * sqrt(share * (1 - share) / number + z**2 / (4 * number**2))
    scale = 1 + z**2 / number
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def student(values: Sequence[float]) -> Interval | None:
    """Return the mean with Student's interval; None for fewer than three, whose interval is too wide to use.

    >>> [round(end, 2) for end in student([30.0, 40.0, 50.0])]
    [40.0, 15.16, 64.84]
    """
    if len(values) < 3:
        return None
    mean = fmean(values)
    spread = _T[min(len(values) - 3, len(_T) - 1)] * stdev(values) / sqrt(len(values))
    return Interval(mean, mean - spread, mean + spread)


def crossed_mean(values: ArrayLike) -> Interval:
    """Return the mean of a table, with an interval that draws its rows and its columns again, each by themselves.

    For runs of several seeds on the same instances: both are samples. Where there is one row or one column, the others
    alone make the interval. No bootstrap of crossed factors is exact, and this one is mildly conservative (Owen, The
    pigeonhole bootstrap, Annals of Applied Statistics 1(2), 2007). With few seeds every bootstrap is too narrow;
    report `student` with it.

    Args:
        values: `[S, I]`, S seeds and I instances.
    """
    table = np.asarray(values, dtype=float)
    seeds, instances = table.shape
    # A fixed seed: the same table always gives the same interval.
    rng = np.random.default_rng(0)
    rows = np.eye(seeds)[rng.integers(seeds, size=(CROSSED, seeds))].mean(axis=1)
    columns = rng.integers(instances, size=(CROSSED, instances))
    # `[R, I]`: the mean of the drawn rows in each column, of which the drawn ones are then taken.
    means = np.take_along_axis(rows @ table, columns, axis=1).mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return Interval(float(table.mean()), float(low), float(high))


def pooled_mean(values: Sequence[float], owners: Sequence[int]) -> Interval | None:
    """Return the mean of some measurements, each on the instance that is its owner; None where there are none."""
    if not values:
        return None
    # Sums and counts per instance are enough to average any draw of instances, with all measurements of each.
    _, place = np.unique(owners, return_inverse=True)
    sums, counts = np.bincount(place, values), np.bincount(place)
    drawn = _draws(len(counts), RESAMPLES)
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return Interval(float(np.mean(values)), float(low), float(high))


def pooled(
    statistic: Callable[[Sequence[float], Sequence[float]], float | None],
    first: Sequence[float],
    second: Sequence[float],
    owners: Sequence[int],
) -> Interval | None:
    """Return a statistic of pairs of measurements; None where it is not defined.

    Args:
        statistic: Such as a correlation.
        first: One side of the pairs.
        second: The other side.
        owners: The instance of each pair.
    """
    estimate = statistic(first, second)
    if estimate is None:
        return None
    left, right, owner = np.array(first), np.array(second), np.array(owners)
    places = [np.flatnonzero(owner == number) for number in np.unique(owner)]
    again = []
    for drawn in _draws(len(places), 200):
        rows = np.concatenate([places[number] for number in drawn])
        value = statistic(left[rows].tolist(), right[rows].tolist())
        again += [] if value is None else [value]
    low, high = np.quantile(again, [0.025, 0.975])
    return Interval(estimate, float(low), float(high))


class Price(NamedTuple):
    """Cost of a success with its 95 % interval over instances; None where no upper end is known."""

    mean: float | None
    low: float
    high: float | None


def price_of_success(costs: Sequence[float], successes: Sequence[int], episodes: Sequence[int]) -> Price:
    """Return the total cost per success.

    Where nothing succeeded there is no price, only a lower end: what an episode costs, over the upper end of Wilson's
    interval of their success.

    Args:
        costs: Cost of each instance.
        successes: How many episodes of each succeeded.
        episodes: How many there were.
    """
    won, paid = np.array(successes), np.array(costs, dtype=float)
    total, number = float(paid.sum()), sum(episodes)
    if not won.sum():
        _, most = wilson(0, number)
        return Price(None, total / (max(number, 1) * most), None)
    if not total:
        return Price(0.0, 0.0, 0.0)
    drawn = _draws(len(won), RESAMPLES)
    # Successes per cost, because draws without a success have a rate, too.
    fewest, most = np.quantile(won[drawn].sum(axis=1) / paid[drawn].sum(axis=1), [0.025, 0.975])
    return Price(total / int(won.sum()), 1 / float(most), 1 / float(fewest) if fewest else None)


def _draws(instances: int, resamples: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    return np.random.default_rng(0).integers(instances, size=(resamples, instances))
