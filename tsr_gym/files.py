"""Files and folders that are complete or absent: they are built next to their place and then moved into it.

A process that is killed while it writes leaves the previous content in place.
"""

import json
import os
import shutil
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from uuid import uuid4

from tsr_gym.errors import CheckpointError, ConfigError, TsrGymError


def cache_home() -> Path:
    """Return the folder of catalogues, worlds and indexes that are built at first use and can be built again.

    It is ``TSR_GYM_CACHE`` if that is set, else ``tsr-gym`` in the user's cache folder.
    """
    folder = os.environ.get("TSR_GYM_CACHE")
    return Path(folder) if folder else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tsr-gym"


MANIFEST = "manifest.json"
_WAIT_SECONDS = 24 * 3600
Write = Callable[[Path], None]
Step = Callable[[], None]


def read_regular(path: Path, *, within: Path | None = None) -> bytes:
    """Return the content of a file.

    Args:
        path: The file, or a link to one.
        within: Folder that a link must not leave; None for links to any file.

    Raises:
        OSError: There is no such file, it is no regular file (reading a pipe would wait for ever), or a link leaves the
            folder.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path}: wanted a file, got {'a broken link' if path.is_symlink() else 'none'}")
    if not path.is_file():
        raise OSError(f"{path}: wanted a regular file, got {'a folder' if path.is_dir() else 'a pipe or a device'}")
    if within is not None and not path.resolve().is_relative_to(within.resolve()):
        raise PermissionError(f"{path}: a link that leaves {within} is not followed")
    return path.read_bytes()


# The first bytes of every gzip file, and the end of its name.
GZIP, ZIPPED = b"\x1f\x8b", ".gz"


def read_unzipped(path: Path, *, within: Path | None = None) -> tuple[bytes, str]:
    """Return the content of a file, decompressed if it is gzip, and its damage; "" for none.

    The content of a damaged gzip file is what stands before the damage. The bytes decide, not the name.

    Args:
        path: The file, or a link to one.
        within: See `read_regular`.

    Raises:
        OSError: See `read_regular`.
    """
    data = read_regular(path, within=within)
    if not data.startswith(GZIP):
        return data, ""
    reader = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        content = reader.decompress(data)
    except zlib.error as error:
        return _before_damage(data), f"the gzip file is damaged ({error})"
    whole = reader.eof and not reader.unused_data
    return content, "" if whole else "the gzip file is cut short or has more after its end"


_BLOCK = 128


def _before_damage(data: bytes) -> bytes:
    """Return what stands before the damage of a gzip file."""
    reader, parts = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16), []
    # In small blocks, because the library returns nothing of a block with damage in it.
    with suppress(zlib.error):
        for start in range(0, len(data), _BLOCK):
            parts.append(reader.decompress(data[start : start + _BLOCK]))  # noqa: PERF401 (kept up to an error)
    return b"".join(parts)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that it is at any moment either the old one or the complete new one."""
    partial = path.with_name(path.name + ".partial")
    with open(partial, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def sync(path: Path) -> None:
    """Wait until a file's bytes, or a folder's entries, are on disk."""
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

    Several processes with the same disk may write a folder together: each calls this function, and `first` and `each`
    synchronise them. A step that fails must fail in all of them.

    Args:
        path: The folder.
        write: Fills the empty folder that it is given; each of several processes writes separate files.
        first: Runs a step in one of the processes.
        each: Runs a step in every process.

    Raises:
        CheckpointError: The disk is full or not writable; the previous content is unchanged.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        first(_reporting(path, lambda: _begin(partial)))
        each(_reporting(path, lambda: write(partial)))
        first(_reporting(path, lambda: _end(partial, path)))
    except CheckpointError:
        first(lambda: shutil.rmtree(partial, ignore_errors=True))
        raise


def _reporting(path: Path, step: Step) -> Step:
    """Return a step whose exceptions are raised as CheckpointError."""

    def taken() -> None:
        try:
            step()
        except Exception as error:  # Each file format raises another exception for a full disk.
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
    """Raise CheckpointError unless a folder is exactly as `write_folder` wrote it."""
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
    # The names come from the manifest and may be invalid on this system.
    except OSError:
        return False


def folder_digest(folder: Path) -> str:
    """Return the digest of the names and contents of the files directly in a folder."""
    files = sorted(file for file in folder.iterdir() if file.is_file() and file.name != MANIFEST)
    return blake2b(repr([(file.name, _digest(file)) for file in files]).encode(), digest_size=16).hexdigest()


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        digest = blake2b(digest_size=16)
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


@contextmanager
def locked(lock: Path, *, wait: float = _WAIT_SECONDS) -> Iterator[None]:
    """Hold a lock that other processes wait for. The system releases it if the process dies.

    Args:
        lock: The file.
        wait: How long to wait for another process that holds the lock, in seconds.

    Raises:
        ConfigError: Another process still holds the lock after that time.
        TsrGymError: The file cannot be made or locked.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    # SQLite's lock works on every system, and the system releases it when a process is killed.
    with closing(_lock(lock, wait)):
        yield


def _lock(path: Path, wait: float) -> sqlite3.Connection:
    try:
        lock = sqlite3.connect(path, timeout=wait, isolation_level=None)
        # Nothing is written. A journal on disk would only be left behind by a killed process.
        lock.execute("PRAGMA journal_mode=MEMORY")
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.Error as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            raise ConfigError(f"another process holds {path} and did not release it within {wait:g} s") from error
        raise TsrGymError(f"cannot lock {path}: {error}; choose a writable folder") from error
    return lock


@contextmanager
def in_place_of(out: Path) -> Iterator[Path]:
    """Yield an empty folder next to `out`. It replaces `out` at the end, or is removed if an exception was raised."""
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
    """Remove leftovers of interrupted runs next to a folder whose lock this process holds."""
    for before in out.parent.glob(f".{out.name}.*.before"):
        if not out.exists():
            # That run ended between its two renames.
            os.replace(before, out)
    for ending in ("partial", "before"):
        for leftover in out.parent.glob(f".{out.name}.*.{ending}"):
            shutil.rmtree(leftover)


def write_whole(out: Path, marker: str, write: Write) -> None:
    """Write a folder; an older one stays until the new one is complete.

    An interrupted run leaves only hidden files next to `out`; the next run removes them and starts again.

    Args:
        out: The folder.
        marker: A file that only complete folders of this type have; a folder without it is never replaced.
        write: Fills the empty folder that it is given.

    Raises:
        ConfigError: `out` exists and is not such a folder.
    """
    with locked(_lock_of(out)):
        _write(out, marker, write)


def first_use(folder: Path, marker: str, write: Write) -> Path:
    """Return a folder of the cache. If it does not exist, one process writes it and others wait.

    Args:
        folder: The folder.
        marker: A file that only complete folders have.
        write: Fills the empty folder that it is given.
    """
    if not (folder / marker).exists():
        with locked(_lock_of(folder)):
            if not (folder / marker).exists():
                _write(folder, marker, write)
    return folder


def cached(source: Path, folder: str, marker: str, write: Write) -> Path:
    """Return the cache folder that belongs to the present version of a file; it is written at first use.

    The key is the file's path, size and time of change.

    Args:
        source: The file.
        folder: A folder of `cache_home` per type of content, such as ``"retrieval/bm25"``.
        marker: A file that only complete folders have.
        write: Fills the empty folder that it is given.
    """
    path, stat = source.resolve(), source.stat()
    key = blake2b(f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}".encode(), digest_size=8).hexdigest()
    return first_use(cache_home() / folder / f"{path.stem}-{key}", marker, write)


def _lock_of(out: Path) -> Path:
    return out.with_name(f".{out.name}.lock")


def _write(out: Path, marker: str, write: Write) -> None:
    """Write a folder whose lock this process holds."""
    remove_leftovers(out)
    if out.exists() and not (out / marker).exists():
        raise ConfigError(f"{out}: wanted a new folder, or one with {marker} to replace; choose another place")
    with in_place_of(out) as partial:
        write(partial)
