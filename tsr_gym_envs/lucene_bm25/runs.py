"""Runs: a stretch of passages is read into memory, and its postings are written to disk, sorted by term.

A posting in a run is a few bytes: the distance to the passage before it, and its frequency where that is not 1.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tsr_gym.errors import InvalidCorpus
from tsr_gym_envs.compiled import njit
from tsr_gym_envs.lucene_bm25.analysis import split_words, term_of
from tsr_gym_envs.lucene_bm25.blocks import Bytes

# A stretch ends with the passage that brings it to this many words, or to this many different ones.
MAX_WORDS = 1 << 24
MAX_VOCABULARY = 1 << 20
_REPORT_EVERY = 10_000

# Called with the number of passages read so far.
Progress = Callable[[int], None]


class Stretch(NamedTuple):
    """Some passages in a row.

    Attributes:
        first: Number of the first passage.
        ids: Their ids, UTF-8.
        terms: Their terms by number.
        tokens: The passages' terms as numbers in order; -1 stands for a stop word.
        ends: Where the passages end in `tokens`.
    """

    first: int
    ids: list[bytes]
    terms: list[str]
    tokens: "array[int]"
    ends: "array[int]"


class _Vocabulary(dict[str, int]):
    """From words as they stand in texts to numbers of terms."""

    def __init__(self) -> None:
        super().__init__()
        self.terms: dict[str, int] = {}

    def __missing__(self, word: str) -> int:
        term = term_of(word)
        number = self.terms.setdefault(term, len(self.terms)) if term else -1
        self[word] = number
        return number


def stretches(
    passages: Iterable[tuple[str, str]],
    digest: blake2b,
    progress: Progress | None = None,
    max_words: int = MAX_WORDS,
) -> Iterator[Stretch]:
    """Yield the passages stretch by stretch, and update the digest with every id and text.

    Raises:
        InvalidCorpus: An id or a text is no string.
    """
    source, number = iter(passages), 0
    while True:
        # A new vocabulary for each stretch, so that memory does not grow with the corpus.
        vocabulary = _Vocabulary()
        stretch = Stretch(number, [], [], array("i"), array("q"))
        for passage_id, text in source:
            if not (isinstance(passage_id, str) and isinstance(text, str)):
                raise InvalidCorpus(f"passage {number}: wanted an id and a text, got {passage_id!r} and {text!r}")
            name, data = passage_id.encode("utf-8", "surrogatepass"), text.encode("utf-8", "surrogatepass")
            digest.update(b"%d %d %b%b" % (len(name), len(data), name, data))
            stretch.ids.append(name)
            stretch.tokens.extend(map(vocabulary.__getitem__, split_words(text)))
            stretch.ends.append(len(stretch.tokens))
            number += 1
            if progress is not None and number % _REPORT_EVERY == 0:
                progress(number)
            if len(stretch.tokens) >= max_words or len(vocabulary) >= MAX_VOCABULARY:
                break
        if not stretch.ids:
            break
        stretch.terms.extend(vocabulary.terms)
        yield stretch
    if progress is not None and number % _REPORT_EVERY:
        progress(number)


Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Words = NDArray[np.uint32]
# A passage's distance with its flag, and a frequency: at most five bytes each.
_MOST_BYTES = 10


class Run(NamedTuple):
    """A run on disk.

    Attributes:
        first: Number of its first passage.
        terms: File of its terms in ascending order, a line each.
        postings: File of the postings.
        counts: `[T]` passages that a term stands in.
        ends: `[T + 1]` where the terms' postings end in the file.
    """

    first: int
    terms: Path
    postings: Path
    counts: Words
    ends: Longs


def write_run(path: Path, first: int, tokens: Ints, ends: Longs, terms: list[str]) -> tuple[Run, Longs]:
    """Write the postings of a stretch of passages.

    Args:
        path: Where the files go, without suffix.
        first: Number of the first passage.
        tokens: The passages' terms by number in order; -1 is none.
        ends: `[P]` where the passages end in `tokens`.
        terms: The terms by number.

    Returns:
        The run, and the passages' numbers of terms with repetitions, `[P]`.
    """
    order = sorted(range(len(terms)), key=terms.__getitem__)
    counts, lengths = _count(tokens, ends, len(terms))
    starts = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
    passages, frequencies = _invert(tokens, ends, starts)
    places = np.empty(len(terms) + 1, np.int64)
    data = np.empty(_MOST_BYTES * passages.size, np.uint8)
    places[0] = 0
    _squeeze(np.array(order, np.int64), starts, passages, frequencies, data, places)
    run = Run(first, path.with_suffix(".terms"), path.with_suffix(".postings"), counts[order], places)
    with open(run.terms, "wb") as file:
        file.writelines(terms[term].encode("utf-8", "surrogatepass") + b"\n" for term in order)
    data[: places[-1]].tofile(run.postings)
    return run, lengths


@njit
def _count(tokens: Ints, ends: Longs, num_terms: int) -> tuple[Words, Longs]:
    """Return how many passages every term stands in and how many terms every passage has."""
    counts = np.zeros(num_terms, np.uint32)
    seen = np.full(num_terms, -1, np.int64)
    lengths = np.zeros(ends.size, np.int64)
    start = 0
    for passage in range(ends.size):
        for place in range(start, ends[passage]):
            term = tokens[place]
            if term < 0:
                continue
            lengths[passage] += 1
            if seen[term] != passage:
                seen[term] = passage
                counts[term] += 1
        start = ends[passage]
    return counts, lengths


@njit
def _invert(tokens: Ints, ends: Longs, starts: Longs) -> tuple[Words, Words]:
    """Return the passages of all terms, one term after the other, and how often each term stands there."""
    passages = np.empty(starts[-1], np.uint32)
    frequencies = np.empty(starts[-1], np.uint32)
    filled = starts[:-1].copy()
    start = 0
    for passage in range(ends.size):
        for place in range(start, ends[passage]):
            term = tokens[place]
            if term < 0:
                continue
            last = filled[term] - 1
            if last >= starts[term] and passages[last] == passage:
                frequencies[last] += 1
            else:
                passages[last + 1] = passage
                frequencies[last + 1] = 1
                filled[term] += 1
        start = ends[passage]
    return passages, frequencies


@njit
def _put(data: Bytes, place: int, value: int) -> int:
    """Write a number seven bits a byte, the lowest first, and return the place after it."""
    while value >= 128:
        data[place] = (value & 127) | 128
        value >>= 7
        place += 1
    data[place] = value
    return place + 1


@njit
def _take(data: Bytes, place: int) -> tuple[int, int]:
    """Return the number that is written there and the place after it."""
    value, shift = 0, 0
    while data[place] >= 128:
        value |= (int(data[place]) & 127) << shift
        shift += 7
        place += 1
    return value | ((int(data[place]) & 127) << shift), place + 1


@njit
def _squeeze(order: Longs, starts: Longs, passages: Words, frequencies: Words, data: Bytes, places: Longs) -> None:
    """Write the postings of the terms in order to `data`, and where each term ends to `places`."""
    place = 0
    for rank in range(order.size):
        term, before = order[rank], -1
        for posting in range(starts[term], starts[term + 1]):
            passage, frequency = int(passages[posting]), int(frequencies[posting])
            place = _put(data, place, 2 * (passage - before - 1) + (frequency > 1))
            if frequency > 1:
                place = _put(data, place, frequency)
            before = passage
        places[rank + 1] = place


@njit
def unsqueeze(
    data: Bytes, counts: Words, first: int, numbers: Longs, filled: Longs, passages: Words, frequencies: Words
) -> None:
    """Append the postings of some of a run's terms to those of the runs before it.

    Args:
        data: The postings of these terms as they stand in the run's file.
        counts: `[T]` passages that each of them stands in.
        first: Number of the run's first passage.
        numbers: `[T]` where the terms stand in `filled`.
        filled: Where the next posting of each term goes; advanced.
        passages: Becomes the passages' numbers.
        frequencies: Becomes the frequencies.
    """
    place = 0
    for rank in range(counts.size):
        target, before = filled[numbers[rank]], first - 1
        for _ in range(counts[rank]):
            value, place = _take(data, place)
            frequency = 1
            if value & 1:
                frequency, place = _take(data, place)
            before += 1 + (value >> 1)
            passages[target] = before
            frequencies[target] = frequency
            target += 1
        filled[numbers[rank]] = target
