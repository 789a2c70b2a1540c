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
# The constants of numpy's SeedSequence.
_FIRST, _FIRST_FACTOR = np.uint64(0x43B0D7E5), np.uint64(0x931E8875)
_LAST, _LAST_FACTOR = np.uint64(0x8B51F9DD), np.uint64(0x58F38DED)
_LEFT, _RIGHT = np.uint64(0xCA01F9DD), np.uint64(0x4973F715)
_SHIFT = np.uint64(16)
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
def _mixed(value: Any, constant: Any, factor: Any) -> Any:
    """Return a number of 32 bits, mixed with a constant that comes before this factor; see numpy's SeedSequence."""
    value = (value ^ constant) * (constant * factor & _LOW) & _LOW
    return value ^ value >> _SHIFT


@njit
def seed_all(streams: Streams, rows: NDArray[np.int64], seeds: NDArray[np.uint64]) -> None:
    """Begin streams as ``np.random.default_rng(seed)`` and Gymnasium's ``np_random(seed)`` begin.

    Args:
        streams: `[N, 6]`; overwritten where the rows say.
        rows: `[R]` which streams.
        seeds: `[R]` a seed below 2**64 for each of them.
    """
    pool, words = np.empty(4, np.uint64), np.empty(8, np.uint64)
    for number in range(seeds.size):
        constant = _FIRST
        for index in range(4):
            entropy = seeds[number] >> np.uint64(32 * index) & _LOW if index < 2 else _NONE
            pool[index] = _mixed(entropy, constant, _FIRST_FACTOR)
            constant = constant * _FIRST_FACTOR & _LOW
        for source in range(4):
            for target in range(4):
                if source != target:
                    value = _LEFT * pool[target] - _RIGHT * _mixed(pool[source], constant, _FIRST_FACTOR) & _LOW
                    pool[target] = value ^ value >> _SHIFT
                    constant = constant * _FIRST_FACTOR & _LOW
        constant = _LAST
        for index in range(8):
            words[index] = _mixed(pool[index & 3], constant, _LAST_FACTOR)
            constant = constant * _LAST_FACTOR & _LOW
        _begin(streams, rows[number], words)


@njit
def _begin(streams: Streams, row: int, words: NDArray[np.uint64]) -> None:
    """Begin a stream from eight words of 32 bits: state and increment, higher half first, each lower word first."""
    high, low = words[0] | words[1] << _HALF, words[2] | words[3] << _HALF
    inc_high, inc_low = words[4] | words[5] << _HALF, words[6] | words[7] << _HALF
    inc_high, inc_low = inc_high << _ONE | inc_low >> _WORD_BITS, inc_low << _ONE | _ONE
    # PCG starts at the increment, the step from 0, adds the state, and takes one more step.
    low += inc_low
    high += inc_high + (_ONE if low < inc_low else _NONE)
    streams[row, 0], streams[row, 1], streams[row, 2], streams[row, 3] = high, low, inc_high, inc_low
    streams[row, 4], streams[row, 5] = _NONE, _NONE
    next_word(streams, row)


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
