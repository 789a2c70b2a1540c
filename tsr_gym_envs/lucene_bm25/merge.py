"""Merging runs into the arrays of an index.

Invariant: the runs' passages follow each other, so a term's postings are those of its runs one after the other.
"""

import heapq
from array import array
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tsr_gym.errors import InvalidCorpus
from tsr_gym_envs.lucene_bm25.blocks import SIZE, pack
from tsr_gym_envs.lucene_bm25.layout import COLUMNS, ArrayFile
from tsr_gym_envs.lucene_bm25.lengths import Bytes, Singles
from tsr_gym_envs.lucene_bm25.runs import Run, unsqueeze

# Postings that are merged at a time, unless a single term has more.
AT_A_TIME = 1 << 22
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]


def merge_terms(runs: list[Run], files: dict[str, ArrayFile]) -> tuple[list[Ints], int]:
    """Write all terms of the runs in ascending order.

    Returns:
        For every run the numbers of its terms among all, and how many there are in all.
    """
    numbers = [array("i") for _ in runs]
    ends, terms = array("q", [0]), []
    latest, number, end = None, -1, 0
    for term, run in heapq.merge(*(zip(_lines(run.terms), repeat(place)) for place, run in enumerate(runs))):
        if term != latest:
            latest, number, end = term, number + 1, end + len(term)
            ends.append(end)
            terms.append(term)
            if len(terms) == AT_A_TIME:
                files["term_bytes"].append(b"".join(terms))
                terms.clear()
        numbers[run].append(number)
    files["term_bytes"].append(b"".join(terms))
    _check_size("bytes of terms", end)
    files["term_ends"].append(np.asarray(ends))
    return [np.asarray(of_run) for of_run in numbers], number + 1


def _lines(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as file:
        for line in file:
            yield line[:-1]


def merge_postings(
    runs: list[Run],
    numbers: list[Ints],
    num_terms: int,
    lengths: Bytes,
    inverse: Singles,
    files: dict[str, ArrayFile],
) -> int:
    """Write the postings of all terms in blocks and return the number of blocks.

    Args:
        runs: The runs.
        numbers: For every run the numbers of its terms among all.
        num_terms: Terms in all.
        lengths: Length bytes of all passages.
        inverse: `[256]` inverse norms of the length bytes.
        files: Where the arrays go.
    """
    counts = np.zeros(num_terms, np.int64)
    for run, of_run in zip(runs, numbers, strict=True):
        counts[of_run] += run.counts
    blocks = np.cumsum((counts + SIZE - 1) // SIZE)
    files["term_counts"].append(counts)
    files["term_blocks"].append(blocks - (counts + SIZE - 1) // SIZE)
    ends, start, num_words = np.concatenate(([0], np.cumsum(counts))), 0, 0
    while start < num_terms:
        stop = max(start + 1, int(np.searchsorted(ends, ends[start] + AT_A_TIME, "right")) - 1)
        passages, frequencies = _gather(runs, numbers, start, stop, ends[start : stop + 1] - ends[start])
        size = int(blocks[stop - 1] - (blocks[start - 1] if start else 0))
        words = np.zeros(2 * passages.size + size + 1, np.uint32)
        part = np.empty((size, COLUMNS), np.uint32)
        part_ends = ends[start : stop + 1] - ends[start]
        used = pack(passages, frequencies, part_ends, lengths, inverse, num_words, words, part)
        files["words"].append(words[:used])
        files["blocks"].append(part)
        start, num_words = stop, num_words + used
    _check_size("words of postings", num_words)
    # Reading a number takes the word behind it too.
    files["words"].append(np.zeros(2, np.uint32))
    return int(blocks[-1]) if num_terms else 0


def _check_size(what: str, size: int) -> None:
    if size >= 1 << 32:
        raise InvalidCorpus(f"the corpus is too large for one index: {size} {what}, at most {2**32 - 1}; split it")


def _gather(
    runs: list[Run], numbers: list[Ints], start: int, stop: int, ends: Longs
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Return passages and frequencies of the terms from `start` to `stop`, one term after the other."""
    passages, frequencies = np.empty(ends[-1], np.uint32), np.empty(ends[-1], np.uint32)
    filled = ends[:-1].copy()
    for run, of_run in zip(runs, numbers, strict=True):
        first, after = np.searchsorted(of_run, (start, stop))
        if first == after:
            continue
        place, size = int(run.ends[first]), int(run.ends[after] - run.ends[first])
        data = np.fromfile(run.postings, np.uint8, size, offset=place)
        targets = of_run[first:after].astype(np.int64) - start
        unsqueeze(data, run.counts[first:after], run.first, targets, filled, passages, frequencies)
    return passages, frequencies
