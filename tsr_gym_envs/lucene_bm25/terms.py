"""Looking up a term in the sorted table of all terms."""

import numpy as np
from numpy.typing import NDArray

from tsr_gym.errors import InvalidCorpus
from tsr_gym_envs.compiled import njit
from tsr_gym_envs.lucene_bm25.layout import Arrays
from tsr_gym_envs.lucene_bm25.lengths import Bytes


def find_term(index: Arrays, term: str) -> int:
    """Return the number of a term, -1 where the index has none such.

    Raises:
        InvalidCorpus: The table is damaged.
    """
    data = np.frombuffer(term.encode("utf-8", "surrogatepass"), np.uint8)
    number = int(_find(index.term_ends, index.term_bytes, data))
    if number < -1:
        raise InvalidCorpus("the index's table of terms is damaged; build the index anew")
    return number


@njit
def _find(ends: NDArray[np.uint32], data: Bytes, term: Bytes) -> int:
    """Return a term's number; -1 where there is none, -2 where the table is damaged."""
    low, high = 0, ends.size - 1
    while low < high:
        middle = (low + high) >> 1
        # Signed numbers: numba makes a float of an unsigned one and a signed one.
        start = 0 + ends[middle]
        size = 0 + ends[middle + 1] - start
        if size < 0 or start + size > data.size:
            return -2
        place, most = 0, min(size, term.size)
        while place < most and data[start + place] == term[place]:
            place += 1
        if place == term.size and place == size:
            return middle
        if place == size or (place < term.size and data[start + place] < term[place]):
            low = middle + 1
        else:
            high = middle
    return -1
