"""Checks that read whole files: run once, and again after one of the files has changed."""

from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path

from tsr_gym.files import cache_home

SUFFIX = ".verified"


def check_once(about: Path, files: Sequence[Path], check: Callable[[], None], *, again: bool = False) -> None:
    """Run a check, unless it passed before on files of the same place, size and time of change.

    A passed check is recorded next to the description, or below `cache_home` if its folder cannot be written.

    Args:
        about: The file that describes the files, such as a manifest; it is checked too.
        files: All others that the check reads.
        check: Raises where a file is damaged.
        again: Run the check even if a record exists.

    Raises:
        OSError: A file is missing.
    """
    # Taken before the check, so that files that change during the check are checked again.
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
            # Without a record the next check only takes its time again.
            continue
        return


def _mark(files: Sequence[Path]) -> str:
    """Return a hash that changes with the place, the size or the time of change of a file."""
    facts = [(str(path.resolve()), (stat := path.stat()).st_size, stat.st_mtime_ns, stat.st_ino) for path in files]
    return blake2b(repr(facts).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def _read(record: Path) -> str | None:
    try:
        return record.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
