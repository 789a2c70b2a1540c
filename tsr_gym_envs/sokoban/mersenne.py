"""The random streams of Python's `random` and of numpy's legacy `np.random`, drawn inside compiled code.

Both are the Mersenne Twister MT19937; they differ in how they are seeded and in how they draw a number below a limit.
A twister is an array `[625]`: 624 words, and how many of them have been used.
"""

import numpy as np

from tsr_gym_envs.compiled import Longs, njit

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
def next_word(twister: Longs) -> int:
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
    """Return what ``random.random()`` returns."""
    high, low = next_word(twister) >> 5, next_word(twister) >> 6
    return (high * 67108864.0 + low) / 9007199254740992.0


@njit
def python_below(twister: Longs, limit: int) -> int:
    """Return the index that `random` draws for ``choice`` or ``sample`` of one among `limit`."""
    bits = 0
    while limit >> bits:
        bits += 1
    drawn = next_word(twister) >> (32 - bits)
    while drawn >= limit:
        drawn = next_word(twister) >> (32 - bits)
    return drawn


@njit
def numpy_below(twister: Longs, limit: int) -> int:
    """Return what ``np.random.randint(limit)`` returns."""
    mask = 0
    while mask < limit - 1:
        mask = 2 * mask + 1
    drawn = 0
    while mask:
        drawn = next_word(twister) & mask
        if drawn < limit:
            break
    return drawn
