"""Damaged files and snapshots are read or refused with the promised error, and never crash."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from tests.abuse.attacks import Counts, Outcome, attacked, counted, damaged, forged, sealed
from tests.tsr_gym_envs.lucene_bm25.oracles import corpus, damages, outcomes
from tests.tsr_gym_envs.retrieval_qa.test_question_formats import SAMPLES, SEARCH_R1_ROW
from tests.tsr_gym_envs.webshop.small_files import ANNOTATION, item, write_files
from tsr_gym import InvalidCatalogue, InvalidCorpus, InvalidLevel, Snapshot, SnapshotError, restore, snapshot
from tsr_gym.codec import outline
from tsr_gym.testing.recording import Actions
from tsr_gym_envs.frozen_lake.rules import check_map
from tsr_gym_envs.lucene_bm25 import BM25Index
from tsr_gym_envs.retrieval_qa.contract import Passage
from tsr_gym_envs.retrieval_qa.corpus import contents_of, open_corpus, write_corpus
from tsr_gym_envs.retrieval_qa.questions import load_questions, passages_of
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


def input_campaign(count: int, seed: int, kind: Kind) -> Counts:
    """Return what comes of damages to files of a kind."""
    with TemporaryDirectory() as home:
        sound = Path(home) / "sound"
        sound.mkdir()
        kind.write(sound)
        return counted(_input_attacks(count, np.random.default_rng(seed), kind, sound))


def _input_attacks(count: int, rng: np.random.Generator, kind: Kind, sound: Path) -> Iterator[Outcome]:
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
    counts = hold(name, lambda count, seed: input_campaign(count, seed, KINDS[name]), 20)
    assert counts.refused > 0


@pytest.mark.parametrize("name", KINDS)
def test_what_was_not_damaged_is_read(name, tmp_path):
    KINDS[name].write(tmp_path)
    assert KINDS[name].read(tmp_path)


# What reading may end in, by what was found; without a word of change hits of any kind are right.
NOTICED = {"refused": "refused", "no change": "right", "same hits": "wrong", "other hits": "wrong"}
UNSEEN = {"refused": "refused", "no change": "right", "same hits": "right", "other hits": "right"}


def index_campaign(count: int, seed: int, folder: Path, *, keep_time: bool) -> Counts:
    """Return what comes of damages to copies of an index.

    Args:
        count: How many.
        seed: Of the choice.
        folder: The sound index.
        keep_time: Whether the files keep their size and time, so that nobody can notice without reading them whole.
    """
    return counted(_index_attacks(count, np.random.default_rng(seed), folder, keep_time))


def _index_attacks(count: int, rng: np.random.Generator, folder: Path, keep_time: bool) -> Iterator[Outcome]:
    known = damages(folder, 6 + count // 10)
    todo = [known[place] for place in rng.permutation(len(known))[:count]]
    meant = UNSEEN if keep_time else NOTICED
    for damage, came in zip(todo, outcomes(folder, todo, keep_time=keep_time), strict=True):
        yield Outcome(meant.get(came, "crashed"), f"{damage}: {came}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    home = tmp_path_factory.mktemp("damage") / "index"
    BM25Index.build(corpus(), home)
    return home


def test_a_damaged_file_is_refused_whatever_is_damaged(hold, folder):
    counts = hold("indexes", lambda count, seed: index_campaign(count, seed, folder, keep_time=False), 150)
    assert counts.refused > counts.right


def test_damage_that_nobody_can_notice_ends_in_hits_or_a_refusal_and_never_in_a_crash(hold, folder):
    hold("indexes, unseen", lambda count, seed: index_campaign(count, seed, folder, keep_time=True), 150)


NAMES = ("tsr/Sokoban-v0", "tsr/FrozenLake-v0", "tsr/WebShop-v0", "tsr/RetrievalQA-v0", "CartPole-v1")
HEAD = len(sealed(b""))
OTHERS = (None, True, -1, 2**70, 1e300, float("nan"), "", "\ud800", b"x", (), ((), ()), [], {}, np.zeros(2), np.int8(3))


def snapshot_campaign(count: int, seed: int) -> Counts:
    """Return what comes of forged snapshots of every environment, so many in all."""
    return counted(_snapshot_attacks(count, np.random.default_rng(seed)))


def _snapshot_attacks(count: int, rng: np.random.Generator) -> Iterator[Outcome]:
    for number in range(count):
        name = NAMES[number % len(NAMES)]
        # Made anew, because an environment that took a forged state may not be playable.
        env = gym.make(name)
        yield _attacked_snapshot(name, env, _played(env, rng), _played(env, rng), rng)


def _played(env: gym.Env[Any, Any], rng: np.random.Generator) -> Snapshot:
    """Return a snapshot of the middle of an episode, in which the environment then stands."""
    actions = Actions(env, int(rng.integers(1000)))
    env.reset(seed=int(rng.integers(1000)))
    for _ in range(rng.integers(3)):
        before = snapshot(env)
        _, _, terminated, truncated, _ = env.step(actions.draw())
        if terminated or truncated:
            restore(env, before)
            break
    return snapshot(env)


def _attacked_snapshot(
    name: str, env: gym.Env[Any, Any], theirs: Snapshot, ours: Snapshot, rng: np.random.Generator
) -> Outcome:
    kind = ("value", "bytes", "payload", "payload")[rng.integers(4)]
    if kind == "value":
        places = list(_places(theirs.layers))
        place, other = places[rng.integers(len(places))], OTHERS[rng.integers(len(OTHERS))]
        data = forged(_replaced(theirs.layers, place, other)).to_bytes()
        what = f"{name}: {other!r} at {place} of the layers"
    else:
        whole = theirs.to_bytes()
        data = damaged(whole, rng) if kind == "bytes" else sealed(damaged(whole[HEAD:], rng))
        what = f"{name}: {kind} {data.hex()[:4000]}"

    def take() -> bool:
        snap = Snapshot.from_bytes(data)
        restore(env, snap)
        return kind != "bytes" and _said(snapshot(env)) == _said(snap)

    return attacked(what, take, SnapshotError, lambda: snapshot(env) == ours)


def _said(snap: Snapshot) -> str:
    """Return what a snapshot says, however its bytes spell it: they may pad a number and order a dictionary."""

    def ordered(value: Any) -> Any:
        if isinstance(value, list) and all(isinstance(part, tuple) and len(part) == 2 for part in value):
            value = sorted(value, key=repr)
        return [type(value).__name__, *map(ordered, value)] if isinstance(value, list | tuple) else value

    return repr(ordered(outline(snap.to_bytes()[HEAD:])))


def _places(value: Any, path: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Yield the paths to everything inside nested tuples."""
    for number, part in enumerate(value if isinstance(value, tuple) else ()):
        yield (*path, number)
        yield from _places(part, (*path, number))


def _replaced(value: Any, path: tuple[int, ...], other: Any) -> Any:
    if not path:
        return other
    parts = [_replaced(part, path[1:], other) if number == path[0] else part for number, part in enumerate(value)]
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)


def test_forged_snapshots_are_refused_or_what_their_bytes_say(hold):
    counts = hold("forged snapshots", snapshot_campaign, 100)
    assert counts.refused > 0 < counts.right
