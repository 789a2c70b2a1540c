"""HeldOut: the held-out instances of a run and their bars, drawn and solved once per setting and kept on disk.

Everything that is kept can be computed again. It is, where the file is damaged or the environment now draws other
instances.
"""

import json
import shutil
import sys
from base64 import b85decode, b85encode
from contextlib import suppress
from dataclasses import asdict
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from tsr_gym.agents.episodes.env_pool import EnvPool
from tsr_gym.agents.episodes.play import Bars, bars, held_out
from tsr_gym.errors import TsrGymError
from tsr_gym.files import cache_home, first_use
from tsr_gym.snapshots import Snapshot
from tsr_gym.stack import snapshot
from tsr_gym.version import __version__

FILE = "held_out.json"


class HeldOut:
    """The first held-out instances of a setting, with their bars.

    Args:
        pool: Environments of the held-out split.
        number: How many instances.
    """

    def __init__(self, pool: EnvPool, number: int) -> None:
        self.pool = pool
        self.tasks = held_out(number)

    @property
    def bars(self) -> Bars:
        """Random and optimal success on the instances; afterwards their starts are known and not drawn again."""
        return self._stored.bars

    @property
    def starts(self) -> list[Snapshot]:
        """The start of each instance; afterwards they are not drawn again."""
        return self._stored.starts

    @cached_property
    def _stored(self) -> "_Stored":
        folder = _folder(self.pool, self.tasks)
        if folder is not None and folder.exists():
            stored = _read(folder)
            # One instance is drawn anyway, because data files that the environment reads may have changed.
            if stored is not None and stored.starts[:1] == _drawn(self.pool, self.tasks[:1]):
                self.pool.keep(dict(zip(self.tasks, stored.starts, strict=True)))
                return stored
            shutil.rmtree(folder, ignore_errors=True)
        starts = _drawn(self.pool, self.tasks)
        self.pool.keep(dict(zip(self.tasks, starts, strict=True)))
        stored = _Stored(bars(self.pool, tasks=self.tasks), starts)
        # Without an oracle nothing shows whether the environment's data are still the same, so nothing is kept.
        if folder is not None and stored.bars.optimal is not None:
            _write(folder, stored)
        return stored


class _Stored(NamedTuple):
    bars: Bars
    starts: list[Snapshot]


def _drawn(pool: EnvPool, tasks: list[int]) -> list[Snapshot]:
    return [snapshot(env) for env in pool.set(tasks)]


def _folder(pool: EnvPool, tasks: list[int]) -> Path | None:
    """Return the folder for the instances of a pool; None where its settings cannot be written as JSON."""
    base: Any = pool.base
    # Everything that the instances and bars depend on: the version, the environment's code with its times of change,
    # its settings, and the seeds of the instances.
    made_of = [__version__, type(base).__qualname__, _code_of(type(base).__module__), pool.made_with, tasks]
    try:
        text = json.dumps(made_of, sort_keys=True)
    except TypeError:
        return None
    return cache_home() / "held-out" / blake2b(text.encode(), digest_size=16).hexdigest()


def _code_of(module: str) -> list[tuple[str, int, int]]:
    """Return the files of a module's package, with their sizes and times of change."""
    package = sys.modules.get(module.partition(".")[0])
    file = None if package is None else package.__file__
    if file is None:
        return []
    own = Path(file)
    files = sorted(own.parent.rglob("*.py")) if own.name == "__init__.py" else [own]
    stats = [(path, path.stat()) for path in files]
    return [(str(path), stat.st_size, stat.st_mtime_ns) for path, stat in stats]


def _read(folder: Path) -> _Stored | None:
    """Return the content of a folder; None where it is damaged."""
    try:
        # The digest finds files that were cut short or edited; JSON alone would accept some of them.
        digest, text = (folder / FILE).read_text().split("\n")
        if digest != _digest(text):
            raise ValueError("the text does not match its digest")
        kept = json.loads(text)
        return _Stored(Bars(**kept["bars"]), [Snapshot.from_bytes(b85decode(start)) for start in kept["starts"]])
    except (OSError, ValueError, TypeError, LookupError, TsrGymError):
        return None


def _write(folder: Path, stored: _Stored) -> None:
    starts = [b85encode(start.to_bytes()).decode() for start in stored.starts]
    text = json.dumps({"bars": asdict(stored.bars), "starts": starts})
    # If the disk is full or not writable, the next run computes this again.
    with suppress(OSError, TsrGymError):
        first_use(folder, FILE, lambda new: _write_into(new / FILE, f"{_digest(text)}\n{text}"))


def _write_into(file: Path, text: str) -> None:
    file.write_text(text)


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()
