"""A JSON file's values one after the other: a list or an object of any size is never in memory as a whole.

Python's own decoder reads the values, so that they are exactly those of `json.load`: a file of five gigabytes needs a
loop around it and no other parser.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from tsr_gym import InvalidCatalogue

# Called with the bytes of a file that have been read, and with all of them.
Progress = Callable[[int, int], None]
_CHUNK = 1 << 20
# A value that does not end within so many characters is damage, and not a large value.
MAX_VALUE = 1 << 26
_BLANKS = " \t\n\r"
_decode = json.JSONDecoder().raw_decode


def read_items(path: Path, progress: Progress | None = None) -> Iterator[Any]:
    """Yield the items of a file that holds a list.

    Raises:
        InvalidCatalogue: The file is missing, holds something else, is damaged or ends too early.
    """
    with _open(path) as file:
        stream = _Stream(path, file, progress)
        stream.expect("[")
        if stream.skip("]"):
            stream.end()
            return
        while True:
            yield stream.value()
            if stream.skip("]"):
                break
            stream.expect(",")
        stream.end()


def read_entries(path: Path, progress: Progress | None = None) -> Iterator[tuple[str, Any]]:
    """Yield the keys and values of a file that holds an object.

    Raises:
        InvalidCatalogue: The file is missing, holds something else, is damaged or ends too early.
    """
    with _open(path) as file:
        stream = _Stream(path, file, progress)
        stream.expect("{")
        if stream.skip("}"):
            stream.end()
            return
        while True:
            key = stream.value()
            if not isinstance(key, str):
                stream.fail(f"wanted a key in quotes, got {key!r}")
            stream.expect(":")
            yield key, stream.value()
            if stream.skip("}"):
                break
            stream.expect(",")
        stream.end()


def _open(path: Path) -> TextIO:
    try:
        return path.open(encoding="utf-8")
    except OSError as error:
        raise InvalidCatalogue(f"cannot read {path}: {error.strerror}") from error


class _Stream:
    """The part of a file that is in memory, and how far it has been used."""

    def __init__(self, path: Path, file: TextIO, progress: Progress | None) -> None:
        self._path, self._file, self._progress = path, file, progress
        self._size = path.stat().st_size
        self._text, self._at, self._before = "", 0, 0
        self._complete = False

    def value(self) -> Any:
        """Read the next value."""
        self._skip_blanks()
        while True:
            try:
                value, end = _decode(self._text, self._at)
            except (json.JSONDecodeError, RecursionError) as error:
                if self._complete or len(self._text) - self._at > MAX_VALUE:
                    self.fail(f"damaged, or the file ends too early: {error}")
            except ValueError as error:
                # A number of more digits than Python reads; reading on would not help.
                self.fail(f"damaged: {error}")
            else:
                # A number may go on behind what was read, at most by "e+" that look like damage.
                if self._complete or len(self._text) - end > 2:
                    self._at = end
                    return value
            self._more()

    def skip(self, mark: str) -> bool:
        """Skip a mark if it comes next, and return whether it did."""
        self._skip_blanks()
        found = self._text.startswith(mark, self._at)
        self._at += found
        return found

    def expect(self, mark: str) -> None:
        """Skip a mark."""
        if not self.skip(mark):
            came = self._text[self._at : self._at + 20]
            self.fail(f"wanted {mark!r}, got {came!r}" if came else f"the file ends too early, wanted {mark!r}")

    def end(self) -> None:
        """Make sure that nothing follows."""
        self._skip_blanks()
        if self._at < len(self._text):
            self.fail(f"wanted the end of the file, got {self._text[self._at : self._at + 20]!r}")

    def fail(self, what: str) -> Any:
        """Raise InvalidCatalogue with the place in the file."""
        raise InvalidCatalogue(f"{self._path}: {what} (at character {self._before + self._at})")

    def _skip_blanks(self) -> None:
        while True:
            while self._at < len(self._text) and self._text[self._at] in _BLANKS:
                self._at += 1
            if self._at < len(self._text) or self._complete:
                return
            self._more()

    def _more(self) -> None:
        # A long value doubles what is read, so that trying it again and again stays cheap.
        rest = self._text[self._at :]
        try:
            read = self._file.read(max(_CHUNK, len(rest)))
        except UnicodeDecodeError as error:
            self.fail(f"the file is not UTF-8 behind this place: {error.reason}")
        self._before += self._at
        self._text, self._at = rest + read, 0
        self._complete = not read
        if self._progress is not None:
            self._progress(self._file.buffer.tell(), self._size)
