"""Building an index from a stream of passages with bounded memory: runs on disk, then one merge.

Invariant: until the last step the folder's place holds what it held before.
"""

import shutil
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tsr_gym.errors import InvalidCorpus
from tsr_gym.files import in_place_of
from tsr_gym_envs.lucene_bm25.identity import first_repeated
from tsr_gym_envs.lucene_bm25.layout import DTYPES, FORMAT, VERSION, ArrayFile, IndexMeta, is_index, write_meta
from tsr_gym_envs.lucene_bm25.lengths import inverse_norms, length_bytes
from tsr_gym_envs.lucene_bm25.merge import merge_postings, merge_terms
from tsr_gym_envs.lucene_bm25.runs import Run, write_run
from tsr_gym_envs.lucene_bm25.stretches import MAX_WORDS, Progress, Stretch, stretches


class _Read(NamedTuple):
    """What was read: runs, passages, those of them that have a term, terms with repetitions."""

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
