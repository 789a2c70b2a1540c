"""Site: what the viewer answers to each address, as JSON; files are read again whenever they have changed."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple

from tsr_gym.agents.reports.view.describe_tree import describe_node, describe_tree, summarise_tree
from tsr_gym.agents.reports.view.pictures import Draw, find_drawing
from tsr_gym.agents.reports.view.read_run import read_run
from tsr_gym.agents.reports.view.read_tree import read_tree
from tsr_gym.agents.reports.view.readings import find_reading
from tsr_gym.agents.reports.view.sources import Sources, find_sources
from tsr_gym.agents.reports.view.spelling import Spell, find_spelling
from tsr_gym.errors import TsrGymError

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
