"""Sources: the runs and the files of trees that some paths stand for, each by a name that stays the same."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple

from tsr_gym.agents.reports.view.describe_tree import describe_node, describe_tree, summarise_tree
from tsr_gym.agents.reports.view.read_files import Spell, find_spelling, read_run, read_tree
from tsr_gym.agents.reports.view.snapshot_views import Draw, find_drawing, find_reading
from tsr_gym.errors import ConfigError, TsrGymError


@dataclass(frozen=True, slots=True)
class Sources:
    """What there is to look at.

    Attributes:
        runs: Folders of runs by name.
        trees: Files of trees by name; the trees of a run bear the run's name before a slash.
    """

    runs: Mapping[str, Path]
    trees: Mapping[str, Path]


def find_sources(paths: Sequence[Path]) -> Sources:
    """Return the runs and trees that paths stand for, in their order.

    Args:
        paths: Folders of runs, folders that hold runs or trees, or files of trees.

    Raises:
        ConfigError: There is no path, or one leads to nothing.
    """
    if not paths:
        raise ConfigError("wanted the folder of a run or a file of a tree, got none")
    runs: dict[str, Path] = {}
    trees: dict[str, Path] = {}
    for path in paths:
        if path.is_file():
            trees[_unused(path.stem, trees)] = path
            continue
        if not path.is_dir():
            raise ConfigError(f"{path}: wanted the folder of a run or a file of a tree, found nothing")
        folders = _runs_in(path)
        for folder in folders:
            name = _unused(folder.resolve().name, runs)
            runs[name] = folder
            trees |= _trees_in(name, folder / "trees")
        found = {} if folders else _trees_in(_unused(path.resolve().name, runs), path)
        if not folders and not found:
            raise ConfigError(f"{path}: found neither a run nor trees; a run saves trees at checkpoints (--save-trees)")
        trees |= found
    return Sources(runs, trees)


def _runs_in(folder: Path) -> list[Path]:
    """Return the runs that a folder is or holds."""
    if (folder / "config.json").is_file() or (folder / "metrics.jsonl").is_file():
        return [folder]
    return sorted(file.parent for file in folder.rglob("metrics.jsonl"))


def _trees_in(name: str, folder: Path) -> dict[str, Path]:
    files = sorted(folder.rglob("*.jsonl"))
    return {f"{name}/{file.relative_to(folder).with_suffix('').as_posix()}": file for file in files}


def _unused(name: str, taken: Mapping[str, Path]) -> str:
    """Return a name, with a number behind it where it is taken."""
    number, wanted = 1, name
    while wanted in taken:
        number += 1
        wanted = f"{name}-{number}"
    return wanted


# Trees of which one request is told the outcomes.
CHUNK = 50


class _Stamp(NamedTuple):
    """A file as it is now; a file that was written anew has another stamp."""

    path: Path
    size: int
    changed: int


class Site:
    """What there is to see of some runs and trees, by address.

    Addresses are ``overview``, ``summaries/NUMBER``, ``tree/NAME`` and ``node/INDEX/NAME``. Names are looked up among
    those that `find_sources` found: no address becomes a path.

    Args:
        paths: Folders of runs, folders that hold runs or trees, or files of trees.

    Raises:
        ConfigError: There is nothing to see.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = tuple(paths)
        self.sources: Sources = find_sources(paths)
        # Environments draw one picture after the other.
        self._lock = RLock()
        self._seen = lru_cache(maxsize=16)(lambda stamp: read_tree(stamp.path))
        self._summary = lru_cache(maxsize=100_000)(lambda stamp: _summary(stamp.path))
        self._drawing: Callable[[_Stamp, Path | None], Draw | None] = lru_cache(maxsize=16)(
            lambda stamp, run: find_drawing(self._seen(stamp), run)
        )
        self._reading = lru_cache(maxsize=16)(lambda stamp: find_reading(self._seen(stamp)))
        self._spelling: Callable[[Path], Spell | None] = lru_cache(maxsize=16)(find_spelling)

    def data(self, address: str) -> dict[str, Any]:
        """Return what stands at an address, in JSON's own types.

        Raises:
            LookupError: There is nothing at the address.
            TsrGymError: The file of the tree is damaged from its beginning.
            OSError: A file cannot be read.
        """
        kind, _, rest = address.partition("/")
        with self._lock:
            if kind == "overview" and not rest:
                return self._overview()
            if kind == "summaries" and _is_number(rest):
                return self._summaries(int(rest))
            if kind == "tree":
                return describe_tree(self._seen(self._stamp(rest)))
            index, _, name = rest.partition("/")
            if kind == "node" and _is_number(index):
                return self._node(int(index), name)
        raise LookupError(f"there is nothing at {address[:200]!r}")

    def _overview(self) -> dict[str, Any]:
        # A run that goes on has new trees.
        self.sources = find_sources(self._paths)
        runs = [{"name": name, **read_run(folder)} for name, folder in self.sources.runs.items()]
        return {"runs": runs, "trees": list(self.sources.trees), "chunk": CHUNK}

    def _summaries(self, chunk: int) -> dict[str, Any]:
        names = list(self.sources.trees)[chunk * CHUNK : (chunk + 1) * CHUNK]
        return {name: self._summary(self._stamp(name)) for name in names}

    def _node(self, index: int, name: str) -> dict[str, Any]:
        stamp = self._stamp(name)
        seen, run = self._seen(stamp), self.sources.runs.get(name.partition("/")[0])
        seen.tree.node(index)
        snapshot, spell = seen.snapshots[index], None if run is None else self._spelling(run)
        draw, read = self._drawing(stamp, run), self._reading(stamp)
        picture = draw(snapshot) if draw is not None and snapshot is not None else None
        # What is drawn needs no words.
        reading = read(snapshot) if read is not None and snapshot is not None and picture is None else None
        return describe_node(seen, index, spell=spell, picture=picture, reading=reading)

    def _stamp(self, name: str) -> _Stamp:
        path = self.sources.trees[name]
        stat = path.stat()
        return _Stamp(path, stat.st_size, stat.st_mtime_ns)


def _is_number(text: str) -> bool:
    """Return whether a part of an address is a number; Python reads none of thousands of digits."""
    return text.isdecimal() and len(text) < 10


def _summary(path: Path) -> dict[str, Any]:
    try:
        return summarise_tree(path)
    except (TsrGymError, OSError) as error:
        return {"nodes": 0, "outcome": "damaged", "ends": {}, "best": None, "whole": False, "error": str(error)}
