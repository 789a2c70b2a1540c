"""Corpus: passages that stay in their jsonl file, found by number through a memory-mapped table of offsets.

Nothing is held per passage in Python, and processes share the pages. An index folder is a corpus folder with an index.
"""

import json
import mmap
import shutil
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from hashlib import blake2b, file_digest, sha256
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tsr_gym.errors import InvalidCorpus
from tsr_gym.files import cached, write_whole
from tsr_gym.state_env import new_tuple
from tsr_gym_envs.retrieval_qa.contract import Passage
from tsr_gym_envs.verified import check_once

MANIFEST = "corpus.json"
FORMAT = 1
TEXT = "passages.jsonl"
TABLES = ("offsets.npy", "ids.npy")
BM25 = "bm25"
WANTED = 'wanted a JSON object with "id" and "contents", or with "id", "title" and "text", all of them text'
# Rows between two progress reports, so that reporting costs nothing.
NEWS_EVERY = 4096
Progress = Callable[[str, int, int], None]


class CorpusRow(NamedTuple):
    r"""One row of a corpus.

    Attributes:
        id: Name of the passage.
        contents: What is indexed and shown: ``'"Title"\ntext'``, or text alone where there is no title.
    """

    id: str
    contents: str


class Corpus:
    """The passages of a corpus, by number and by id. `open_corpus` makes one.

    Args:
        folder: Where the tables are.
        about: The folder's manifest.
    """

    def __init__(self, folder: Path, about: dict[str, Any]) -> None:
        self.folder = folder
        self.text = folder / str(about["text"])
        self.digest = str(about["digest"])
        self._check_text(about)
        self._offsets = _table(folder / "offsets.npy", (about["passages"] + 1,))
        self._ids = _table(folder / "ids.npy", (2, about["passages"]))
        with open(self.text, "rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __reduce__(self) -> tuple[Any, ...]:
        return open_corpus, (self.folder,)

    def row(self, number: int) -> CorpusRow:
        """Return a row by its number, from 0 in the order of the file."""
        if not 0 <= number < len(self):
            raise IndexError(f"wanted a passage from 0 to {len(self) - 1}, got {number}")
        start, end = self._offsets[number : number + 2].tolist()
        try:
            # The row was checked when the tables were made, so only damage since then can fail here.
            return row_of(json.loads(str(self._bytes[start:end], "utf-8-sig" if number == 0 else "utf-8")))
        except (ValueError, RecursionError) as error:
            raise InvalidCorpus(
                f"{self.text}: passage {number} is damaged ({error}); index the corpus again"
            ) from error

    def passage(self, number: int, score: float = 0.0) -> Passage:
        """Return a passage by its number."""
        name, contents = self.row(number)
        return new_tuple(Passage, (name, *split_contents(contents), score))

    def number_of(self, name: str) -> int | None:
        """Return the number of the passage with an id, or None without a match."""
        key, (keys, numbers) = _key(name), self._ids
        place = int(np.searchsorted(keys, key))
        while place < len(self) and keys[place] == key:
            number = int(numbers[place])
            if number >= len(self):
                raise InvalidCorpus(f"{self.folder}: the table of ids is damaged; index the corpus again")
            if self.row(number).id == name:
                return number
            place += 1
        return None

    def rows(self) -> Iterator[CorpusRow]:
        """Yield all rows in order, reading the file from front to back."""
        with open(self.text, "rb") as file:
            for number, line in enumerate(file, 1):
                if not line.isspace():
                    yield parse_row(line, f"{self.text}:{number}")

    def check(self, about: dict[str, Any], *, again: bool = False) -> None:
        """Compare text and tables with their digests, unless they were found sound and have not changed.

        Args:
            about: The folder's manifest.
            again: Compare also what was found sound.

        Raises:
            InvalidCorpus: A file is damaged.
        """
        digests = {self.text: self.digest}
        # Older corpora were written without digests of their tables.
        digests |= {self.folder / name: digest for name, digest in about.get("tables", {}).items()}

        def compare() -> None:
            for path, digest in digests.items():
                if _digest_of(path) != digest:
                    raise InvalidCorpus(f"{path}: damaged; index the corpus again")

        check_once(self.folder / MANIFEST, list(digests), compare, again=again)

    def _check_text(self, about: dict[str, Any]) -> None:
        try:
            stat = self.text.stat()
        except OSError as error:
            raise InvalidCorpus(f"{self.folder}: the passages are gone: {error}; index the corpus again") from error
        linked = about["mtime_ns"] is not None
        if stat.st_size != about["bytes"] or (linked and stat.st_mtime_ns != about["mtime_ns"]):
            raise InvalidCorpus(f"{self.text}: changed since {self.folder} was made of it; index the corpus again")


def open_corpus(path: str | Path, *, verify: bool = False) -> Corpus:
    """Open a jsonl file of passages, or an index folder.

    The tables of a jsonl file are made at first use and kept in ``cache_home()/retrieval``. Text and tables are
    compared with their digests when they are first opened, and when a size or time of change differs.

    Args:
        path: The file or folder.
        verify: Compare also what was found sound before.

    Raises:
        InvalidCorpus: The file or folder is missing or damaged, or a row is malformed; file and line are named.
    """
    path = Path(path)
    if path.is_file():
        path = cached(path, "retrieval/corpora", MANIFEST, partial(write_corpus, path, link=True))
    if not (path / MANIFEST).is_file():
        actual = (
            f"a folder without {MANIFEST}: make one with `tsr retrieval index`" if path.is_dir() else "nothing there"
        )
        raise InvalidCorpus(f"{path}: wanted a jsonl file of passages or the folder of an index, got {actual}")
    about = _manifest(path / MANIFEST)
    corpus = Corpus(path, about)
    corpus.check(about, again=verify)
    return corpus


def build_index(
    corpus_jsonl: str | Path, out: str | Path, progress: Progress | None = None, *, link: bool = False
) -> Path:
    """Index a jsonl file of passages by BM25, and return the folder.

    The folder appears when it is complete; until then an index that stood there stays. An interrupted run leaves no
    trace in `out` and is simply run again, from the beginning. Memory does not grow with the text: about 50 bytes a
    passage in addition to the search index.

    Args:
        corpus_jsonl: The passages, ``{"id", "contents"}`` or ``{"id", "title", "text"}`` a line.
        out: The folder; it holds a copy of the passages.
        progress: Called with a stage, how much of it is done, and how much there is, now and then.
        link: Whether the folder only names the file instead of copying it; the file must then stay as it is.

    Raises:
        InvalidCorpus: A row is malformed or two rows have the same id; file and line are named.
        ConfigError: Something else stands at `out`.
    """
    corpus_jsonl, out = Path(corpus_jsonl), Path(out)
    write_whole(out, MANIFEST, partial(write_index, corpus_jsonl, link=link, progress=progress))
    return out


def write_index(source: Path, folder: Path, *, link: bool, progress: Progress | None = None) -> None:
    """Fill a folder with a corpus and its BM25 index."""
    from tsr_gym_envs.lucene_bm25 import BM25Index

    write_corpus(source, folder, link=link, progress=progress)
    corpus = Corpus(folder, _manifest(folder / MANIFEST))
    report = None if progress is None else lambda number: progress("indexing", number, len(corpus))
    BM25Index.build(corpus.rows(), folder / BM25, progress=report)


def write_corpus(source: Path, folder: Path, *, link: bool, progress: Progress | None = None) -> None:
    """Fill a folder with the tables of a corpus, and with its text unless that is linked; the manifest comes last."""
    stat = source.stat()
    offsets, keys, digest = array("Q"), array("Q"), sha256()
    start = 0
    with open(source, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.isspace():
                offsets.append(start)
                keys.append(_key(parse_row(line, f"{source}:{number}").id))
            digest.update(line)
            start += len(line)
            if progress and number % NEWS_EVERY == 0:
                progress("reading", start, stat.st_size)
    if not keys:
        raise InvalidCorpus(f"{source}: {WANTED} a line; the file has none")
    hashes = np.frombuffer(keys, np.uint64)
    order = np.argsort(hashes, kind="stable")
    _refuse_twins(source, offsets, hashes, order)
    np.save(folder / "ids.npy", np.stack([hashes[order], order.astype(np.uint64)]))
    offsets.append(start)
    np.save(folder / "offsets.npy", np.frombuffer(offsets, np.uint64))
    if not link:
        shutil.copyfile(source, folder / TEXT)
    about = {
        "format": FORMAT,
        "passages": len(keys),
        "digest": digest.hexdigest(),
        "text": str(source.resolve()) if link else TEXT,
        "bytes": start,
        "mtime_ns": stat.st_mtime_ns if link else None,
        "tables": {name: _digest_of(folder / name) for name in TABLES},
    }
    (folder / MANIFEST).write_text(json.dumps(about, indent=1), encoding="utf-8")


def parse_row(line: bytes, where: str) -> CorpusRow:
    """Return the row that a line of JSON holds.

    Args:
        line: The line.
        where: File and line, for the message.

    Raises:
        InvalidCorpus: The line is malformed.
    """
    try:
        return whole(row_of(json.loads(line)))
    except (ValueError, RecursionError) as error:
        raise InvalidCorpus(f"{where}: {error}; got {line[:200]!r}") from error


def row_of(document: object) -> CorpusRow:
    """Return the row of a document as JSON holds it; an id may be a whole number, and other keys are let alone.

    Raises:
        ValueError: Something is missing or of the wrong kind.
    """
    if isinstance(document, dict):
        name, contents = document.get("id"), document.get("contents")
        if not isinstance(contents, str):
            title, text = document.get("title"), document.get("text")
            if isinstance(title, str) and isinstance(text, str):
                contents = join_contents(title, text)
        if type(name) is int:
            name = str(name)
        if name and isinstance(name, str) and isinstance(contents, str):
            return new_tuple(CorpusRow, (name, contents))
    raise ValueError(WANTED)


def whole(row: CorpusRow) -> CorpusRow:
    """Return the row itself.

    Raises:
        ValueError: It holds half a character, which JSON can spell but neither a file nor a socket takes.
    """
    "".join(row).encode()
    return row


def split_contents(contents: str) -> tuple[str, str]:
    """Return title and text: the title is a first line in quotation marks, as in Search-R1's corpora, else ""."""
    first, newline, rest = contents.partition("\n")
    if newline and len(first) > 2 and first[0] == first[-1] == '"':
        return first[1:-1], rest
    return "", contents


def contents_of(passage: Passage) -> str:
    """Return the contents that `split_contents` split."""
    return join_contents(passage.title, passage.text)


def join_contents(title: str, text: str) -> str:
    """Return the contents of a passage from its title and text."""
    return f'"{title}"\n{text}' if title else text


def _key(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")


def _refuse_twins(source: Path, offsets: Sequence[int], hashes: NDArray[np.uint64], order: NDArray[np.int64]) -> None:
    """Raise where two rows have the same id; equal keys of different ids are no harm."""
    equal = hashes[order][1:] == hashes[order][:-1]
    suspects = order[np.append(equal, False) | np.insert(equal, 0, False)]
    seen: dict[str, int] = {}
    with open(source, "rb") as file:
        for number in suspects.tolist():
            file.seek(offsets[number])
            name = parse_row(file.readline(), str(source)).id
            if name in seen:
                lines = [_line_at(file, offsets[twin]) for twin in (seen[name], number)]
                raise InvalidCorpus(f"{source}:{lines[1]}: wanted ids that differ, {name!r} is also that of {lines[0]}")
            seen[name] = number


def _digest_of(path: Path) -> str:
    with open(path, "rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _line_at(file: BinaryIO, offset: int) -> int:
    file.seek(0)
    number = 1
    while file.tell() < offset:
        file.readline()
        number += 1
    return number


def _manifest(path: Path) -> dict[str, Any]:
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        if about["format"] != FORMAT:
            raise InvalidCorpus(f"{path}: wanted format {FORMAT}, got {about['format']}; index the corpus again")
        types = {"passages": int, "digest": str, "text": str, "bytes": int, "mtime_ns": int | None}
        if not all(isinstance(about[key], type_) for key, type_ in types.items()):
            raise TypeError("a value is of the wrong kind")
        if "tables" in about and set(about["tables"]) != set(TABLES):
            raise ValueError(f"wanted digests of {TABLES}")
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidCorpus(f"{path}: damaged ({type(error).__name__}: {error}); index the corpus again") from error
    return dict(about)


def _table(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint64]:
    try:
        table = np.load(path, mmap_mode="r")
    # Numpy reads the header as Python, and a damaged one may raise anything.
    except Exception as error:
        raise InvalidCorpus(f"{path}: damaged ({error}); index the corpus again") from error
    if table.shape != shape or table.dtype != np.uint64:
        raise InvalidCorpus(f"{path}: wanted {shape} of uint64, got {table.shape} of {table.dtype}")
    return np.asarray(table)
