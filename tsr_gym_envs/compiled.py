"""Compiled functions: the decorator, types of arrays, and the random streams of numpy and Python inside compiled code.

Importing this module without numba raises MissingExtra. A compiled function takes and returns plain arrays and numbers,
never calls itself, and is cached on disk, so that only the first process that uses it waits for the compiler. The cache
notices changes of a function's own file only: after an edit, remove the cached callers in other files, ``*.nbi`` in
`__pycache__`.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from tsr_gym.optional import require

require("numba", "envs")

import numba  # noqa: E402

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
Flags = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float64]


def njit(function: FunctionT) -> FunctionT:
    """Return the function compiled to machine code, under its Python type."""
    return cast(FunctionT, numba.njit(cache=True)(function))


@njit
def all_below(numbers: Longs, limit: int) -> bool:
    """Return whether all numbers are from 0 to below a limit."""
    below = True
    for index in range(numbers.size):
        below &= 0 <= numbers[index] < limit
    return below


# A stream of numpy's PCG64 is a row of six words: state and increment of 128 bits each, higher half first, whether half
# a word is left over, and that half. A batch draws from its rows exactly the numbers that single environments draw.
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
    """Return the position of a PCG64 generator as six words."""
    position = generator.bit_generator.state
    state, inc = position["state"]["state"], position["state"]["inc"]
    words = (state >> 64, state & _MASK, inc >> 64, inc & _MASK, position["has_uint32"], position["uinteger"])
    return np.array(words, np.uint64)


def set_words(generator: np.random.Generator, words: Streams) -> None:
    """Set a PCG64 generator to a position from `words_of`."""
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
    # numba has no 128-bit integers, so the product is assembled from 32-bit halves.
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
        streams: `[N, 6]`; the given rows are overwritten.
        rows: `[R]` the streams to seed.
        seeds: `[R]` their seeds, below 2**64.
    """
    # numpy's SeedSequence step by step: the entropy is hashed into a pool of four words, every word is mixed into every
    # other, and eight words are hashed out of the pool.
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
    """Return the next number of ``Generator.random()``, from 0 to below 1."""
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
    """Return the next number of ``Generator.integers(limit)``, for limits below 2**32."""
    # Lemire's method, as in numpy: the higher half of a product is the number, and products whose lower half would make
    # some numbers more likely than others are rejected.
    if limit == 1:
        return np.int64(0)
    count = np.uint64(limit)
    product = next_half(streams, row) * count
    if product & _LOW < count:
        least = ((_LOW + _ONE) - count) % count
        while product & _LOW < least:
            product = next_half(streams, row) * count
    return np.int64(product >> _HALF)


# A stream of Python's `random` and of numpy's legacy `np.random` is the Mersenne Twister MT19937; the two differ in
# seeding and in the way they draw a number below a limit. A twister is an array `[625]`: 624 words, and the number of
# used words.
_N, _M = 624, 397
_WORD = 0xFFFFFFFF


def python_twister(seed: int) -> Longs:
    """Return the twister of ``random.Random(seed)``."""
    key = np.array([seed >> shift & _WORD for shift in range(0, max(seed.bit_length(), 1), 32)], np.int64)
    return seed_by_key(key)


@njit
def seed_by_number(seed: int) -> Longs:
    """Return the twister of ``np.random.RandomState(seed)``, `seed` below 2**32."""
    twister = np.empty(_N + 1, np.int64)
    twister[0] = seed
    for index in range(1, _N):
        last = twister[index - 1]
        twister[index] = (1812433253 * (last ^ last >> 30) + index) & _WORD
    twister[_N] = _N
    return twister


@njit
def seed_by_key(key: Longs) -> Longs:
    """Return the twister that is seeded by words, least significant first."""
    twister = seed_by_number(19650218)
    place, used = 1, 0
    for _ in range(max(_N, key.size)):
        last = twister[place - 1]
        twister[place] = ((twister[place] ^ (last ^ last >> 30) * 1664525) + key[used] + used) & _WORD
        place += 1
        used = (used + 1) % key.size
        if place == _N:
            twister[0] = twister[_N - 1]
            place = 1
    for _ in range(_N - 1):
        last = twister[place - 1]
        twister[place] = ((twister[place] ^ (last ^ last >> 30) * 1566083941) - place) & _WORD
        place += 1
        if place == _N:
            twister[0] = twister[_N - 1]
            place = 1
    twister[0] = 1 << 31
    return twister


@njit
def twister_word(twister: Longs) -> int:
    """Return the next 32 random bits."""
    if twister[_N] == _N:
        for index in range(_N):
            both = (twister[index] & 0x80000000) | (twister[(index + 1) % _N] & 0x7FFFFFFF)
            twister[index] = twister[(index + _M) % _N] ^ both >> 1 ^ (0x9908B0DF if both & 1 else 0)
        twister[_N] = 0
    word = int(twister[twister[_N]])
    twister[_N] += 1
    word ^= word >> 11
    word ^= word << 7 & 0x9D2C5680
    word ^= word << 15 & 0xEFC60000
    return word ^ word >> 18


@njit
def python_random(twister: Longs) -> float:
    """Return the next number of ``random.random()``, from 0 to below 1."""
    high, low = twister_word(twister) >> 5, twister_word(twister) >> 6
    return (high * 67108864.0 + low) / 9007199254740992.0


@njit
def python_below(twister: Longs, limit: int) -> int:
    """Return the index that `random` draws for ``choice`` or ``sample`` among `limit` items."""
    bits = 0
    while limit >> bits:
        bits += 1
    drawn = twister_word(twister) >> (32 - bits)
    while drawn >= limit:
        drawn = twister_word(twister) >> (32 - bits)
    return drawn


@njit
def numpy_below(twister: Longs, limit: int) -> int:
    """Return the next number of ``np.random.randint(limit)``."""
    mask = 0
    while mask < limit - 1:
        mask = 2 * mask + 1
    drawn = 0
    while mask:
        drawn = twister_word(twister) & mask
        if drawn < limit:
            break
    return drawn
