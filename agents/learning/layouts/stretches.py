"""Stretches: a forest's line cut into a few calls of attention, so that together they cost least.

A stretch is a part of the line. What its tokens see stands in the stretch itself or is seen by its first token,
because the line is in depth-first order. Few long stretches compute many pairs in vain, many short ones take many
calls.
"""

from collections.abc import Callable
from itertools import accumulate
from math import inf
from typing import NamedTuple

import numpy as np

from tsr_gym.agents.learning.layouts.forest import Ids, Line

# Where a run of tokens may be cut as well: a call computes whole rectangles, and half of a square is in vain.
GRAIN = 64


class Prices(NamedTuple):
    """The costs of a call of attention, there and back, in nanoseconds.

    Attributes:
        call: Itself.
        number: Each number of a key, which is copied together with its value.
        pair: Each token that meets a key, for each head.
        product: Each product of two numbers where they meet.
    """

    call: float
    number: float
    pair: float
    product: float


# Roughly those of a CPU. Only their proportions matter, and only for which calls are joined; what a whole pass comes to
# is measured by benchmarks/learner_speed.py.
PRICES = Prices(call=150_000.0, number=3.0, pair=3.5, product=0.22)


class Stretch(NamedTuple):
    """A part of the line.

    Attributes:
        start: Its first token.
        stop: One past its last.
        keys: Numbers of all tokens that any of its tokens sees, in order; itself comes last.
    """

    start: int
    stop: int
    keys: Ids


def cut_line(line: Line, *, heads: int, size: int, prices: Prices = PRICES) -> list[Stretch]:
    """Return the stretches of a line that cost least, or nearly."""
    cuts = _places(line)
    above: list[int] = line.depth[cuts[:-1]].tolist()
    per_key, per_pair = prices.number * heads * size, heads * (prices.pair + prices.product * size)

    def price(one: int, other: int) -> float:
        tokens = cuts[other] - cuts[one]
        return prices.call + (above[one] + tokens) * (per_key + tokens * per_pair)

    chosen = _cheapest(len(above), price)
    return [_stretch(line, cuts[one], cuts[other]) for one, other in chosen]


def _places(line: Line) -> list[int]:
    """Return the places where the line may be cut, its ends included: before each run, and every few tokens within."""
    total = len(line.depth)
    firsts = np.flatnonzero(line.before != np.arange(total) - 1)
    starts = np.union1d(firsts, [0]).tolist()
    parts = zip(starts, [*starts[1:], total], strict=True)
    return [cut for start, stop in parts for cut in range(start, stop, GRAIN)] + [total]


def _cheapest(count: int, price: Callable[[int, int], float]) -> list[tuple[int, int]]:
    """Return the bounds of the cheapest groups of neighbours; no group costs more than its members apart."""
    apart = [0.0, *accumulate(price(one, one + 1) for one in range(count))]
    least, since = [0.0] + [inf] * count, [0] * (count + 1)
    for one in range(count):
        for other in range(one + 1, count + 1):
            together = price(one, other)
            if other > one + 1 and together > apart[other] - apart[one]:
                break
            if least[one] + together < least[other]:
                least[other], since[other] = least[one] + together, one
    groups, other = [], count
    while other:
        groups.append((since[other], other))
        other = since[other]
    return groups[::-1]


def _stretch(line: Line, start: int, stop: int) -> Stretch:
    above = np.flatnonzero(line.end[:start] > start)
    return Stretch(start, stop, np.concatenate([above, np.arange(start, stop)]))
