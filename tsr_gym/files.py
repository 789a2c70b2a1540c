"""Files and folders that are complete or absent: they are built next to their place and then moved into it.

A process that is killed while it writes leaves the previous content in place.
"""

import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from hashlib import blake2b
from pathlib import Path
from uuid import uuid4

from tsr_gym.errors import CheckpointError, ConfigError, TsrGymError


def cache_home() -> Path:
    """Return the folder of everything that tsr-gym builds and can build again.

    ``TSR_GYM_CACHE`` where it is set, else ``tsr-gym`` below the user's cache folder.
    """
    chosen = os.environ.get("TSR_GYM_CACHE")
    return Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tsr-gym"


MANIFEST = "manifest.json"
_WAIT_SECONDS = 24 * 3600
Write = Callable[[Path], None]
Step = Callable[[], None]


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that it is either the old one or the whole new one, whatever happens in between."""
    partial = path.with_name(path.name + ".partial")
    with open(partial, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def sync(path: Path) -> None:
    """Wait until the disk holds a file's bytes, or a folder's names."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _alone(step: Step) -> None:
    step()


def write_folder(
    path: Path, write: Write, *, first: Callable[[Step], object] = _alone, each: Callable[[Step], object] = _alone
) -> None:
    """Write a folder with a manifest so that it is either absent or complete.

    Several processes that see the same disk may write one together: each calls this, and `first` and `each` are where
    they meet. A step that fails has to fail in all of them.

    Args:
        path: The folder.
        write: Fills the empty folder that it is given; of several processes each writes files of its own.
        first: Takes a step in one of the processes.
        each: Takes a step in every process.

    Raises:
        CheckpointError: The disk is full or not writable; what was there before is untouched.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        first(_told(path, lambda: _begin(partial)))
        each(_told(path, lambda: write(partial)))
        first(_told(path, lambda: _end(partial, path)))
    except CheckpointError:
        first(lambda: shutil.rmtree(partial, ignore_errors=True))
        raise


def _told(path: Path, step: Step) -> Step:
    """Return a step of writing a folder whose failure is a CheckpointError."""

    def taken() -> None:
        try:
            step()
        except Exception as error:  # Each file format has an error of its own for a full disk.
            raise CheckpointError(
                f"{path} could not be written ({error}); earlier checkpoints are untouched: make room and resume"
            ) from error

    return taken


def _begin(partial: Path) -> None:
    if partial.exists():
        shutil.rmtree(partial)
    partial.mkdir(parents=True)


def _end(partial: Path, path: Path) -> None:
    files = sorted(file for file in partial.rglob("*") if file.is_file() and file != partial / MANIFEST)
    manifest = {str(file.relative_to(partial)): _digest(file) for file in files}
    (partial / MANIFEST).write_text(json.dumps(manifest, indent=1))
    for file in [*files, partial / MANIFEST]:
        sync(file)
    os.replace(partial, path)
    sync(path.parent)


def check_folder(path: Path) -> None:
    """Raise CheckpointError where a folder is not as `write_folder` left it."""
    try:
        digests = json.loads((path / MANIFEST).read_text()).items()
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path}: no complete checkpoint ({error}): resume from another one") from error
    for name, digest in digests:
        file = path / name
        if not _is_as_written(file, digest):
            raise CheckpointError(f"{file}: missing or damaged: delete {path.name} and resume from the one before")


def _is_as_written(file: Path, digest: object) -> bool:
    try:
        return file.is_file() and _digest(file) == digest
    # A list of files may hold names that no system takes.
    except OSError:
        return False


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        digest = blake2b(digest_size=16)
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


@contextmanager
def locked(lock: Path, *, wait: float = _WAIT_SECONDS) -> Iterator[None]:
    """Keep other processes out while a file is locked; a process that dies gives its lock back.

    Args:
        lock: The file.
        wait: How many seconds to wait for another process that holds it.

    Raises:
        ConfigError: Another process holds it, and did not give it back in that time.
        TsrGymError: The file cannot be made or locked.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    # SQLite's lock, because it works on every system and needs nobody to clean up.
    with closing(_lock(lock, wait)):
        yield


def _lock(path: Path, wait: float) -> sqlite3.Connection:
    try:
        lock = sqlite3.connect(path, timeout=wait, isolation_level=None)
        # Nothing is written, so there is nothing for a journal to save, which a killed process would leave behind.
        lock.execute("PRAGMA journal_mode=MEMORY")
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.Error as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            raise ConfigError(f"another process holds {path}, and did not give it back in {wait:g} s") from error
        raise TsrGymError(f"cannot lock {path}: {error}; choose a folder that can be written") from error
    return lock


@contextmanager
def in_place_of(out: Path) -> Iterator[Path]:
    """Give an empty folder beside `out`, which takes its place when all went well and is removed when not."""
    out.parent.mkdir(parents=True, exist_ok=True)
    mark = uuid4().hex
    partial, before = out.with_name(f".{out.name}.{mark}.partial"), out.with_name(f".{out.name}.{mark}.before")
    partial.mkdir()
    try:
        yield partial
        if out.exists():
            os.replace(out, before)
        try:
            os.replace(partial, out)
        except OSError:
            if before.exists():
                os.replace(before, out)
            raise
    finally:
        for leftover in (partial, before):
            shutil.rmtree(leftover, ignore_errors=True)


def remove_leftovers(out: Path) -> None:
    """Remove what interrupted runs left beside a folder whose place this process has locked."""
    for before in out.parent.glob(f".{out.name}.*.before"):
        if not out.exists():
            # That run ended between its two renames.
            os.replace(before, out)
    for kind in ("partial", "before"):
        for leftover in out.parent.glob(f".{out.name}.*.{kind}"):
            shutil.rmtree(leftover)


def write_whole(out: Path, marker: str, write: Write) -> None:
    """Write a folder; what stood there before stays until the new one is complete.

    A run that was interrupted leaves only hidden files beside `out`; running it again starts anew and removes them.

    Args:
        out: The folder.
        marker: File by which a complete folder of this kind is known; a folder without it is never replaced.
        write: Fills the empty folder that it is given.

    Raises:
        ConfigError: Something else stands at `out`.
    """
    with locked(_lock_of(out)):
        _write(out, marker, write)


def first_use(folder: Path, marker: str, write: Write) -> Path:
    """Return a folder of the cache; where there is none, one process writes it and others wait.

    Args:
        folder: The folder.
        marker: File by which a complete folder is known.
        write: Fills the empty folder that it is given.
    """
    if not (folder / marker).exists():
        with locked(_lock_of(folder)):
            if not (folder / marker).exists():
                _write(folder, marker, write)
    return folder


def cached(source: Path, kind: str, marker: str, write: Write) -> Path:
    """Return the folder that belongs to a file as it is now, written at first use.

    The key is the file's path, size and time of change.

    Args:
        source: The file.
        kind: What is made of it, such as ``"retrieval/bm25"``: a folder below `cache_home`.
        marker: File by which a complete folder is known.
        write: Fills the empty folder that it is given.
    """
    path, stat = source.resolve(), source.stat()
    key = blake2b(f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}".encode(), digest_size=8).hexdigest()
    return first_use(cache_home() / kind / f"{path.stem}-{key}", marker, write)


def _lock_of(out: Path) -> Path:
    return out.with_name(f".{out.name}.lock")


def _write(out: Path, marker: str, write: Write) -> None:
    """Write a folder whose place this process has locked."""
    remove_leftovers(out)
    if out.exists() and not (out / marker).exists():
        raise ConfigError(f"{out}: wanted a new folder, or one with {marker} to replace; choose another place")
    with in_place_of(out) as partial:
        write(partial)
