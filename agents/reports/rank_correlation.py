"""Rank correlations with ties: Spearman's, and Kendall's tau-b.

Numbers that differ only in the last digits, as sums of the same rewards in another order do, count as equal.
"""

from collections.abc import Sequence
from math import sqrt

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
# Digits behind the point that count, as in `Tree.best`.
_DIGITS = 9


def ranks(values: Sequence[float]) -> Floats:
    """Return ranks from 1 upwards; equal values share the mean of theirs.

    >>> ranks([3.0, 1.0, 3.0]).tolist()
    [2.5, 1.0, 2.5]
    """
    _, place, counts = np.unique(np.round(values, _DIGITS), return_inverse=True, return_counts=True)
    shared: Floats = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return shared


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation, the correlation of the ranks; None where one side says nothing.

    >>> spearman([1.0, 2.0, 3.0], [0.1, 0.3, 0.2])
    0.5
    """
    mean = (len(first) + 1) / 2
    one, two = ranks(first) - mean, ranks(second) - mean
    spread = sqrt(float(one @ one) * float(two @ two))
    return float(one @ two) / spread if spread else None


def kendall(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return Kendall's tau-b: pairs in the same order minus pairs in the opposite one, corrected for ties.

    ``(C - D) / sqrt((P - T1) (P - T2))``, where of P pairs C are concordant, D discordant, and T1 and T2 tied on the
    one and on the other side (Kendall 1945, "The treatment of ties in ranking problems"). None where one side says
    nothing.

    >>> kendall([1.0, 2.0, 3.0], [1.0, 3.0, 2.0])
    0.3333333333333333
    """
    one, two = np.round(first, _DIGITS), np.round(second, _DIGITS)
    order = untied_one = untied_two = 0
    for start in range(1, len(one)):
        # Each row of the triangle of pairs at once; the whole square would not fit into memory.
        up_one, up_two = np.sign(one[start:] - one[start - 1]), np.sign(two[start:] - two[start - 1])
        order += int(up_one @ up_two)
        untied_one += int(np.count_nonzero(up_one))
        untied_two += int(np.count_nonzero(up_two))
    return order / sqrt(untied_one * untied_two) if untied_one and untied_two else None
