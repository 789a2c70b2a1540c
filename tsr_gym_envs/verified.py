"""Checks that read whole files: done once for files as they are, and again when one of them has changed."""

from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path

from tsr_gym.files import cache_home

SUFFIX = ".verified"


def check_once(about: Path, files: Sequence[Path], check: Callable[[], None], *, again: bool = False) -> None:
    """Run a check, unless it passed before on files of the same place, size and time of change.

    That it passed is remembered beside the description, or below `cache_home` where its folder cannot be written.

    Args:
        about: What describes the files, such as a manifest; it counts as one of them.
        files: All others that the check reads.
        check: Raises where a file is damaged.
        again: Run it whatever is remembered.

    Raises:
        OSError: A file is missing.
    """
    # Taken before the check, so that what changes meanwhile is checked again.
    mark = _mark([about, *files])
    elsewhere = blake2b(str(about.resolve()).encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()
    records = (about.with_suffix(SUFFIX), cache_home() / "verified" / elsewhere)
    if not again and any(_read(record) == mark for record in records):
        return
    check()
    for record in records:
        try:
            record.parent.mkdir(parents=True, exist_ok=True)
            record.write_text(mark, encoding="utf-8")
        except OSError:
            # Nothing is lost but the time of the next check.
            continue
        return


def _mark(files: Sequence[Path]) -> str:
    """Return what changes with the place, the size or the time of change of a file."""
    known = [(str(path.resolve()), (stat := path.stat()).st_size, stat.st_mtime_ns, stat.st_ino) for path in files]
    return blake2b(repr(known).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def _read(record: Path) -> str | None:
    try:
        return record.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
