"""The files of an index: postings in blocks, plain arrays, and a description with their sizes and checksums.

Blocks have at most 128 postings, and passage lengths take one byte each, as Lucene stores them. Distances between
passages and frequencies take as few bits as a block needs. A block's last passage stands next to it and is not packed,
so a term of one passage takes no words at all. Invariant: a folder that has a description is complete.
"""

import json
import mmap
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from tsr_gym.errors import InvalidCorpus
from tsr_gym_envs.compiled import njit
from tsr_gym_envs.verified import check_once

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


FORMAT = "tsr-gym BM25 index"
VERSION = 1
META = "bm25.json"
# Numbers that describe a block.
COLUMNS = 5


class Arrays(NamedTuple):
    """The arrays of an index: P passages, T terms, G blocks of at most 128 postings.

    Attributes:
        id_ends: `[P + 1]` where the ids end in `id_bytes`; the first is 0.
        id_bytes: The passages' ids, UTF-8.
        lengths: `[P]` length bytes.
        term_ends: `[T + 1]` where the terms end in `term_bytes`; the first is 0.
        term_bytes: The terms in ascending order, UTF-8.
        term_counts: `[T]` passages that a term stands in.
        term_blocks: `[T]` a term's first block.
        blocks: `[G, 5]` see the columns in `blocks`.
        words: The packed postings.
    """

    id_ends: NDArray[np.int64]
    id_bytes: NDArray[np.uint8]
    lengths: NDArray[np.uint8]
    term_ends: NDArray[np.uint32]
    term_bytes: NDArray[np.uint8]
    term_counts: NDArray[np.uint32]
    term_blocks: NDArray[np.uint32]
    blocks: NDArray[np.uint32]
    words: NDArray[np.uint32]


class Postings(NamedTuple):
    """Those of the arrays that a search for terms reads, see `Arrays`."""

    id_ends: NDArray[np.int64]
    id_bytes: NDArray[np.uint8]
    lengths: NDArray[np.uint8]
    blocks: NDArray[np.uint32]
    words: NDArray[np.uint32]


DTYPES: dict[str, type[np.generic]] = {
    "id_ends": np.int64,
    "id_bytes": np.uint8,
    "lengths": np.uint8,
    "term_ends": np.uint32,
    "term_bytes": np.uint8,
    "term_counts": np.uint32,
    "term_blocks": np.uint32,
    "blocks": np.uint32,
    "words": np.uint32,
}


class Stored(TypedDict):
    """One file: its size in bytes and its BLAKE2 checksum."""

    bytes: int
    checksum: str


class IndexMeta(TypedDict):
    """The description of an index; `digest` is that of the ids, texts and settings it was built from."""

    format: str
    version: int
    digest: str
    k1: float
    b: float
    num_passages: int
    num_filled: int
    num_tokens: int
    num_terms: int
    num_blocks: int
    files: dict[str, Stored]
    checksum: NotRequired[str]


class ArrayFile:
    """A file that one array is written to, piece by piece."""

    def __init__(self, folder: Path, name: str) -> None:
        self._file = open(folder / name, "wb")  # noqa: SIM115
        self._dtype = DTYPES[name]
        self._sum = blake2b(digest_size=16)

    def append(self, values: NDArray[Any] | bytes) -> None:
        """Write more values."""
        data = values if isinstance(values, bytes) else np.ascontiguousarray(values, self._dtype).data
        self._sum.update(data)
        self._file.write(data)

    def close(self) -> Stored:
        """Close the complete file and return its size and checksum."""
        size = self._file.tell()
        self._file.close()
        return {"bytes": size, "checksum": self._sum.hexdigest()}


def write_meta(folder: Path, meta: IndexMeta) -> None:
    """Write the description; the folder is an index from now on."""
    described = {**meta, "checksum": _checksum_of(meta)}
    (folder / META).write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")


def _checksum_of(meta: Mapping[str, Any]) -> str:
    return blake2b(json.dumps(meta, sort_keys=True).encode(), digest_size=16).hexdigest()


def is_index(folder: Path) -> bool:
    """Return whether the folder claims to be an index."""
    return (folder / META).is_file()


def read_meta(folder: Path) -> IndexMeta:
    """Return the description of an index.

    Raises:
        InvalidCorpus: It is missing, damaged or of another format.
    """
    try:
        meta: IndexMeta = json.loads((folder / META).read_text(encoding="utf-8"))
        version = (meta["format"], meta["version"])
        if version != (FORMAT, VERSION):
            raise InvalidCorpus(f"{folder}: wanted a {FORMAT} of version {VERSION}, got {version}; build it anew")
        # Older indexes have a description without a checksum.
        checksum = meta.pop("checksum", None)
        if checksum not in (None, _checksum_of(meta)):
            raise ValueError("it does not agree with its checksum")
        _check_types(meta)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, InvalidCorpus):
            raise
        raise InvalidCorpus(
            f"{folder}: wanted a search index, got no usable {META} ({error}); build it anew"
        ) from error
    return meta


def _check_types(meta: IndexMeta) -> None:
    if set(meta) != IndexMeta.__required_keys__ or set(meta["files"]) != set(DTYPES):
        raise ValueError("a key is missing or unknown")
    numbers = [meta["num_passages"], meta["num_filled"], meta["num_tokens"], meta["num_terms"], meta["num_blocks"]]
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError(f"wanted counts, got {numbers}")
    bytes.fromhex(meta["digest"])
    float(meta["k1"]), float(meta["b"])
    sizes = _sizes(meta)
    for name in DTYPES:
        stored = meta["files"][name]
        if name in sizes and stored["bytes"] != sizes[name] * np.dtype(DTYPES[name]).itemsize:
            raise ValueError(f"{name} has {stored['bytes']} bytes")


def _sizes(meta: IndexMeta) -> dict[str, int]:
    passages, terms, blocks = meta["num_passages"], meta["num_terms"], meta["num_blocks"]
    return {
        "id_ends": passages + 1,
        "lengths": passages,
        "term_ends": terms + 1,
        "term_counts": terms,
        "term_blocks": terms,
        "blocks": COLUMNS * blocks,
    }


def map_arrays(folder: Path, meta: IndexMeta) -> Arrays:
    """Map the arrays into memory, which all processes share.

    Raises:
        InvalidCorpus: A file is missing or has another size than it should.
    """
    arrays = {name: _map(folder / name, meta["files"][name]["bytes"], DTYPES[name]) for name in DTYPES}
    return Arrays(**(arrays | {"blocks": arrays["blocks"].reshape(-1, COLUMNS)}))


def _map(path: Path, size: int, dtype: type[np.generic]) -> NDArray[Any]:
    try:
        with open(path, "rb") as file:
            actual = file.seek(0, 2)
            if actual != size:
                raise InvalidCorpus(f"{path}: wanted {size} bytes, got {actual}; build the index anew")
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else bytes(8)
    except OSError as error:
        raise InvalidCorpus(f"{path}: a file of the index cannot be read ({error}); build it anew") from error
    return np.frombuffer(mapped, dtype, count=size // np.dtype(dtype).itemsize)


def check_files(folder: Path, meta: IndexMeta, *, again: bool = False) -> None:
    """Read every file and compare it with its checksum, unless it was found sound and has not changed.

    Args:
        folder: The index.
        meta: Its description.
        again: Read them also where they were found sound.

    Raises:
        InvalidCorpus: A file is missing or damaged.
    """
    files = [folder / name for name in meta["files"]]
    try:
        check_once(folder / META, files, lambda: _compare(folder, meta), again=again)
    except OSError as error:
        raise InvalidCorpus(f"{folder}: a file of the index cannot be read ({error}); build it anew") from error


def _compare(folder: Path, meta: IndexMeta) -> None:
    for name, stored in meta["files"].items():
        checksum = blake2b(digest_size=16)
        with open(folder / name, "rb") as file:
            while piece := file.read(1 << 20):
                checksum.update(piece)
        if checksum.hexdigest() != stored["checksum"]:
            raise InvalidCorpus(f"{folder / name}: is damaged; build the index anew")
