"""DirectoryBackend: a real folder, commands run by bash in a process, and snapshots in memory.

A snapshot shares no inode with the folder, so that no command can change it. Unchanged contents are shared between
snapshots as Python's bytes.
"""

import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import NamedTuple

from tsr_gym import ConfigError
from tsr_gym.ranges import check_counts, check_range
from tsr_gym_envs.sandbox.backend import CommandStopped, Ran, SandboxFailed, SandboxFile

# The first second of the logical clock: 2000-01-01.
CLOCK = 946_684_800
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# What bash reads before a command: the limit is that of the size of a file, in blocks.
_BEFORE = "umask 022; ulimit -c 0 -f {}; unset BASH_ENV\n"
# How long to wait for background processes to end after they were killed.
_ENDING_SECONDS = 0.1


class Entry(NamedTuple):
    """What stands at a path.

    Attributes:
        mode: Type and permissions, as in ``st_mode``.
        content: The bytes of a file, the target of a symbolic link, or b"" for a folder.
        time: When it was changed, in nanoseconds.
    """

    mode: int
    content: bytes
    time: int


# Paths below the folder, which is itself "", in ascending order: a folder stands before what it holds.
Table = dict[str, Entry]


class DirectoryBackend:
    """A folder of this machine in which bash runs commands.

    **It is not a security sandbox.** A command runs with the rights of this process: it can read and change everything
    that this process can, and use the network. Only what stands in the folder goes back. For commands that you would
    not run yourself, use a container.

    Snapshots hold folders, files and symbolic links with contents, permissions and times, in the memory of this
    process. Owners, extended attributes and access times are not kept. A command that leaves anything else (a hard
    link, a pipe, a socket), or more than `max_bytes`, is stopped. Times follow a logical clock: what a command changed
    gets the number of the command in seconds after 2000-01-01, so repeated commands give the same times, in order.
    Background processes are killed when their command ends; one that left its session (``setsid``) is not.

    Args:
        path: The folder; it must not exist, and is removed at the end. None for a new temporary one. A command that
            prints or stores the folder's name gives the same text in another process only under the same path.
        max_seconds: Wall-clock time of a command. A command that waits for ever looks like that of a slow machine, so
            choose it far above what commands need.
        max_bytes: Most bytes of all files together, and of an output.

    Raises:
        ConfigError: The path exists, or a limit is impossible.
    """

    def __init__(
        self, path: str | Path | None = None, *, max_seconds: float = 10.0, max_bytes: int = 64_000_000
    ) -> None:
        check_range(max_seconds=max_seconds, above=0)
        check_counts(max_bytes=max_bytes)
        if path is not None and os.path.lexists(path):
            raise ConfigError(f"wanted a path that does not exist, got {path}: the backend removes its folder")
        self.max_seconds, self.max_bytes = max_seconds, max_bytes
        self._scratch = tempfile.mkdtemp(prefix="tsr-gym-sandbox-")
        self.root = Path(self._scratch, "work") if path is None else Path(path).absolute()
        self._remove = weakref.finalize(self, _remove, self._scratch, str(self.root), os.getpid())
        self._snapshots: dict[str, tuple[int, Table]] = {}
        self._names = count()
        self._commands = 0
        self.root.mkdir(parents=True)
        self._table: Table = {}
        self._stamp()

    def snapshot(self) -> str:
        """Return a handle to the present contents."""
        handle = str(next(self._names))
        self._snapshots[handle] = (self._commands, self._scan())
        return handle

    def restore(self, handle: str) -> None:
        """Write what differs from a snapshot, so that contents, permissions and times are those of the snapshot."""
        if handle not in self._snapshots:
            raise SandboxFailed(f"there is no snapshot {handle!r}: it was deleted, or is another backend's")
        self._commands, wanted = self._snapshots[handle]
        if self.root.is_symlink() or not self.root.is_dir():
            _remove_path(str(self.root))
            self.root.mkdir(parents=True)
        try:
            before = self._scan(limited=False)
        except CommandStopped:
            # Something that no snapshot can hold: start with an empty folder.
            _empty(self.root)
            before = self._scan()
        try:
            self._write(before, wanted)
        except OSError as error:
            raise SandboxFailed(f"the folder {self.root} cannot be restored: {error}") from error
        self._table = wanted

    def delete(self, handle: str) -> None:
        """Free a handle."""
        self._snapshots.pop(handle, None)

    def digest(self) -> bytes:
        """Return a digest of all paths, permissions and contents."""
        hashed = blake2b(digest_size=16)
        for path, (mode, content, _) in self._scan().items():
            name = os.fsencode(path)
            hashed.update(b"%d:%s %o %d:%s" % (len(name), name, mode, len(content), content))
        return hashed.digest()

    def run(self, command: str) -> Ran:
        """Run a command by a new ``bash`` in the folder.

        Raises:
            CommandStopped: It took too long, or left what no snapshot can hold.
            SandboxFailed: It could not be started.
        """
        temporary = Path(self._scratch, "tmp")
        _empty(temporary)
        self._commands += 1
        before = Path(self._scratch, "before")
        before.write_text(_BEFORE.format(self.max_bytes // 1024 + 1))
        surroundings = {"BASH_ENV": str(before), "HOME": str(self.root), "LANG": "C.UTF-8", "PATH": _PATH, "TZ": "UTC"}
        surroundings["TMPDIR"] = str(temporary)
        with tempfile.TemporaryFile(dir=self._scratch) as printed:
            # The folder above is listed by `ls -a`.
            os.utime(self._scratch, (CLOCK, CLOCK))
            try:
                process = subprocess.Popen(
                    ["bash", "--noprofile", "--norc", "-c", command],
                    cwd=self.root,
                    env=surroundings,
                    stdin=subprocess.DEVNULL,
                    stdout=printed,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise SandboxFailed(f"bash cannot be started in {self.root}: {error}") from error
            try:
                status = process.wait(self.max_seconds)
            except subprocess.TimeoutExpired:
                raise CommandStopped(f"it took more than {self.max_seconds:g} s") from None
            finally:
                _kill(process)
            printed.seek(0)
            output = printed.read(self.max_bytes + 1)
        if len(output) > self.max_bytes:
            raise CommandStopped(f"it printed more than {self.max_bytes} bytes")
        self._stamp()
        return Ran(output.decode("utf-8", "replace"), status if status >= 0 else 128 - status)

    def put(self, files: Mapping[str, SandboxFile]) -> None:
        """Write files, by their paths below the folder.

        Raises:
            ConfigError: A path leaves the folder.
        """
        for name, file in files.items():
            path = self.root / name
            if not name or Path(name).is_absolute() or ".." in Path(name).parts:
                raise ConfigError(f"wanted a path below the folder, got {name!r}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            path.write_bytes(file.content)
            path.chmod(file.mode)
        self._stamp()

    def files(self) -> dict[str, SandboxFile]:
        """Return the regular files, by their paths below the folder."""
        return {
            path: SandboxFile(entry.content, stat.S_IMODE(entry.mode))
            for path, entry in self._scan().items()
            if stat.S_ISREG(entry.mode)
        }

    def close(self) -> None:
        """Remove the folder and free all handles."""
        self._snapshots.clear()
        self._remove()

    def _scan(self, *, limited: bool = True) -> Table:
        """Return the table of the folder; contents that did not change are the same bytes as before.

        Raises:
            CommandStopped: It is more than the limit, or something that no snapshot can hold.
        """
        if self.root.is_symlink() or not self.root.is_dir():
            raise CommandStopped("it removed the folder of work")
        table: Table = {}
        left = self.max_bytes
        for path, about in _walk(str(self.root), ""):
            content = _content(self.root / path, about)
            left -= len(content)
            if left < 0 and limited:
                raise CommandStopped(f"it left more than {self.max_bytes} bytes in files")
            before = self._table.get(path)
            if before is not None and before.content == content:
                content = before.content
            table[path] = Entry(about.st_mode, content, about.st_mtime_ns)
        return dict(sorted(table.items()))

    def _stamp(self) -> None:
        """Give everything that changed the time of the logical clock."""
        now = (CLOCK + self._commands) * 1_000_000_000
        table = self._scan()
        closed = [(self.root / path, entry.mode) for path, entry in table.items() if _is_closed(entry.mode)]
        for place, _ in closed:
            place.chmod(0o700)
        for path, entry in reversed(table.items()):
            if entry != self._table.get(path):
                _set_time(self.root / path, now)
                table[path] = entry._replace(time=now)
        for place, mode in reversed(closed):
            place.chmod(stat.S_IMODE(mode))
        self._table = table

    def _write(self, before: Table, wanted: Table) -> None:
        """Change the folder from one table to another."""
        for path, entry in before.items():
            if stat.S_ISDIR(entry.mode):
                os.chmod(self.root / path, 0o700)
        for path, entry in reversed(before.items()):
            other = wanted.get(path)
            is_same = other is not None and (
                stat.S_IFMT(other.mode) == stat.S_IFMT(entry.mode) and other.content == entry.content
            )
            if not is_same:
                _remove_path(str(self.root / path))
        for path, entry in wanted.items():
            place = self.root / path
            if stat.S_ISDIR(entry.mode):
                place.mkdir(0o700, exist_ok=True)
            elif not os.path.lexists(place):
                if stat.S_ISLNK(entry.mode):
                    os.symlink(entry.content, os.fsencode(place))
                else:
                    place.write_bytes(entry.content)
        for path, entry in reversed(wanted.items()):
            place = self.root / path
            about = os.lstat(place)
            if about.st_mtime_ns != entry.time:
                _set_time(place, entry.time)
            if about.st_mode != entry.mode:
                os.chmod(place, stat.S_IMODE(entry.mode))


def _walk(root: str, path: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield paths and what the system knows of them, folders first."""
    place = os.path.join(root, path)
    about = os.lstat(place)
    yield path, about
    if stat.S_ISDIR(about.st_mode):
        with _allowed(place, about.st_mode, 0o700):
            for name in os.listdir(place):
                yield from _walk(root, f"{path}/{name}" if path else name)


def _content(place: Path, about: os.stat_result) -> bytes:
    if stat.S_ISDIR(about.st_mode):
        return b""
    if stat.S_ISLNK(about.st_mode):
        return os.fsencode(os.readlink(place))
    if not stat.S_ISREG(about.st_mode):
        raise CommandStopped(f"it left {place.name!r:.80}, which is no file, folder or symbolic link")
    if about.st_nlink > 1:
        raise CommandStopped(f"it left the hard link {place.name!r:.80}: use cp or ln -s")
    with _allowed(str(place), about.st_mode, 0o400):
        return place.read_bytes()


def _is_closed(mode: int) -> bool:
    return stat.S_ISDIR(mode) and mode & 0o700 != 0o700


@contextmanager
def _allowed(place: str, mode: int, needed: int) -> Iterator[None]:
    """Give the owner some permissions for a while."""
    if mode & needed == needed:
        yield
        return
    os.chmod(place, stat.S_IMODE(mode) | needed)
    try:
        yield
    finally:
        os.chmod(place, stat.S_IMODE(mode))


def _set_time(place: Path, nanoseconds: int) -> None:
    os.utime(place, ns=(nanoseconds, nanoseconds), follow_symlinks=False)


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """End a command with all processes of its session."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        end = time.monotonic() + _ENDING_SECONDS
        while time.monotonic() < end:
            os.killpg(process.pid, 0)
            time.sleep(0.001)


def _empty(folder: Path) -> None:
    _remove_path(str(folder))
    folder.mkdir(parents=True)


def _remove_path(path: str) -> None:
    """Remove what stands at a path; links are not followed."""
    if os.path.islink(path) or not os.path.isdir(path):
        with suppress(FileNotFoundError):
            os.unlink(path)
        return
    # A folder without permissions hides what it holds.
    os.chmod(path, 0o700)
    for parent, folders, _ in os.walk(path):
        for name in folders:
            if not os.path.islink(os.path.join(parent, name)):
                os.chmod(os.path.join(parent, name), 0o700)
    shutil.rmtree(path)


def _remove(scratch: str, root: str, pid: int) -> None:
    if pid == os.getpid():
        for path in (root, scratch):
            with suppress(OSError):
                _remove_path(path)
