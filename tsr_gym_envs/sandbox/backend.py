"""SnapshotBackend: the protocol of a sandbox that can go back, and what all of them share.

A backend is one sandbox with one folder of work. It knows no task: `SandboxEnv` decides which commands it runs and
which snapshots it keeps.
"""

import io
import shlex
import tarfile
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from tsr_gym import TsrGymError


class SandboxFailed(TsrGymError):
    """The sandbox itself failed: its program, its server or its disk; the episode is unchanged."""


class CommandStopped(TsrGymError):
    """A command reached a limit, or left something that no snapshot can hold; the sandbox must be restored."""


class Ran(NamedTuple):
    """The result of a command.

    Attributes:
        output: Standard output and error output together; bytes that are no text are replaced.
        status: The exit status.
    """

    output: str
    status: int


class SandboxFile(NamedTuple):
    """A regular file.

    Attributes:
        content: Its bytes.
        mode: Its permissions.
    """

    content: bytes
    mode: int = 0o644


class SnapshotBackend(Protocol):
    """A sandbox with snapshots. It starts with an empty folder, which commands start in.

    A handle stays valid until it is deleted, however often it is restored. Running processes, working folders and
    variables of a shell are not part of a snapshot: every command is run by a new ``bash``.
    """

    def snapshot(self) -> str:
        """Return a handle to the present contents."""

    def restore(self, handle: str) -> None:
        """Set the contents to those of a handle."""

    def delete(self, handle: str) -> None:
        """Free a handle, which is not used again."""

    def digest(self) -> bytes:
        """Return a digest of all paths, permissions and contents in the folder; times are not part of it."""

    def run(self, command: str) -> Ran:
        """Run a command in the folder.

        Raises:
            CommandStopped: It reached a limit.
            SandboxFailed: The sandbox failed.
        """

    def put(self, files: Mapping[str, SandboxFile]) -> None:
        """Write files, by their paths below the folder; missing folders are made."""

    def files(self) -> dict[str, SandboxFile]:
        """Return the regular files in the folder, by their paths below it."""

    def close(self) -> None:
        """Free the sandbox and all handles."""


# Prints all paths with types, permissions and targets of links, then the digests of all files, for `sha256sum`.
_LISTED = r"find . -printf '%P\0%y %m\0%l\0' | sort -z"
_CONTENTS = "find . -type f -print0 | sort -z | xargs -0r sha256sum -z --"
DIGEST_COMMAND = f"export LC_ALL=C; {{ {_LISTED}; {_CONTENTS}; }} | sha256sum"


def timed(command: str, seconds: float) -> str:
    """Return a command for ``sh`` that is ended after a number of seconds, with exit status 124 or 137.

    >>> timed("echo hi", 5)
    "timeout -k 1 5 bash -c 'echo hi' 2>&1"
    """
    return f"timeout -k 1 {seconds:g} bash -c {shlex.quote(command)} 2>&1"


def packed(files: Mapping[str, SandboxFile]) -> bytes:
    """Return files as a tar archive."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path, file in sorted(files.items()):
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(file.content), file.mode
            tar.addfile(entry, io.BytesIO(file.content))
    return archive.getvalue()


def unpacked(archive: bytes) -> dict[str, SandboxFile]:
    """Return the regular files of a tar archive, by their paths.

    >>> unpacked(packed({"a/b": SandboxFile(b"1", 0o600)}))
    {'a/b': SandboxFile(content=b'1', mode=384)}
    """
    files = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for entry in tar:
            if entry.isfile() and (stream := tar.extractfile(entry)):
                files[entry.name.removeprefix("./")] = SandboxFile(stream.read(), entry.mode & 0o7777)
    return files
