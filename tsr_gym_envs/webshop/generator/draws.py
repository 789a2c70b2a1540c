"""Draws of the generator: random streams that depend on their purpose only, and product ids that never repeat."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np

from tsr_gym.seeds import derive_seed

T = TypeVar("T")
# Numbers drawn at once, about as many as a product takes, because single draws from numpy are slow.
BLOCK = 192


class Draws:
    """Endless draws for one purpose.

    Equal parts give equal draws in every process.

    >>> Draws(0, "product", 7).below(1000) == Draws(0, "product", 7).below(1000)
    True
    """

    def __init__(self, *parts: int | str) -> None:
        self._units = _units(derive_seed("webshop", *parts))

    def below(self, count: int) -> int:
        """Return a uniform number from 0 to `count` - 1."""
        return int(next(self._units) * count)

    def chance(self, p: float) -> bool:
        """Return True with probability `p`."""
        return next(self._units) < p

    def pick(self, values: Sequence[T]) -> T:
        """Return a uniformly drawn value."""
        return values[int(next(self._units) * len(values))]

    def sample(self, values: Sequence[T], count: int) -> list[T]:
        """Return `count` of some values, or all of fewer, in random order."""
        # A partial Fisher-Yates shuffle: only the first `count` places are filled.
        pool = list(values)
        for place in range(min(count, len(pool))):
            other = place + int(next(self._units) * (len(pool) - place))
            pool[place], pool[other] = pool[other], pool[place]
        return pool[:count]

    def sample_early(self, values: Sequence[T], count: int) -> list[T]:
        """Return `count` of some values, or all of fewer; early values are more likely than late ones."""
        pool = list(values)
        return [pool.pop(int(next(self._units) ** 2 * len(pool))) for _ in range(min(count, len(pool)))]

    def weighted(self, cumulative: Sequence[float]) -> int:
        """Return a number by its probability; `cumulative` has the running sums, the last of them 1."""
        unit = next(self._units)
        return next(number for number, bound in enumerate(cumulative) if unit < bound)

    def quantile(self, points: Sequence[float]) -> float:
        """Return a draw from the distribution with these equally spaced quantiles, straight lines between them."""
        place = next(self._units) * (len(points) - 1)
        lower = int(place)
        return points[lower] + (place - lower) * (points[lower + 1] - points[lower])


def _units(seed: int) -> Iterator[float]:
    rng = np.random.Generator(np.random.PCG64(seed))
    while True:
        yield from rng.random(BLOCK).tolist()


LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
HALF = len(LETTERS) ** 4
ROUNDS = 4


def asin_of(seed: int, row: int) -> str:
    """Return the id of a row; different rows below 36**8 have different ids.

    The bijection is a Feistel network: each round adds to one half of the number a value that depends on the other half
    only, which can be subtracted again, so that no two numbers collide.

    >>> len({asin_of(0, row) for row in range(1000)})
    1000
    """
    left, right = divmod(row, HALF)
    for key in _keys(seed):
        left, right = right, (left + _mixed(right ^ key)) % HALF
    return "B0" + _digits(left) + _digits(right)


def _keys(seed: int) -> tuple[int, ...]:
    whole = derive_seed("webshop", "asins", seed)
    return tuple((whole >> (15 * number)) & 0x7FFF for number in range(ROUNDS))


def _mixed(value: int) -> int:
    """Return 32 well mixed bits (the finaliser of MurmurHash3)."""
    value = ((value ^ (value >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    value = ((value ^ (value >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    return value ^ (value >> 16)


def _digits(value: int) -> str:
    digits = ""
    for _ in range(4):
        value, digit = divmod(value, len(LETTERS))
        digits = LETTERS[digit] + digits
    return digits
