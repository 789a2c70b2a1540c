"""numpy's PCG64 inside compiled code: a batch draws what its environments would draw alone, number by number.

A stream is a row of six words: state and increment of 128 bits each, higher half first, whether half a word is left
over, and that half.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsr_gym_envs.compiled import njit

Streams = NDArray[np.uint64]
WORDS = 6
_MASK = (1 << 64) - 1
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_NONE, _ONE = np.uint64(0), np.uint64(1)
_TOP_BITS, _WORD_BITS = np.uint64(58), np.uint64(63)
_UNUSED_BITS = np.uint64(11)
# PCG's multiplier, higher half first.
_FACTOR_HIGH, _FACTOR_LOW = np.uint64(2549297995355413924), np.uint64(4865540595714422341)


def words_of(generator: np.random.Generator) -> Streams:
    """Return where a generator of the kind PCG64 stands."""
    position = generator.bit_generator.state
    state, inc = position["state"]["state"], position["state"]["inc"]
    words = (state >> 64, state & _MASK, inc >> 64, inc & _MASK, position["has_uint32"], position["uinteger"])
    return np.array(words, np.uint64)


def set_words(generator: np.random.Generator, words: Streams) -> None:
    """Put a generator of the kind PCG64 where `words_of` found one."""
    high, low, inc_high, inc_low, has_half, half = words.tolist()
    generator.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {"state": high << 64 | low, "inc": inc_high << 64 | inc_low},
        "has_uint32": has_half,
        "uinteger": half,
    }


@njit
def next_word(streams: Streams, row: int) -> Any:
    """Return the next 64 random bits of a stream."""
    high, low = streams[row, 0], streams[row, 1]
    inc_high, inc_low = streams[row, 2], streams[row, 3]
    # The higher half of low * _FACTOR_LOW, by halves of halves.
    a, b = low >> _HALF, low & _LOW
    c, d = _FACTOR_LOW >> _HALF, _FACTOR_LOW & _LOW
    middle = a * d + (b * d >> _HALF)
    other = b * c + (middle & _LOW)
    carried = a * c + (middle >> _HALF) + (other >> _HALF)
    high = carried + high * _FACTOR_LOW + low * _FACTOR_HIGH
    low = low * _FACTOR_LOW + inc_low
    high += inc_high + (_ONE if low < inc_low else _NONE)
    streams[row, 0], streams[row, 1] = high, low
    mixed, turn = high ^ low, high >> _TOP_BITS
    return (mixed >> turn) | (mixed << ((_NONE - turn) & _WORD_BITS))


@njit
def uniform(streams: Streams, row: int) -> float:
    """Return what ``Generator.random()`` returns."""
    return float((next_word(streams, row) >> _UNUSED_BITS) * (1.0 / 9007199254740992.0))


@njit
def next_half(streams: Streams, row: int) -> Any:
    """Return the next 32 random bits: the lower half of a word, then its higher half."""
    if streams[row, 4] != _NONE:
        streams[row, 4] = _NONE
        return streams[row, 5]
    word = next_word(streams, row)
    streams[row, 4], streams[row, 5] = _ONE, word >> _HALF
    return word & _LOW


@njit
def below(streams: Streams, row: int, limit: int) -> Any:
    """Return what ``Generator.integers(limit)`` returns, for limits below 2**32."""
    if limit == 1:
        return np.int64(0)
    count = np.uint64(limit)
    product = next_half(streams, row) * count
    if product & _LOW < count:
        least = ((_LOW + _ONE) - count) % count
        while product & _LOW < least:
            product = next_half(streams, row) * count
    return np.int64(product >> _HALF)
