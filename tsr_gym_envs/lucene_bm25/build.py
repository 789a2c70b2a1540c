"""Building an index from a stream of passages with bounded memory: runs on disk, then one merge.

A run holds the postings of a stretch of passages, sorted by term; a posting is a few bytes: the distance to the passage
before it, and its frequency where that is not 1. Invariants: until the last step the folder keeps its old content. The
runs' passages follow each other, so a term's postings are those of its runs one after the other.
"""

import heapq
import shutil
from array import array
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tsr_gym.errors import InvalidCorpus
from tsr_gym.files import in_place_of
from tsr_gym_envs.compiled import njit
from tsr_gym_envs.lucene_bm25.analysis import split_words, term_of
from tsr_gym_envs.lucene_bm25.layout import (
    COLUMNS,
    DTYPES,
    FORMAT,
    SIZE,
    VERSION,
    ArrayFile,
    Bytes,
    IndexMeta,
    Singles,
    inverse_norms,
    is_index,
    length_bytes,
    pack,
    write_meta,
)

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
    passages: Iterable[tuple[str, str]], digest: blake2b, progress: Progress | None = None, max_words: int = MAX_WORDS
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


Hashes = NDArray[np.uint64]
# Ids whose hashes are compared at a time.
IDS_AT_A_TIME = 1 << 22


def first_repeated(ends: Longs, data: Bytes, at_a_time: int = IDS_AT_A_TIME) -> tuple[int, int] | None:
    """Return the numbers of two equal ids, None where all differ.

    Args:
        ends: `[P + 1]` where the ids end in `data`; the first is 0.
        data: The ids' bytes.
        at_a_time: Ids whose hashes are compared at a time, about.
    """
    # Equal ids have equal hashes and so fall into the same part. Sorting one part at a time bounds the memory.
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
    num = 0
    for number in range(ends.size - 1):
        mixed = np.uint64(0xCBF29CE484222325)
        for place in range(ends[number], ends[number + 1]):
            mixed = (mixed ^ np.uint64(data[place])) * np.uint64(0x100000001B3)
        hashes[num], numbers[num] = mixed, number
        num += (mixed >> np.uint64(40)) % np.uint64(num_parts) == np.uint64(part)
    return hashes[:num].copy(), numbers[:num].copy()


# Postings that are merged at a time, unless a single term has more.
AT_A_TIME = 1 << 22


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
    runs: list[Run], numbers: list[Ints], num_terms: int, lengths: Bytes, inverse: Singles, files: dict[str, ArrayFile]
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
        # As many whole terms as fit into the limit, and at least one: a term is never divided.
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


class _Read(NamedTuple):
    """The result of reading: runs, and the numbers of passages, of passages with a term, and of all terms."""

    runs: list[Run]
    passages: int
    filled: int
    tokens: int


def build_index(
    passages: Iterable[tuple[str, str]],
    path: Path,
    *,
    k1: float,
    b: float,
    progress: Progress | None = None,
    max_words: int = MAX_WORDS,
) -> None:
    """Build an index in the place of `path`.

    Args:
        passages: Ids and texts.
        path: The index's folder.
        k1: See `BM25Index.build`.
        b: See `BM25Index.build`.
        progress: See `BM25Index.build`.
        max_words: Words that are kept in memory.

    Raises:
        InvalidCorpus: An id or a text is no string, two ids are equal, or something else stands at `path`.
    """
    digest = blake2b(f"{FORMAT} {VERSION} {float(k1)!r} {float(b)!r} ".encode(), digest_size=16)
    if path.exists() and not (is_index(path) or (path.is_dir() and not any(path.iterdir()))):
        raise InvalidCorpus(f"{path}: wanted a new place or an index to replace, got something else; choose another")
    with in_place_of(path) as folder:
        files = {name: ArrayFile(folder, name) for name in DTYPES}
        scratch = folder / "runs"
        scratch.mkdir()
        read = _read(stretches(passages, digest, progress, max_words), scratch, files)
        stored = {name: files.pop(name).close() for name in ("id_ends", "id_bytes", "lengths")}
        _check_ids(folder)
        numbers, num_terms = merge_terms(read.runs, files)
        inverse = inverse_norms(k1, b, mean_length(read.tokens, read.filled))
        lengths = np.fromfile(folder / "lengths", np.uint8)
        num_blocks = merge_postings(read.runs, numbers, num_terms, lengths, inverse, files)
        shutil.rmtree(scratch)
        meta: IndexMeta = {
            "format": FORMAT,
            "version": VERSION,
            "digest": digest.hexdigest(),
            "k1": float(k1),
            "b": float(b),
            "num_passages": read.passages,
            "num_filled": read.filled,
            "num_tokens": read.tokens,
            "num_terms": num_terms,
            "num_blocks": num_blocks,
            "files": stored | {name: file.close() for name, file in files.items()},
        }
        write_meta(folder, meta)


def mean_length(num_tokens: int, num_filled: int) -> float:
    """Return the mean length of the passages that have a term; those that have none do not count in Lucene."""
    return num_tokens / num_filled if num_filled else 1.0


def _read(source: Iterable[Stretch], scratch: Path, files: dict[str, ArrayFile]) -> _Read:
    """Write the passages' ids and lengths, and their postings as runs."""
    runs: list[Run] = []
    passages, filled, tokens, id_end = 0, 0, 0, 0
    files["id_ends"].append(np.zeros(1, np.int64))
    for stretch in source:
        run, lengths = write_run(
            scratch / str(len(runs)), stretch.first, np.asarray(stretch.tokens), np.asarray(stretch.ends), stretch.terms
        )
        runs.append(run)
        id_ends = id_end + np.cumsum([len(name) for name in stretch.ids])
        id_end = int(id_ends[-1])
        files["id_ends"].append(id_ends)
        files["id_bytes"].append(b"".join(stretch.ids))
        files["lengths"].append(length_bytes(lengths))
        passages += lengths.size
        filled += int(np.count_nonzero(lengths))
        tokens += int(lengths.sum())
    return _Read(runs, passages, filled, tokens)


def _check_ids(folder: Path) -> None:
    ends = np.fromfile(folder / "id_ends", np.int64)
    data = np.fromfile(folder / "id_bytes", np.uint8)
    repeated = first_repeated(ends, data)
    if repeated is not None:
        first, second = repeated
        name = data[ends[first] : ends[first + 1]].tobytes().decode("utf-8", "surrogatepass")
        raise InvalidCorpus(f"passages {first} and {second} have the same id {name!r}: wanted one id for each passage")
