"""Files in memory: an immutable value, and the file system of one command over it.

Equal files are equal values, in any order of writing. A command works on a table that shares
every content with the value before it, so nothing is copied but the table.
"""

import posixpath
import stat
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from tsr_gym_envs.shell.closed import CLOCK
from tsr_gym_envs.shell.meter import Meter

HOME = "/home/user"
FILE, FOLDER, LINK = stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK
# Reads as nothing and keeps nothing.
NULL = "/dev/null"
# Files of the interpreter for `<(command)`, which bash keeps outside of the file system.
_PASSING = "/tmp/proc_sub_"
# What an entry costs of the limit of bytes, in addition to its path and content.
ENTRY_BYTES = 64
_MAX_LINKS = 40


class Files(NamedTuple):
    """The files, folders and links of a shell, in ascending order of their paths.

    Attributes:
        paths: Absolute paths.
        modes: What each is and its permissions, as Unix's st_mode.
        contents: The bytes of a file, the target of a link, nothing for a folder.
    """

    paths: tuple[str, ...]
    modes: tuple[int, ...]
    contents: tuple[bytes, ...]


Table = dict[str, tuple[int, bytes]]


def table_of(files: Files) -> Table:
    """Return mode and content by path, as a new dictionary."""
    return dict(zip(files.paths, zip(files.modes, files.contents, strict=True), strict=True))


def files_from(table: Table) -> Files:
    """Return the value of a table."""
    paths = sorted(table)
    return Files(tuple(paths), *((tuple(column)) for column in zip(*(table[path] for path in paths), strict=True)))


def is_kind(mode: int, form: int) -> bool:
    """Return whether a mode is that of a `FILE`, a `FOLDER` or a `LINK`."""
    return stat.S_IFMT(mode) == form


def beginning(contents: dict[str, str], modes: dict[str, int]) -> Files:
    """Return files with the folders that they lie in.

    Args:
        contents: Texts by absolute path.
        modes: Permissions by path, where they are not 644.
    """
    table: Table = dict.fromkeys(("/", "/tmp", HOME), (FOLDER | 0o755, b""))
    table[NULL] = (FILE | 0o666, b"")
    table |= {path: (FILE | modes.get(path, 0o644), text.encode()) for path, text in contents.items()}
    for path in list(table):
        while path != "/":
            path = posixpath.dirname(path)
            table.setdefault(path, (FOLDER | 0o755, b""))
    return files_from(table)


@lru_cache(maxsize=4096)
def normal(path: str) -> str:
    """Return an absolute path without dots and double slashes."""
    return "/" + posixpath.normpath(f"/{path}").lstrip("/")


@dataclass
class Status:
    """What a file is; the time of every change is the constant clock."""

    is_file: bool
    is_directory: bool
    is_symbolic_link: bool
    mode: int
    size: int
    mtime: float = float(CLOCK)
    nlink: int = 1


class FileSystem:
    """The file system of one command: just-bash's protocol over a table.

    Args:
        files: The files before the command.
        meter: Counts the steps.
        max_bytes: Most bytes of all files, paths included.
    """

    def __init__(self, files: Files, meter: Meter, max_bytes: int) -> None:
        self._before, self._table = files, table_of(files)
        self._meter, self._is_changed = meter, False
        sizes = sum(map(len, files.paths)) + sum(map(len, files.contents))
        self._room = max_bytes - sizes - ENTRY_BYTES * len(files.paths)

    def value(self) -> Files:
        """Return the files after the command; the same object where nothing was changed."""
        if not self._is_changed:
            return self._before
        return files_from({path: entry for path, entry in self._table.items() if not path.startswith(_PASSING)})

    def _put(self, path: str, mode: int, content: bytes) -> None:
        old = self._table.get(path)
        spent = len(content) - len(old[1]) if old else len(content) + len(path) + ENTRY_BYTES
        self._room -= spent
        if self._room < 0:
            self._meter.stop("the file system is full")
        if "\0" in path:
            raise OSError(f"EINVAL: invalid argument, '{path!r}'")
        self._table[path] = (mode, content)
        self._is_changed = True

    def _drop(self, path: str) -> None:
        self._room += len(self._table.pop(path)[1]) + len(path) + ENTRY_BYTES
        self._is_changed = True

    def _resolve(self, path: str, *, last: bool = True) -> str:
        """Return a path without links; with `last` also without a link at its end."""
        parts, here, links = normal(path).split("/")[1:], "/", 0
        while parts:
            self._meter.tick()
            part = parts.pop(0)
            if part in ("", "."):
                continue
            if part == "..":
                here = posixpath.dirname(here)
                continue
            step = posixpath.join(here, part)
            entry = self._table.get(step)
            if entry is None or not is_kind(entry[0], LINK) or (not parts and not last):
                here = step
                continue
            links += 1
            if links > _MAX_LINKS:
                raise OSError(f"ELOOP: too many levels of symbolic links, open '{path}'")
            target = entry[1].decode("utf-8", "surrogateescape")
            here = "/" if target.startswith("/") else here
            parts = [*target.split("/"), *parts]
        return here

    def _entry(self, path: str, what: str, *, last: bool = True) -> tuple[str, int, bytes]:
        place = self._resolve(path, last=last)
        if place not in self._table:
            raise FileNotFoundError(f"ENOENT: no such file or directory, {what} '{path}'")
        return place, *self._table[place]

    def _parents(self, path: str) -> None:
        """Make the folders that a path lies in."""
        parent = posixpath.dirname(path)
        if parent not in self._table:
            self._parents(parent)
            self._put(parent, FOLDER | 0o755, b"")
        elif not is_kind(self._table[parent][0], FOLDER):
            raise NotADirectoryError(f"ENOTDIR: not a directory, '{path}'")

    def _children(self, place: str) -> list[str]:
        prefix = place if place == "/" else f"{place}/"
        self._meter.charge(len(self._table) // 16)
        return sorted(
            path[len(prefix) :]
            for path in self._table
            if path.startswith(prefix) and path != "/" and "/" not in path[len(prefix) :]
            if not path.startswith(_PASSING)
        )

    async def read_file(self, path: str, encoding: str = "utf-8") -> str:
        """Return the text of a file; bytes that are no text stay what they are when they are written again."""
        return (await self.read_file_bytes(path)).decode("utf-8", "surrogateescape")

    async def read_file_bytes(self, path: str) -> bytes:
        """Return the bytes of a file."""
        _, mode, content = self._entry(path, "open")
        if is_kind(mode, FOLDER):
            raise IsADirectoryError(f"EISDIR: illegal operation on a directory, read '{path}'")
        self._meter.size(len(content))
        return content

    async def write_file(self, path: str, content: str | bytes, encoding: str = "utf-8") -> None:
        """Write a file; one that exists keeps its permissions."""
        place = self._resolve(path)
        mode, _ = self._table.get(place, (FILE | 0o644, b""))
        if place == NULL:
            return
        if is_kind(mode, FOLDER):
            raise IsADirectoryError(f"EISDIR: illegal operation on a directory, write '{path}'")
        self._parents(place)
        self._put(place, mode, content if isinstance(content, bytes) else _encoded(content, encoding))

    async def append_file(self, path: str, content: str | bytes, encoding: str = "utf-8") -> None:
        """Add to the end of a file."""
        place = self._resolve(path)
        mode, before = self._table.get(place, (FILE, b""))
        added = content if isinstance(content, bytes) else _encoded(content, encoding)
        self._meter.size(len(before) + len(added))
        await self.write_file(path, added if is_kind(mode, FOLDER) else before + added)

    async def exists(self, path: str) -> bool:
        """Return whether a path leads to a file or folder."""
        return self._mode(path) is not None

    async def is_file(self, path: str) -> bool:
        """Return whether a path leads to a file."""
        return is_kind(self._mode(path) or 0, FILE)

    async def is_directory(self, path: str) -> bool:
        """Return whether a path leads to a folder."""
        return is_kind(self._mode(path) or 0, FOLDER)

    def _mode(self, path: str) -> int | None:
        try:
            return self._table.get(self._resolve(path), (None,))[0]
        except OSError:
            return None

    async def stat(self, path: str) -> Status:
        """Return the status of the file or folder at a path, links followed."""
        return _status(*self._entry(path, "stat")[1:])

    async def lstat(self, path: str) -> Status:
        """Return the status of a path, that of a link itself."""
        return _status(*self._entry(path, "lstat", last=False)[1:])

    async def mkdir(self, path: str, recursive: bool = False) -> None:
        """Make a folder, and with `recursive` those that it lies in."""
        place = self._resolve(path)
        if place in self._table:
            if recursive and is_kind(self._table[place][0], FOLDER):
                return
            raise FileExistsError(f"EEXIST: file already exists, mkdir '{path}'")
        if not recursive and posixpath.dirname(place) not in self._table:
            raise FileNotFoundError(f"ENOENT: no such file or directory, mkdir '{path}'")
        self._parents(place)
        self._put(place, FOLDER | 0o755, b"")

    async def readdir(self, path: str) -> list[str]:
        """Return the names in a folder, in ascending order."""
        place, mode, _ = self._entry(path, "scandir")
        if not is_kind(mode, FOLDER):
            raise NotADirectoryError(f"ENOTDIR: not a directory, scandir '{path}'")
        return self._children(place)

    async def rm(self, path: str, recursive: bool = False, force: bool = False) -> None:
        """Remove a file, a link, or a folder with what it holds."""
        place = self._resolve(path, last=False)
        if place not in self._table:
            if force:
                return
            raise FileNotFoundError(f"ENOENT: no such file or directory, rm '{path}'")
        inside = [] if place == "/" else [other for other in self._table if other.startswith(f"{place}/")]
        if place == "/" or (inside and not recursive):
            raise OSError(f"ENOTEMPTY: directory not empty, rm '{path}'")
        for other in [*inside, place]:
            self._drop(other)

    async def cp(self, src: str, dest: str, recursive: bool = False) -> None:
        """Copy a file, or a folder with what it holds."""
        place, mode, content = self._entry(src, "cp", last=not recursive)
        target = self._resolve(dest, last=not is_kind(mode, LINK))
        if is_kind(mode, FOLDER):
            if not recursive:
                raise IsADirectoryError(f"EISDIR: is a directory, cp '{src}'")
            if target == place or target.startswith(f"{place.rstrip('/')}/"):
                raise OSError(f"EINVAL: cannot copy a directory into itself, cp '{src}'")
            await self.mkdir(target, recursive=True)
            for name in self._children(place):
                self._meter.tick()
                await self.cp(f"{place}/{name}", f"{target}/{name}", recursive=True)
            return
        old, _ = self._table.get(target, (mode, b""))
        if is_kind(old, FOLDER):
            raise IsADirectoryError(f"EISDIR: is a directory, cp '{dest}'")
        self._parents(target)
        self._put(target, old if is_kind(old, FILE) and is_kind(mode, FILE) else mode, content)

    async def mv(self, src: str, dest: str) -> None:
        """Move a file, a link or a folder."""
        place, mode, _ = self._entry(src, "mv", last=False)
        target = self._resolve(dest, last=False)
        if target == place:
            return
        if target.startswith(f"{place}/") or place == "/":
            raise OSError(f"EINVAL: cannot move a directory into itself, mv '{src}'")
        if is_kind(self._table.get(target, (mode, b""))[0], FOLDER) != is_kind(mode, FOLDER):
            raise OSError(f"EEXIST: a file and a directory, mv '{dest}'")
        if target in self._table and self._children(target):
            raise OSError(f"ENOTEMPTY: directory not empty, mv '{dest}'")
        self._parents(target)
        for path in [path for path in self._table if path == place or path.startswith(f"{place}/")]:
            entry = self._table[path]
            self._drop(path)
            self._put(target + path[len(place) :], *entry)

    async def chmod(self, path: str, mode: int) -> None:
        """Set the permissions of a file or folder."""
        place, old, content = self._entry(path, "chmod")
        self._put(place, stat.S_IFMT(old) | stat.S_IMODE(mode), content)

    async def symlink(self, target: str, link_path: str) -> None:
        """Make a link."""
        self._new(link_path, LINK | 0o777, _encoded(target, "utf-8"), "symlink")

    async def link(self, existing_path: str, new_path: str) -> None:
        """Make a copy, because files have one name each."""
        _, mode, content = self._entry(existing_path, "link")
        if not is_kind(mode, FILE):
            raise PermissionError(f"EPERM: operation not permitted, link '{existing_path}'")
        self._new(new_path, mode, content, "link")

    def _new(self, path: str, mode: int, content: bytes, what: str) -> None:
        place = self._resolve(path, last=False)
        if place in self._table:
            raise FileExistsError(f"EEXIST: file already exists, {what} '{path}'")
        self._parents(place)
        self._put(place, mode, content)

    async def readlink(self, path: str) -> str:
        """Return the target of a link."""
        _, mode, content = self._entry(path, "readlink", last=False)
        if not is_kind(mode, LINK):
            raise OSError(f"EINVAL: invalid argument, readlink '{path}'")
        return content.decode("utf-8", "surrogateescape")

    async def utimes(self, path: str, atime: float, mtime: float) -> None:
        """Change nothing but raise an error for a missing file: every time is the constant clock."""
        self._entry(path, "utimes")

    async def realpath(self, path: str) -> str:
        """Return a path without links."""
        return self._resolve(path)

    def resolve_path(self, base: str, path: str) -> str:
        """Return the absolute path of one that may be relative."""
        return normal(path if path.startswith("/") else f"{base}/{path}")


def _encoded(text: str, encoding: str) -> bytes:
    # Commands that read bytes hand them on as Latin-1.
    return text.encode("latin-1" if encoding in ("latin-1", "binary") else "utf-8", "surrogateescape")


def _status(mode: int, content: bytes) -> Status:
    is_file, is_link = is_kind(mode, FILE), is_kind(mode, LINK)
    return Status(is_file, is_kind(mode, FOLDER), is_link, stat.S_IMODE(mode), len(content))
