"""The opened index: queries in, hits out, with Lucene's scores in Anserini's order."""

import math
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tsr_gym.errors import InvalidCorpus
from tsr_gym_envs.compiled import njit
from tsr_gym_envs.lucene_bm25.analysis import analyse
from tsr_gym_envs.lucene_bm25.build import Progress, build_index, mean_length
from tsr_gym_envs.lucene_bm25.layout import (
    SIZE,
    Arrays,
    Bytes,
    Postings,
    check_files,
    inverse_norms,
    map_arrays,
    read_meta,
)
from tsr_gym_envs.lucene_bm25.top import top_passages


def find_term(index: Arrays, term: str) -> int:
    """Return the number of a term, -1 where the index has none such.

    Raises:
        InvalidCorpus: The table is damaged.
    """
    data = np.frombuffer(term.encode("utf-8", "surrogatepass"), np.uint8)
    number = int(_term_number(index.term_ends, index.term_bytes, data))
    if number < -1:
        raise InvalidCorpus("the index's table of terms is damaged; build the index anew")
    return number


@njit
def _term_number(ends: NDArray[np.uint32], data: Bytes, term: Bytes) -> int:
    """Return a term's number; -1 if the index lacks it, -2 if the table is damaged."""
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


class Hit(NamedTuple):
    """A found passage: its id, its score, and its number, which is its place in the input of the index."""

    id: str
    score: float
    number: int


class BM25Index:
    """A search index on disk, mapped into memory.

    Processes that open the same index share its memory. Results are a function of the queries, `k` and the digest.

    Attributes:
        path: The index's folder.
        digest: Of the passages' ids and texts in order and the settings, in hexadecimal digits.
    """

    def __init__(self, path: str | os.PathLike[str], *, verify: bool = False) -> None:
        self.path = Path(path)
        meta = read_meta(self.path)
        self._arrays = map_arrays(self.path, meta)
        check_files(self.path, meta, again=verify)
        self._postings = Postings(
            **{name: part for name, part in self._arrays._asdict().items() if name in Postings._fields}
        )
        self.digest = meta["digest"]
        self._num_filled = meta["num_filled"]
        mean = mean_length(meta["num_tokens"], meta["num_filled"])
        self._inverse = inverse_norms(meta["k1"], meta["b"], mean)
        # Queries repeat terms; the cache also saves the search in the table on disk.
        self._term = lru_cache(maxsize=1 << 16)(self._find)

    @classmethod
    def build(
        cls,
        passages: Iterable[tuple[str, str]],
        path: str | os.PathLike[str],
        *,
        k1: float = 0.9,
        b: float = 0.4,
        progress: Progress | None = None,
    ) -> "BM25Index":
        """Build an index of (id, text) pairs and open it.

        Memory stays bounded however many passages there are. The folder appears when it is complete; an index that
        stood there is replaced then, and an interrupted build leaves it alone.

        Args:
            passages: The passages, read once.
            path: The folder to make.
            k1: Saturation of a term's frequency, at least 0.
            b: How much a passage's length counts, from 0 to 1.
            progress: Called now and then with the number of passages read.

        Raises:
            InvalidCorpus: An id or a text is no string, two ids are equal, or something else stands at `path`.
            ValueError: `k1` or `b` is out of range.
        """
        if not (0 <= k1 < math.inf and 0 <= b <= 1):
            raise ValueError(f"wanted k1 >= 0 and b between 0 and 1, got k1={k1!r}, b={b!r}")
        build_index(passages, Path(path), k1=k1, b=b, progress=progress)
        return cls(path)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, verify: bool = False) -> "BM25Index":
        """Open an index.

        Every file is compared with its checksum when it is first opened, and when its size or time of change differs
        from what was found sound.

        Args:
            path: The index's folder.
            verify: Compare also what was found sound before.

        Raises:
            InvalidCorpus: The folder holds no index, or a damaged one.
        """
        return cls(path, verify=verify)

    def __len__(self) -> int:
        """Return the number of passages."""
        return int(self._arrays.lengths.size)

    def __reduce__(self) -> tuple[type["BM25Index"], tuple[Path]]:
        """Pickle the place: another process opens the index anew."""
        return BM25Index, (self.path,)

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """Return the best `k` passages of every query, best first, as Lucene and Anserini rank and score them.

        Equal scores are in ascending order of the ids' UTF-8 bytes. Fewer than `k` passages are returned where fewer
        hold one of the query's terms.

        Raises:
            InvalidCorpus: The index's files were damaged after it was opened.
            ValueError: `k` is negative.
        """
        if k < 0:
            raise ValueError(f"wanted k of at least 0, got {k}")
        if isinstance(queries, str):
            raise TypeError("wanted a list of queries, got a single string")
        firsts: list[int] = []
        counts: list[int] = []
        weights: list[float] = []
        ends: list[int] = []
        for query in queries:
            for term, times in Counter(analyse(query)).items():
                first, count, weight = self._term(term)
                if count:
                    firsts.append(first)
                    counts.append(count)
                    weights.append(weight * times)
            ends.append(len(firsts))
        k = min(k, len(self))
        if k == 0 or not firsts:
            return [[] for _ in ends]
        terms, weight_array = np.array((firsts, counts), np.int64), np.array(weights, np.float32)
        results = top_passages(*self._postings, self._inverse, terms, weight_array, np.array(ends, np.int64), k)
        return [self._hits(*of_query) for of_query in zip(*(part.tolist() for part in results), strict=True)]

    def _hits(self, passages: list[int], scores: list[float], size: int) -> list[Hit]:
        if size < 0:
            raise self._damaged()
        return [Hit(self._id(passages[place]), scores[place], passages[place]) for place in range(size)]

    def _find(self, term: str) -> tuple[int, int, float]:
        """Return a term's first block, in how many passages it stands, and its weight for each time in a query."""
        number = find_term(self._arrays, term)
        if number < 0:
            return 0, 0, 0.0
        count = int(self._arrays.term_counts[number])
        first = int(self._arrays.term_blocks[number])
        if not 0 < count <= SIZE * (len(self._arrays.blocks) - first):
            raise self._damaged()
        weight = math.log(1 + (self._num_filled - count + 0.5) / (count + 0.5))
        return first, count, float(np.float32(weight))

    def _damaged(self) -> InvalidCorpus:
        return InvalidCorpus(f"{self.path}: the index is damaged; build it anew")

    def _id(self, number: int) -> str:
        start, end = self._arrays.id_ends[number : number + 2].tolist()
        if not 0 <= start <= end <= self._arrays.id_bytes.size:
            raise self._damaged()
        try:
            return self._arrays.id_bytes[start:end].tobytes().decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise self._damaged() from error
