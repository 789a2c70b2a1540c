"""Files that users bring, damaged: levels, maps, catalogues, imported stores and questions are read or refused."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from tests.abuse.counts import Counts, Outcome, attacked, counted
from tests.abuse.damaged_bytes import damaged
from tests.tsr_gym_envs.retrieval_qa.test_loaders import SEARCH_R1_ROW
from tests.tsr_gym_envs.retrieval_qa.test_loaders_hostile import SAMPLES
from tests.tsr_gym_envs.webshop.small_files import ANNOTATION, item, write_files
from tsr_gym import InvalidCatalogue, InvalidCorpus, InvalidLevel
from tsr_gym_envs.frozen_lake.rules import check_map
from tsr_gym_envs.retrieval_qa.corpus import contents_of, open_corpus, write_corpus
from tsr_gym_envs.retrieval_qa.loaders import load_questions, passages_of
from tsr_gym_envs.retrieval_qa.passage import Passage
from tsr_gym_envs.sokoban.levels import LevelFiles, TitledLevel, parse_collection, to_collection
from tsr_gym_envs.webshop.catalogue.opening import import_catalogue
from tsr_gym_envs.webshop.catalogue.product import document_of
from tsr_gym_envs.webshop.catalogue.store import open_store

LEVELS = b"""; 0
#######
#@ $ .#
#  $.*#
#######

Title: run-length
7#|#@-$-.#|#2-$.-#|7#

; 2
####
#+$#
####
"""
PASSAGES = tuple(Passage(f"p{number}", "Oslo", f"A town of {number} people.") for number in range(4))


class Kind(NamedTuple):
    """A kind of file.

    Attributes:
        write: Writes files into an empty folder.
        read: Reads what is in the folder, and returns whether what was read is sound.
        promised: The error that may refuse it.
    """

    write: Callable[[Path], object]
    read: Callable[[Path], bool]
    promised: type[Exception]


def _write_map(folder: Path) -> None:
    (folder / "map.txt").write_text("SFFF\nFHFH\nFFFH\nHFFG")


def _reads_map(folder: Path) -> bool:
    rows = tuple((folder / "map.txt").read_bytes().decode(errors="replace").splitlines())
    return check_map(rows) == rows


def _reads_levels(folder: Path) -> bool:
    states = LevelFiles(folder).first(None)
    collection = parse_collection((folder / "levels.txt").read_bytes().decode(errors="replace"))
    again = parse_collection(to_collection([TitledLevel("", state) for state in states])) if states else []
    return states == [level.state for level in collection] == [level.state for level in again]


def _write_catalogue(folder: Path) -> None:
    write_files(folder, [item(1), item(2), item(3)], annotations={"B000000001": [ANNOTATION]})


def _imports(folder: Path) -> bool:
    with TemporaryDirectory() as home:
        store = import_catalogue(folder, Path(home) / "out")
        return [store.product(row).row for row in range(len(store))] == list(range(len(store)))


def _write_store(folder: Path) -> None:
    _write_catalogue(folder / "files")
    import_catalogue(folder / "files", folder / "store")
    shutil.rmtree(folder / "files")


def _reads_store(folder: Path) -> bool:
    store = open_store(folder / "store")
    for row in range(len(store)):
        product = store.product(row)
        if not (product.row == row and isinstance(document_of(product), str)):
            return False
        store.instruction(row), store.annotations(row), store.row_of(product.asin)
        store.rows_with("query", product.query), store.rows_with("category", product.category)
    return True


def _write_corpus(folder: Path) -> None:
    source = folder / "corpus.jsonl"
    source.write_text("".join(f"{json.dumps({'id': one.id, 'contents': contents_of(one)})}\n" for one in PASSAGES))
    (folder / "corpus").mkdir()
    write_corpus(source, folder / "corpus", link=False)
    source.unlink()


def _reads_corpus(folder: Path) -> bool:
    corpus = open_corpus(folder / "corpus")
    # The digests leave nothing to be taken but another spelling of the manifest.
    rows = [corpus.number_of(passage.id) for passage in PASSAGES]
    return rows == [*range(len(corpus))] and [corpus.passage(row) for row in range(len(corpus))] == list(PASSAGES)


def _write_questions(folder: Path) -> None:
    for number, (name, record) in enumerate(SAMPLES):
        (folder / f"{number:02d}-{name}.jsonl").write_text(f"{json.dumps(record)}\n")


def _write_parquet(folder: Path) -> None:
    rows = [{**SEARCH_R1_ROW, "extra_info": {**SEARCH_R1_ROW["extra_info"], "index": number}} for number in range(3)]
    parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "rows.parquet")


def _reads_questions(folder: Path) -> bool:
    for path in folder.iterdir():
        passages = []
        # Not every format carries passages.
        with suppress(InvalidCorpus):
            passages = list(passages_of(path))
        # Whatever is read can be written into a file.
        json.dumps((passages, load_questions(path)), ensure_ascii=False).encode()
    return True


KINDS = {
    "level files": Kind(lambda folder: (folder / "levels.txt").write_bytes(LEVELS), _reads_levels, InvalidLevel),
    "maps": Kind(_write_map, _reads_map, InvalidLevel),
    "catalogues": Kind(_write_catalogue, _imports, InvalidCatalogue),
    "stores": Kind(_write_store, _reads_store, InvalidCatalogue),
    "corpora": Kind(_write_corpus, _reads_corpus, InvalidCorpus),
    "questions": Kind(_write_questions, _reads_questions, InvalidCorpus),
    "Parquet files": Kind(_write_parquet, _reads_questions, InvalidCorpus),
}


def campaign(count: int, seed: int, kind: Kind) -> Counts:
    """Return what comes of damages to files of a kind."""
    with TemporaryDirectory() as home:
        sound = Path(home) / "sound"
        sound.mkdir()
        kind.write(sound)
        return counted(_attacks(count, np.random.default_rng(seed), kind, sound))


def _attacks(count: int, rng: np.random.Generator, kind: Kind, sound: Path) -> Iterator[Outcome]:
    files = sorted(path.relative_to(sound) for path in sound.rglob("*") if path.is_file())
    for number in range(count):
        name = files[rng.integers(len(files))]
        # Under a new name each time, because what was opened is kept.
        copy = sound.with_name(f"copy-{number}")
        shutil.copytree(sound, copy)
        data = damaged((sound / name).read_bytes(), rng)
        (copy / name).write_bytes(data)
        yield attacked(f"{name}: {data[:2000]!r}", lambda copy=copy: kind.read(copy), kind.promised)
        shutil.rmtree(copy)


@pytest.mark.parametrize("name", KINDS)
def test_damaged_files_are_read_or_refused_with_the_error_of_their_kind(hold, name):
    counts = hold(name, lambda count, seed: campaign(count, seed, KINDS[name]), 20)
    assert counts.refused > 0


@pytest.mark.parametrize("name", KINDS)
def test_what_was_not_damaged_is_read(name, tmp_path):
    KINDS[name].write(tmp_path)
    assert KINDS[name].read(tmp_path)
