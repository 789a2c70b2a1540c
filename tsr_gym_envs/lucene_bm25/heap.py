"""The best k of many scored passages: a heap whose worst entry is the first.

Equal scores rank by the passages' ids, byte by byte; ids are looked at for nothing else.
"""

import numpy as np
from numpy.typing import NDArray

from tsr_gym_envs.compiled import njit
from tsr_gym_envs.lucene_bm25.lengths import Bytes, Singles

Longs = NDArray[np.int64]


@njit
def id_before(ends: Longs, data: Bytes, one: int, other: int) -> bool:
    """Return whether a passage's id comes before another's."""
    # Damaged ends lead nowhere outside.
    start, other_start = min(max(ends[one], 0), data.size), min(max(ends[other], 0), data.size)
    size, other_size = min(ends[one + 1], data.size) - start, min(ends[other + 1], data.size) - other_start
    for place in range(min(size, other_size)):
        byte, other_byte = data[start + place], data[other_start + place]
        if byte != other_byte:
            return bool(byte < other_byte)
    return bool(size < other_size)


@njit
def sink(ends: Longs, data: Bytes, passages: Longs, scores: Singles, size: int) -> None:
    """Restore the heap after its first entry was replaced.

    Args:
        ends: `[P + 1]` where the passages' ids end in `data`.
        data: The ids.
        passages: The heap's passages.
        scores: The heap's scores.
        size: Entries of the heap.
    """
    passage, score, place, child = passages[0], scores[0], 0, 1
    while child < size:
        right = child + 1
        if right < size and (
            scores[right] < scores[child]
            or (scores[right] == scores[child] and id_before(ends, data, passages[child], passages[right]))
        ):
            child = right
        if score < scores[child] or (score == scores[child] and id_before(ends, data, passages[child], passage)):
            break
        passages[place], scores[place] = passages[child], scores[child]
        place, child = child, 2 * child + 1
    passages[place], scores[place] = passage, score


@njit
def offer(
    ends: Longs, data: Bytes, passages: Longs, scores: Singles, size: int, passage: int, score: np.float32
) -> int:
    """Put a passage on the heap if it belongs there, and return the size of the heap, at most `passages.size`."""
    if size == passages.size:
        if score > scores[0] or (score == scores[0] and id_before(ends, data, passage, passages[0])):
            passages[0], scores[0] = passage, score
            sink(ends, data, passages, scores, size)
        return size
    place = size
    while place > 0:
        parent = (place - 1) >> 1
        if scores[parent] < score or (scores[parent] == score and id_before(ends, data, passage, passages[parent])):
            break
        passages[place], scores[place] = passages[parent], scores[parent]
        place = parent
    passages[place], scores[place] = passage, score
    return size + 1


@njit
def rank(ends: Longs, data: Bytes, passages: Longs, scores: Singles, size: int) -> None:
    """Turn the heap into a list, best first."""
    for end in range(size - 1, 0, -1):
        passages[0], passages[end] = passages[end], passages[0]
        scores[0], scores[end] = scores[end], scores[0]
        sink(ends, data, passages, scores, end)
