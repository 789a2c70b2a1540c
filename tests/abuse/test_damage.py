"""Damaged files, snapshots and runs, and killed runs: refused with the promised error, or read correctly."""

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
from tests.agents.short_runs import UPDATES, files_of, result, train_and_kill, train_flags
from tests.tsr_gym_envs.lucene_bm25.oracles import corpus, damages, outcomes
from tests.tsr_gym_envs.retrieval_qa.test_question_formats import SAMPLES, SEARCH_R1_ROW
from tests.tsr_gym_envs.webshop.shops import ANNOTATION, item, write_files
from tsr_gym import (
    CheckpointError,
    ConfigError,
    InvalidCatalogue,
    InvalidCorpus,
    InvalidLevel,
    InvalidTree,
    Snapshot,
    SnapshotError,
    Tree,
    restore,
    snapshot,
)
from tsr_gym.agents.config import TrainConfig
from tsr_gym.agents.reports.methods import load_run
from tsr_gym.agents.reports.view.describe_tree import summarise_tree
from tsr_gym.agents.reports.view.read_files import read_tree
from tsr_gym.agents.runs.progress import checkpoints
from tsr_gym.agents.runs.trainer import resume_run
from tsr_gym.codec import outline
from tsr_gym.testing.recording import Actions
from tsr_gym.wrappers import AnswerFormat, TreeSearchWrapper
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


class FileType(NamedTuple):
    """A type of file.

    Attributes:
        write: Writes files into an empty folder.
        read: Reads the folder and returns whether the content is consistent.
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
    source.write_text(
        "".join(f"{json.dumps({'id': passage.id, 'contents': contents_of(passage)})}\n" for passage in PASSAGES)
    )
    (folder / "corpus").mkdir()
    write_corpus(source, folder / "corpus", link=False)
    source.unlink()


def _reads_corpus(folder: Path) -> bool:
    corpus = open_corpus(folder / "corpus")
    # With digests, only another spelling of the manifest can be accepted.
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
        # Not every format has passages.
        with suppress(InvalidCorpus):
            passages = list(passages_of(path))
        # Everything that was read can be written as JSON.
        json.dumps((passages, load_questions(path)), ensure_ascii=False).encode()
    return True


def _write_trees(folder: Path) -> None:
    env = TreeSearchWrapper(AnswerFormat(gym.make("tsr/Sokoban-v0")))
    env.reset(seed=1)
    for action in ("Up", "Left", "Down"):
        env.step(f"<think></think><answer>{action}</answer>")
    for name in ("plain.jsonl", "compressed.jsonl.gz"):
        env.tree.save(folder / name)


def _reads_trees(folder: Path) -> bool:
    for path in sorted(folder.iterdir()):
        # The viewer shows what can be read of a file that a load refuses.
        with suppress(InvalidTree):
            assert read_tree(path).tree.nodes
            summarise_tree(path)
        if not _is_read_alike(path):
            return False
    return True


FILE_TYPES = {
    "level files": FileType(lambda folder: (folder / "levels.txt").write_bytes(LEVELS), _reads_levels, InvalidLevel),
    "maps": FileType(_write_map, _reads_map, InvalidLevel),
    "catalogues": FileType(_write_catalogue, _imports, InvalidCatalogue),
    "stores": FileType(_write_store, _reads_store, InvalidCatalogue),
    "corpora": FileType(_write_corpus, _reads_corpus, InvalidCorpus),
    "questions": FileType(_write_questions, _reads_questions, InvalidCorpus),
    "trees": FileType(_write_trees, _reads_trees, InvalidTree),
    "Parquet files": FileType(_write_parquet, _reads_questions, InvalidCorpus),
}


def input_campaign(count: int, seed: int, file_type: FileType) -> Counts:
    """Return the outcomes of damage to files of a type."""
    with TemporaryDirectory() as home:
        sound = Path(home) / "sound"
        sound.mkdir()
        file_type.write(sound)
        return counted(_input_attacks(count, np.random.default_rng(seed), file_type, sound))


def _input_attacks(count: int, rng: np.random.Generator, file_type: FileType, sound: Path) -> Iterator[Outcome]:
    files = sorted(path.relative_to(sound) for path in sound.rglob("*") if path.is_file())
    for number in range(count):
        name = files[rng.integers(len(files))]
        # Under a new name each time, because opened files are cached.
        copy = sound.with_name(f"copy-{number}")
        shutil.copytree(sound, copy)
        data = damaged((sound / name).read_bytes(), rng)
        (copy / name).write_bytes(data)
        yield attacked(f"{name}: {data[:2000]!r}", lambda copy=copy: file_type.read(copy), file_type.promised)
        shutil.rmtree(copy)


@pytest.mark.parametrize("name", FILE_TYPES)
def test_damaged_files_are_read_or_refused_with_the_error_of_their_kind(hold, name):
    counts = hold(name, lambda count, seed: input_campaign(count, seed, FILE_TYPES[name]), 20)
    assert counts.refused > 0


@pytest.mark.parametrize("name", FILE_TYPES)
def test_what_was_not_damaged_is_read(name, tmp_path):
    FILE_TYPES[name].write(tmp_path)
    assert FILE_TYPES[name].read(tmp_path)


# The outcome of each result of reading. With unchanged size and time, hits of any kind are right.
NOTICED = {"refused": "refused", "no change": "right", "same hits": "wrong", "other hits": "wrong"}
UNSEEN = {"refused": "refused", "no change": "right", "same hits": "right", "other hits": "right"}


def index_campaign(count: int, seed: int, folder: Path, *, keep_time: bool) -> Counts:
    """Return the outcomes of damage to copies of an index.

    Args:
        count: Number of damages.
        seed: Seed of their choice.
        folder: The undamaged index.
        keep_time: Keep size and time of the files, so that only reading them completely shows the damage.
    """
    return counted(_index_attacks(count, np.random.default_rng(seed), folder, keep_time))


def _index_attacks(count: int, rng: np.random.Generator, folder: Path, keep_time: bool) -> Iterator[Outcome]:
    all_damages = damages(folder, 6 + count // 10)
    todo = [all_damages[place] for place in rng.permutation(len(all_damages))[:count]]
    meant = UNSEEN if keep_time else NOTICED
    for damage, came in zip(todo, outcomes(folder, todo, keep_time=keep_time), strict=True):
        yield Outcome(meant.get(came, "crashed"), f"{damage}: {came}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    home = tmp_path_factory.mktemp("damage") / "index"
    BM25Index.build(corpus(), home)
    return home


def test_a_file_with_any_damage_is_refused(hold, folder):
    counts = hold("indexes", lambda count, seed: index_campaign(count, seed, folder, keep_time=False), 150)
    assert counts.refused > counts.right


def test_unnoticed_damage_ends_in_hits_or_a_refusal_and_never_in_a_crash(hold, folder):
    hold("indexes, unseen", lambda count, seed: index_campaign(count, seed, folder, keep_time=True), 150)


NAMES = ("tsr/Sokoban-v0", "tsr/FrozenLake-v0", "tsr/WebShop-v0", "tsr/RetrievalQA-v0", "CartPole-v1")
HEAD = len(sealed(b""))
OTHERS = (None, True, -1, 2**70, 1e300, float("nan"), "", "\ud800", b"x", (), ((), ()), [], {}, np.zeros(2), np.int8(3))


def snapshot_campaign(count: int, seed: int) -> Counts:
    """Return the outcomes of forged snapshots; the environments take turns."""
    return counted(_snapshot_attacks(count, np.random.default_rng(seed)))


def _snapshot_attacks(count: int, rng: np.random.Generator) -> Iterator[Outcome]:
    for number in range(count):
        name = NAMES[number % len(NAMES)]
        # Made again each time, because an environment with a forged state may not be playable.
        env = gym.make(name)
        yield _attacked_snapshot(name, env, _played(env, rng), _played(env, rng), rng)


def _played(env: gym.Env[Any, Any], rng: np.random.Generator) -> Snapshot:
    """Return a snapshot from the middle of an episode, which is then the environment's state."""
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
    change = ("value", "bytes", "payload", "payload")[rng.integers(4)]
    if change == "value":
        places = list(_places(theirs.layers))
        place, other = places[rng.integers(len(places))], OTHERS[rng.integers(len(OTHERS))]
        data = forged(_replaced(theirs.layers, place, other)).to_bytes()
        what = f"{name}: {other!r} at {place} of the layers"
    else:
        whole = theirs.to_bytes()
        data = damaged(whole, rng) if change == "bytes" else sealed(damaged(whole[HEAD:], rng))
        what = f"{name}: {change} {data.hex()[:4000]}"

    def take() -> bool:
        snap = Snapshot.from_bytes(data)
        restore(env, snap)
        return change != "bytes" and _content_of(snapshot(env)) == _content_of(snap)

    return attacked(what, take, SnapshotError, lambda: snapshot(env) == ours)


def _content_of(snap: Snapshot) -> str:
    """Return the content of a snapshot, independent of padded numbers and the order of dictionaries in the bytes."""

    def ordered(value: Any) -> Any:
        if isinstance(value, list) and all(isinstance(part, tuple) and len(part) == 2 for part in value):
            value = sorted(value, key=repr)
        if isinstance(value, float):
            # A setting of -0.0 is equal to the environment's own 0.0, which it keeps.
            return value + 0.0
        return [type(value).__name__, *map(ordered, value)] if isinstance(value, list | tuple) else value

    return repr(ordered(outline(snap.to_bytes()[HEAD:])))


def _places(value: Any, path: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Yield the paths to all parts of nested tuples."""
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


LOGS = ("metrics.jsonl", "evaluations.jsonl")


def damage_campaign(count: int, seed: int, run: Path) -> Counts:
    """Return the outcomes of damage to the files of a run; the files are restored afterwards."""
    return counted(_damages(count, np.random.default_rng(seed), run))


def _damages(count: int, rng: np.random.Generator, run: Path) -> Iterator[Outcome]:
    sound = files_of(run)
    latest = str(checkpoints(run)[-1].relative_to(run))
    kinds = (["run.toml"], LOGS, [name for name in sound if name.startswith("trees/")])
    kinds += ([name for name in sound if name.startswith(latest)],)
    for number in range(count):
        names = kinds[number % len(kinds)]
        name = names[rng.integers(len(names))]
        (run / name).write_bytes(damaged(sound[name], rng))
        yield _attacked(run, name, sound)
        for other, data in sound.items():
            (run / other).parent.mkdir(parents=True, exist_ok=True)
            (run / other).write_bytes(data)


def _attacked(run: Path, name: str, sound: dict[str, bytes]) -> Outcome:
    before = files_of(run)
    data = before[name]
    what = f"{name}, first changed at {_first_change(sound[name], data)}, of {len(data)} bytes"

    def unchanged() -> bool:
        return files_of(run) == before

    if name.startswith("trees/"):
        return attacked(what, lambda: _is_read_alike(run / name), InvalidTree, unchanged)
    refusals = (CheckpointError, ConfigError)
    reported = attacked(what, lambda: _is_reported(run) and unchanged(), refusals, unchanged)
    if name == "evaluations.jsonl" or reported.count in ("wrong", "crashed"):
        return reported
    # A resumed run may drop log lines that it will write again, and a torn last line.
    return attacked(what, lambda: _resumes(run, name, before), refusals, unchanged)


def _first_change(left: bytes, right: bytes) -> int:
    return next((place for place, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1]), len(right))


def _is_read_alike(path: Path) -> bool:
    tree = Tree.load(path)
    twin = path.with_suffix(".again")
    tree.save(twin)
    same = Tree.load(twin).nodes == tree.nodes
    twin.unlink()
    return same


def _is_reported(run: Path) -> bool:
    text = load_run(run).config.to_toml()
    return TrainConfig.from_toml(text).to_toml() == text


def _resumes(run: Path, name: str, before: dict[str, bytes]) -> bool:
    trainer = resume_run(run)
    after = files_of(run)
    if before.keys() != after.keys() or any(before[file] != after[file] for file in before if file not in LOGS):
        return False
    # Digests guard the files of a checkpoint. The list of digests is guarded only against malformed JSON.
    return trainer.progress.update == 5 and (not name.startswith("checkpoints/") or name.endswith("manifest.json"))


@pytest.fixture(scope="module")
def run(undisturbed, tmp_path_factory):
    """A separate copy of a run for the campaign."""
    return Path(shutil.copytree(undisturbed, tmp_path_factory.mktemp("damaged") / "run"))


def test_damaged_files_of_a_run_are_refused_and_stay(hold, run):
    before = files_of(run)
    counts = hold("files of a run", lambda count, seed: damage_campaign(count, seed, run), 40)
    assert counts.refused > 0
    assert files_of(run) == before


def kill_campaign(count: int, seed: int, whole: dict[str, Any], base_model: Path) -> Counts:
    """Return the outcomes of killing runs at random times, at most three times each.

    Args:
        count: Number of kills.
        seed: Seed of the times, which also depend on the load of the machine.
        whole: The result of an undisturbed run.
        base_model: The initial model.
    """
    return counted(_kills(count, np.random.default_rng(seed), whole, base_model))


def _kills(count: int, rng: np.random.Generator, whole: dict[str, Any], base_model: Path) -> Iterator[Outcome]:
    left = count
    while left > 0:
        with TemporaryDirectory() as home:
            run = Path(home) / "run"
            moments = [(int(rng.integers(UPDATES - 2)), rng.uniform(0, 0.2)) for _ in range(min(left, 3))]
            killed = 0
            for moment in moments:
                args = train_flags(run, base_model) if not run.exists() else ["train", "--resume", run]
                killed += train_and_kill(args, run, *moment)
            # A run that ended before its kill does not count.
            left -= killed
            ended = attacked(f"killed at {moments}", lambda run=run: _finishes(run, whole), ())
            yield from [ended] * killed


def _finishes(run: Path, whole: dict[str, Any]) -> bool:
    return resume_run(run).run() and result(run) == whole


@pytest.fixture(scope="module")
def whole(undisturbed):
    return result(undisturbed)


def test_a_run_that_is_killed_at_any_time_ends_with_the_same_result(hold, whole, base_model):
    counts = hold("kills of a run", lambda count, seed: kill_campaign(count, seed, whole, base_model), 2)
    # A kill cannot be refused.
    assert (counts.refused, counts.right) == (0, counts.tried)
