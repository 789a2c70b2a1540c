"""Folders that are either absent or complete: built beside their place by one process, then moved into it."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path

from tsr_gym.errors import ConfigError
from tsr_gym_envs.cache_home import cache_home


def write_whole(out: Path, marker: str, write: Callable[[Path], None]) -> None:
    """Write a folder; what stood there before stays until the new one is complete.

    A run that was interrupted leaves only hidden files beside `out`; running it again starts anew and removes them.

    Args:
        out: The folder.
        marker: File by which a complete folder of this kind is known; a folder without it is never replaced.
        write: Fills the empty folder that it is given.

    Raises:
        ConfigError: Something else stands at `out`.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with _alone(out):
        _write(out, marker, write)


def cached(source: Path, kind: str, marker: str, write: Callable[[Path], None]) -> Path:
    """Return the folder that belongs to a file as it is now, written at first use.

    The key is the file's path, size and time of change. Of several processes that ask at once, one writes.

    Args:
        source: The file.
        kind: What is made of it; a folder below ``cache_home()/retrieval``.
        marker: File by which a complete folder is known.
        write: Fills the empty folder that it is given.
    """
    path, stat = source.resolve(), source.stat()
    key = blake2b(f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}".encode(), digest_size=8).hexdigest()
    folder = cache_home() / "retrieval" / kind / f"{path.stem}-{key}"
    if not (folder / marker).exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _alone(folder):
            if not (folder / marker).exists():
                _write(folder, marker, write)
    return folder


def _write(out: Path, marker: str, write: Callable[[Path], None]) -> None:
    partial, before = out.with_name(f".{out.name}.partial"), out.with_name(f".{out.name}.before")
    if before.exists() and not out.exists():
        # The run before this one ended between the two renames below.
        os.replace(before, out)
    if out.exists() and not (out / marker).exists():
        raise ConfigError(f"{out}: wanted a new folder, or one with {marker} to replace; choose another place")
    for leftover in (partial, before):
        if leftover.exists():
            shutil.rmtree(leftover)
    partial.mkdir()
    try:
        write(partial)
        if out.exists():
            os.replace(out, before)
        os.replace(partial, out)
    finally:
        for leftover in (partial, before):
            shutil.rmtree(leftover, ignore_errors=True)


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Keep other processes out; where the system has no such lock, the one that finishes last wins."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    with open(out.with_name(f".{out.name}.lock"), "a") as lock:
        # The system gives the lock back when the process ends, however it ends.
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
