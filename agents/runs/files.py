"""Files of a run that survive being killed at any moment: folders that appear whole, logs that end at a known line."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

from tsr_gym.agents.processes import ALONE, Processes
from tsr_gym.errors import CheckpointError
from tsr_gym.tree import write_atomically

MANIFEST = "manifest.json"


def write_folder(path: Path, write: Callable[[Path], None], *, processes: Processes = ALONE) -> None:
    """Write a folder so that it is either absent or complete.

    Args:
        path: The folder.
        write: Fills the empty folder that it is given; of several processes each writes files of its own.
        processes: The processes, which see the same disk and have to call this together.

    Raises:
        CheckpointError: The disk is full or not writable; what was there before is untouched.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        processes.first(_told(path, lambda: _begin(partial)))
        processes.each(_told(path, lambda: write(partial)))
        processes.first(_told(path, lambda: _end(partial, path)))
    except CheckpointError:
        if processes.leads:
            shutil.rmtree(partial, ignore_errors=True)
        raise


def _told(path: Path, step: Callable[[], None]) -> Callable[[], None]:
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
    files = sorted(file for file in partial.rglob("*") if file.is_file())
    manifest = {str(file.relative_to(partial)): _digest(file) for file in files}
    (partial / MANIFEST).write_text(json.dumps(manifest, indent=1))
    for file in [*files, partial / MANIFEST]:
        _sync(file)
    os.replace(partial, path)
    _sync(path.parent)


def check_folder(path: Path) -> None:
    """Raise CheckpointError where a folder is not as `write_folder` left it."""
    try:
        digests = json.loads((path / MANIFEST).read_text()).items()
    except (OSError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{path}: no complete checkpoint ({error}): resume from another one") from error
    for name, digest in digests:
        file = path / name
        if not file.is_file() or _digest(file) != digest:
            raise CheckpointError(f"{file}: missing or damaged: delete {path.name} and resume from the one before")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the errors of a disk that is full or not writable into a CheckpointError about `path`."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"{path} could not be written ({error}): make room and resume") from error


class JsonLines:
    """A log of JSON objects with a ``step`` each, one a line.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, record: dict[str, Any]) -> None:
        """Add a line and see it written.

        Raises:
            CheckpointError: The disk is full or not writable.
        """
        with writing(self.path), open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def read(self) -> list[dict[str, Any]]:
        """Return all whole lines; a last line that was cut short by a kill is left out."""
        if not self.path.exists():
            return []
        records = []
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                records.append(json.loads(line))
            except ValueError:
                break
        return records

    def cut_after(self, step: int) -> None:
        """Drop the lines after a step, which will be written again.

        Raises:
            CheckpointError: The disk is full or not writable.
        """
        lines = [json.dumps(record) for record in self.read() if record["step"] <= step]
        with writing(self.path):
            write_atomically(self.path, "".join(line + "\n" for line in lines).encode())


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        digest = blake2b(digest_size=16)
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
