"""HeldOut: the held-out instances of a run and their bars, drawn and solved once per setting and kept on disk.

Whatever is kept can be computed again, and is where it is damaged or not what the environment draws now.
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
        """What any result is to be held against; from now on the instances are drawn no more."""
        return self._known.bars

    @property
    def starts(self) -> list[Snapshot]:
        """Where each instance begins; from now on they are drawn no more."""
        return self._known.starts

    @cached_property
    def _known(self) -> "_Known":
        folder = _folder(self.pool, self.tasks)
        if folder is not None and folder.exists():
            known = _read(folder)
            # One instance is drawn anyway: data that an environment reads may be other data now.
            if known is not None and known.starts[:1] == _drawn(self.pool, self.tasks[:1]):
                self.pool.keep(dict(zip(self.tasks, known.starts, strict=True)))
                return known
            shutil.rmtree(folder, ignore_errors=True)
        starts = _drawn(self.pool, self.tasks)
        self.pool.keep(dict(zip(self.tasks, starts, strict=True)))
        found = _Known(bars(self.pool, tasks=self.tasks), starts)
        # Of an environment without an oracle nothing is known that would tell whether its data are those of then.
        if folder is not None and found.bars.optimal is not None:
            _write(folder, found)
        return found


class _Known(NamedTuple):
    bars: Bars
    starts: list[Snapshot]


def _drawn(pool: EnvPool, tasks: list[int]) -> list[Snapshot]:
    return [snapshot(env) for env in pool.set(tasks)]


def _folder(pool: EnvPool, tasks: list[int]) -> Path | None:
    """Return where the instances of a pool are kept; None where its settings have no text that tells them."""
    base: Any = pool.base
    made_of = [__version__, type(base).__qualname__, _code_of(type(base).__module__), pool.made_with, tasks]
    try:
        text = json.dumps(made_of, sort_keys=True)
    except TypeError:
        return None
    return cache_home() / "held-out" / blake2b(text.encode(), digest_size=16).hexdigest()


def _code_of(module: str) -> list[tuple[str, int, int]]:
    """Return which files the package of a module has, with their sizes and times of change."""
    package = sys.modules.get(module.partition(".")[0])
    file = None if package is None else package.__file__
    if file is None:
        return []
    own = Path(file)
    files = sorted(own.parent.rglob("*.py")) if own.name == "__init__.py" else [own]
    stats = [(path, path.stat()) for path in files]
    return [(str(path), stat.st_size, stat.st_mtime_ns) for path, stat in stats]


def _read(folder: Path) -> _Known | None:
    """Return what is kept in a folder; None where it is damaged."""
    try:
        digest, text = (folder / FILE).read_text().split("\n")
        if digest != _digest(text):
            raise ValueError("the text does not match its digest")
        kept = json.loads(text)
        return _Known(Bars(**kept["bars"]), [Snapshot.from_bytes(b85decode(start)) for start in kept["starts"]])
    except (OSError, ValueError, TypeError, LookupError, TsrGymError):
        return None


def _write(folder: Path, known: _Known) -> None:
    starts = [b85encode(start.to_bytes()).decode() for start in known.starts]
    text = json.dumps({"bars": asdict(known.bars), "starts": starts})
    # A disk that is full or not writable costs the next run a little time, and this one nothing.
    with suppress(OSError, TsrGymError):
        first_use(folder, FILE, lambda new: _write_into(new / FILE, f"{_digest(text)}\n{text}"))


def _write_into(file: Path, text: str) -> None:
    file.write_text(text)


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()
