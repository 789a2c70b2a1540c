"""Postings in blocks of at most 128, and passage lengths in one byte each, as Lucene stores them.

Distances between passages and frequencies take as few bits as a block needs. A block's last passage stands next to it
and is not packed, so a term of one passage takes no words at all.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsr_gym_envs.compiled import njit

Bytes = NDArray[np.uint8]
Singles = NDArray[np.float32]
# Each length below this has its own byte; longer ones share the other bytes.
_EXACT = 24


def _length(byte: int) -> int:
    if byte < _EXACT:
        return byte
    shift, rest = divmod(byte - _EXACT, 8)
    return _EXACT + (rest if shift == 0 else (rest + 8) << (shift - 1))


# The length that a byte stands for, `[256]`: SmallFloat.byte4ToInt.
LENGTHS = np.array([_length(byte) for byte in range(256)], np.int64)
LENGTHS.setflags(write=False)


def length_bytes(lengths: NDArray[np.int64]) -> Bytes:
    """Return the byte of the greatest length that is not above each of the given: SmallFloat.intToByte4."""
    return (np.searchsorted(LENGTHS, lengths, side="right") - 1).astype(np.uint8)


def inverse_norms(k1: float, b: float, mean_length: float) -> Singles:
    """Return the factor of a term's frequency for every length byte, `[256]`, in Lucene's single precision."""
    unit, k1_, b_ = np.float32(1), np.float32(k1), np.float32(b)
    lengths = LENGTHS.astype(np.float32)
    with np.errstate(divide="ignore"):
        return unit / (k1_ * ((unit - b_) + b_ * lengths / np.float32(mean_length)))


SIZE = 128
Words = NDArray[np.uint32]
Blocks = NDArray[np.uint32]
Longs = NDArray[np.int64]
# Columns of a block: its last passage, its first word, the bits of a distance and of a frequency, and 256 times the
# greatest share of the term's weight that a passage gets, rounded up, less 1.
LAST, START, WIDTH, COUNT_WIDTH, BOUND = range(5)


@njit
def _width(value: int) -> int:
    """Return the number of bits of a number."""
    bits = 0
    while value > 0:
        value >>= 1
        bits += 1
    return bits


@njit
def _put(words: Words, bit: int, width: int, value: int) -> None:
    """Write a number at a bit; the words must be zero there."""
    word, shift = bit >> 5, bit & 31
    spread = np.uint64(value) << np.uint64(shift)
    words[word] |= np.uint32(spread & np.uint64(0xFFFFFFFF))
    if shift + width > 32:
        words[word + 1] |= np.uint32(spread >> np.uint64(32))


@njit
def take(words: Words, bit: int, width: int) -> Any:
    """Return the number at a bit; one word behind its last must exist."""
    # Unsigned numbers all through: numba checks signed indices, and makes floats of mixed signs.
    place = np.uint64(bit)
    word, mask = place >> np.uint64(5), (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    pair = np.uint64(words[word]) | (np.uint64(words[word + np.uint64(1)]) << np.uint64(32))
    return np.int64((pair >> (place & np.uint64(31))) & mask)


@njit
def num_words(size: int, width: int, count_width: int) -> int:
    """Return the number of words of a block."""
    return ((size - 1) * width + size * count_width + 31) >> 5


@njit
def pack(
    passages: Words,
    frequencies: Words,
    ends: Longs,
    lengths: Bytes,
    inverse: Singles,
    first_word: int,
    words: Words,
    blocks: Blocks,
) -> int:
    """Pack the postings of some terms and return how many words that took.

    Args:
        passages: Numbers of the passages, ascending within a term.
        frequencies: How often the term stands in each.
        ends: `[T + 1]` where the terms' postings end; the first is 0.
        lengths: Length bytes of all passages.
        inverse: `[256]` inverse norms of the length bytes.
        first_word: Number of the first word among all of the index.
        words: Zeros; becomes the packed postings.
        blocks: `[G, 5]`; becomes the blocks.
    """
    block, word = 0, 0
    for term in range(ends.size - 1):
        before = -1
        for first in range(ends[term], ends[term + 1], SIZE):
            size = min(SIZE, ends[term + 1] - first)
            share, distance, count, last = 0.0, 0, 1, before
            for place in range(first, first + size):
                passage, frequency = int(passages[place]), int(frequencies[place])
                share = max(share, 1.0 - 1.0 / (1.0 + np.float64(inverse[lengths[passage]]) * frequency))
                if place < first + size - 1:
                    distance = max(distance, passage - last - 1)
                count = max(count, frequency)
                last = passage
            width, count_width = _width(distance), _width(count - 1)
            blocks[block, LAST] = last
            blocks[block, START] = first_word + word
            blocks[block, WIDTH] = width
            blocks[block, COUNT_WIDTH] = count_width
            # A little more than the share, because scores are computed in single precision.
            blocks[block, BOUND] = min(255, int(share * (1.0 + 1e-5) * 256.0))
            bit = 32 * word
            for place in range(first, first + size - 1):
                _put(words, bit, width, int(passages[place]) - before - 1)
                bit += width
                before = int(passages[place])
            for place in range(first, first + size):
                _put(words, bit, count_width, int(frequencies[place]) - 1)
                bit += count_width
            before = last
            word += num_words(size, width, count_width)
            block += 1
    return word


@njit
def unpack(
    words: Words,
    start: int,
    size: int,
    width: int,
    count_width: int,
    before: int,
    last: int,
    passages: Words,
    base: int,
) -> bool:
    """Write the passages of a block to `passages` from `base` on; False means that the block is damaged.

    Args:
        words: The packed postings.
        start: The block's first word.
        size: Its postings.
        width: Bits of a distance.
        count_width: Bits of a frequency.
        before: Last passage of the term's block before it, -1 for none.
        last: Its last passage.
        passages: Becomes the passages.
        base: Where they go.
    """
    if width > 32 or count_width > 32 or start + num_words(size, width, count_width) >= words.size:
        return False
    step, mask = np.uint64(width), (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    bit, place, passage = np.uint64(32 * start), np.uint64(base), np.uint64(before + 1)
    for _ in range(size - 1):
        word = bit >> np.uint64(5)
        pair = np.uint64(words[word]) | (np.uint64(words[word + np.uint64(1)]) << np.uint64(32))
        passage += (pair >> (bit & np.uint64(31))) & mask
        passages[place] = passage
        passage += np.uint64(1)
        place += np.uint64(1)
        bit += step
    passages[place] = last
    return bool(np.int64(passage) <= last)
