"""Finding a repeated id among any number of ids with bounded memory: by their hashes, some of them at a time."""

import numpy as np
from numpy.typing import NDArray

from tsr_gym_envs.compiled import njit
from tsr_gym_envs.lucene_bm25.lengths import Bytes

Longs = NDArray[np.int64]
Hashes = NDArray[np.uint64]
# Ids whose hashes are compared at a time.
AT_A_TIME = 1 << 22


def first_repeated(ends: Longs, data: Bytes, at_a_time: int = AT_A_TIME) -> tuple[int, int] | None:
    """Return the numbers of two equal ids, None where all differ.

    Args:
        ends: `[P + 1]` where the ids end in `data`; the first is 0.
        data: The ids' bytes.
        at_a_time: Ids whose hashes are compared at a time, about.
    """
    num_parts = 1 + (ends.size - 1) // at_a_time
    for part in range(num_parts):
        hashes, numbers = _hashes(ends, data, part, num_parts)
        order = np.argsort(hashes, kind="stable")
        hashes, numbers = hashes[order], numbers[order]
        for same in np.flatnonzero(hashes[1:] == hashes[:-1]):
            # Different ids of one hash may stand between equal ones.
            group = numbers[np.searchsorted(hashes, hashes[same]) : np.searchsorted(hashes, hashes[same], "right")]
            seen: dict[bytes, int] = {}
            for number in group.tolist():
                first = seen.setdefault(data[ends[number] : ends[number + 1]].tobytes(), number)
                if first != number:
                    return first, number
    return None


@njit
def _hashes(ends: Longs, data: Bytes, part: int, num_parts: int) -> tuple[Hashes, Longs]:
    """Return the hashes (FNV-1a) that fall into a part, and the numbers of the ids they belong to."""
    hashes, numbers = np.empty(ends.size, np.uint64), np.empty(ends.size, np.int64)
    found = 0
    for number in range(ends.size - 1):
        mixed = np.uint64(0xCBF29CE484222325)
        for place in range(ends[number], ends[number + 1]):
            mixed = (mixed ^ np.uint64(data[place])) * np.uint64(0x100000001B3)
        hashes[found], numbers[found] = mixed, number
        found += (mixed >> np.uint64(40)) % np.uint64(num_parts) == np.uint64(part)
    return hashes[:found].copy(), numbers[:found].copy()
