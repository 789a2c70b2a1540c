"""Site: the runs and trees at some paths, by names that stay the same, and the JSON at each address of the viewer.

Files are read again when they have changed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple

from tsr_gym.agents.config import RUN_FILE
from tsr_gym.agents.reports.view.describe_tree import (
    ADVICE,
    Draw,
    describe_node,
    describe_tree,
    find_drawing,
    find_reading,
    summarise_tree,
)
from tsr_gym.agents.reports.view.read_files import Spell, find_spelling, read_run, read_tree
from tsr_gym.errors import ConfigError, InvalidTree, TsrGymError
from tsr_gym.files import ZIPPED
from tsr_gym.optional import importing_only
from tsr_gym.tree import ENDINGS, Tree, files_in


class TreeFile(NamedTuple):
    """A file of a tree.

    Attributes:
        path: The file.
        home: The folder that links must not leave; None for a file that the user named.
        run: Folder of the run that grew the tree; None where none is known.
    """

    path: Path
    home: Path | None = None
    run: Path | None = None


@dataclass(frozen=True, slots=True)
class Sources:
    """Runs and trees by name.

    Attributes:
        runs: Folders of runs by name.
        trees: Trees by name; the name of a tree in a folder begins with the name of the run or the folder and a slash.
    """

    runs: Mapping[str, Path]
    trees: Mapping[str, TreeFile]


def find_sources(paths: Sequence[Path]) -> Sources:
    """Return the runs and trees at some paths, in their order.

    Args:
        paths: Folders of runs, folders that hold runs or trees, or files of trees.

    Raises:
        ConfigError: There is no path, or a path holds neither a run nor a tree.
    """
    if not paths:
        raise ConfigError("wanted the folder of a run or a file of a tree, got none")
    runs: dict[str, Path] = {}
    trees: dict[str, TreeFile] = {}
    taken: set[str] = set()
    for path in paths:
        if path.is_file():
            # A damaged tree is shown as one; a file of another kind was named by mistake.
            if not path.name.endswith(ENDINGS):
                _check_tree(path)
            trees[_unused(_bare(path).name, taken)] = TreeFile(path)
            continue
        if not path.is_dir():
            raise ConfigError(f"{path}: wanted the folder of a run or a file of a tree, found nothing")
        folders = _runs_in(path)
        for folder in folders:
            name = _unused(folder.resolve().name, taken)
            runs[name] = folder
            trees |= _trees_in(name, folder / "trees", taken, folder)
        own_trees = {} if folders else _trees_in(_unused(path.resolve().name, taken), path, taken)
        if not folders and not own_trees:
            raise ConfigError(f"{path}: found neither a run nor trees; a run saves trees at checkpoints (--save-trees)")
        trees |= own_trees
    return Sources(runs, trees)


def _check_tree(path: Path) -> None:
    try:
        Tree.load(path)
    except InvalidTree as error:
        raise ConfigError(f"{path}: wanted the folder of a run or a file of a tree ({error})") from error


def _runs_in(folder: Path) -> list[Path]:
    """Return the folder itself where it is a run, else the runs in it."""
    if (folder / RUN_FILE).is_file() or (folder / "metrics.jsonl").is_file():
        return [folder]
    return sorted(file.parent for file in folder.rglob("metrics.jsonl"))


def _trees_in(name: str, folder: Path, taken: set[str], run: Path | None = None) -> dict[str, TreeFile]:
    # A tree may lie next to its compressed form.
    return {
        _unused(f"{name}/{_bare(file.relative_to(folder)).as_posix()}", taken): TreeFile(file, run or folder, run)
        for file in files_in(folder)
    }


def _bare(file: Path) -> Path:
    """Return the path of a file without the endings of its name."""
    return file.with_name(file.name.removesuffix(ZIPPED)).with_suffix("")


def _unused(name: str, taken: set[str]) -> str:
    """Return the name, with a number after it where it is taken, and take it."""
    number, unused = 1, name
    while unused in taken:
        number += 1
        unused = f"{name}-{number}"
    taken.add(unused)
    return unused


# Number of trees whose outcomes one request returns.
CHUNK = 50


class _Stamp(NamedTuple):
    """A version of a file; a rewritten file has another stamp, so caches by stamp are never stale."""

    file: TreeFile
    size: int
    changed: int


class Site:
    """The data of some runs and trees, by address.

    Addresses are ``overview``, ``summaries/NUMBER``, ``tree/NAME`` and ``node/INDEX/NAME``. Names are looked up in the
    result of `find_sources`: no address becomes a path.

    Args:
        paths: Folders of runs, folders that hold runs or trees, or files of trees.
        modules: Names of modules that files may name; no other module of a file is imported.

    Raises:
        ConfigError: The paths hold neither runs nor trees.
    """

    def __init__(self, paths: Sequence[Path], modules: Sequence[str] = ()) -> None:
        self._paths = tuple(paths)
        self._modules = tuple(modules)
        self.sources: Sources = find_sources(paths)
        # One environment draws all pictures of a tree, so requests are answered one after the other.
        self._lock = RLock()
        self._seen = lru_cache(maxsize=16)(lambda stamp: read_tree(stamp.file.path, stamp.file.home))
        self._summary = lru_cache(maxsize=100_000)(lambda stamp: _summary(stamp.file))
        self._drawing: Callable[[_Stamp], Draw | None] = lru_cache(maxsize=16)(
            lambda stamp: find_drawing(self._seen(stamp), stamp.file.run)
        )
        self._reading = lru_cache(maxsize=16)(lambda stamp: find_reading(self._seen(stamp)))
        self._spelling: Callable[[Path], Spell | None] = lru_cache(maxsize=16)(find_spelling)

    def data(self, address: str) -> dict[str, Any]:
        """Return the data at an address, in JSON's types.

        Raises:
            LookupError: The address does not exist.
            TsrGymError: The file of the tree cannot be read at all.
            OSError: A file cannot be read.
        """
        page, _, rest = address.partition("/")
        with self._lock, importing_only(self._modules, ADVICE):
            if page == "overview" and not rest:
                return self._overview()
            if page == "summaries" and _is_number(rest):
                return self._summaries(int(rest))
            if page == "tree":
                return describe_tree(self._seen(self._stamp(rest)))
            index, _, name = rest.partition("/")
            if page == "node" and _is_number(index):
                return self._node(int(index), name)
        raise LookupError(f"there is nothing at {address[:200]!r}")

    def _overview(self) -> dict[str, Any]:
        # A run in progress has new trees.
        self.sources = find_sources(self._paths)
        runs = [{"name": name, **read_run(folder)} for name, folder in self.sources.runs.items()]
        return {"runs": runs, "trees": list(self.sources.trees), "chunk": CHUNK}

    def _summaries(self, chunk: int) -> dict[str, Any]:
        names = list(self.sources.trees)[chunk * CHUNK : (chunk + 1) * CHUNK]
        return {name: self._summary(self._stamp(name)) for name in names}

    def _node(self, index: int, name: str) -> dict[str, Any]:
        stamp = self._stamp(name)
        seen, run = self._seen(stamp), stamp.file.run
        seen.tree.node(index)
        snapshot, spell = seen.snapshots[index], None if run is None else self._spelling(run)
        draw, read = self._drawing(stamp), self._reading(stamp)
        picture = draw(snapshot) if draw is not None and snapshot is not None else None
        # A picture replaces the text for people.
        reading = read(snapshot) if read is not None and snapshot is not None and picture is None else None
        return describe_node(seen, index, spell=spell, picture=picture, reading=reading)

    def _stamp(self, name: str) -> _Stamp:
        file = self.sources.trees[name]
        # A broken link has a stamp, too; reading it raises the error.
        stat = file.path.stat() if file.path.exists() else file.path.lstat()
        return _Stamp(file, stat.st_size, stat.st_mtime_ns)


def _is_number(text: str) -> bool:
    """Return whether a part of an address is a number; Python refuses to read thousands of digits."""
    return text.isdecimal() and len(text) < 10


def _summary(file: TreeFile) -> dict[str, Any]:
    try:
        return summarise_tree(file.path, file.home)
    except (TsrGymError, OSError) as error:
        return {"nodes": 0, "outcome": "damaged", "ends": {}, "best": None, "whole": False, "error": str(error)}
