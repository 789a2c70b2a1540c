"""Levels as text: XSB boards, Boxoban files, run-length boards, and what is wrong with them.

XSB characters: ``#`` wall, blank (also ``-`` and ``_``) floor, ``.`` goal, ``$`` box, ``*`` box on goal, ``@`` player,
``+`` player on goal. In a run-length row a count repeats the next character and ``|`` ends a row.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tsr_gym.errors import InvalidLevel
from tsr_gym_envs.sokoban.rules import Level, SokobanState, boards_of, cells
from tsr_gym_envs.sokoban.runlength import expand_runs
from tsr_gym_envs.sokoban.symmetry import canonical_form

__all__ = ["LevelFiles", "SokobanState", "canonical_form", "parse_level", "parse_xsb"]

_BOARD = frozenset("# .$*@+-_")
_RUNS = frozenset("0123456789|")
# How lines about a level begin; of these only a title is kept.
_KEYS = (
    "author",
    "collection",
    "comment",
    "comment-end",
    "copyright",
    "date",
    "email",
    "homepage",
    "solution",
    "title",
)
MAX_SIDE = 64


class TitledLevel(NamedTuple):
    """A level of a collection.

    Attributes:
        title: What the file calls it, maybe nothing.
        state: Its starting position.
    """

    title: str
    state: SokobanState


class _Block(NamedTuple):
    """One level's lines as they stand in a file, each with its number."""

    title: str
    lines: tuple[tuple[int, str], ...]


class _Row(NamedTuple):
    """One row of a board, and the number of the line that holds it."""

    line: int
    text: str


def parse_xsb(text: str, *, source: str = "text") -> list[SokobanState]:
    r"""Return the levels of a text, one or several.

    Lines that are not a board (titles, comments after ``;``, blank lines) separate levels.

    Args:
        text: XSB or Boxoban text.
        source: What errors call the text, such as a file name.

    Raises:
        InvalidLevel: A level is malformed; the message names source, level number, row and column, counted from 1.

    >>> state = parse_xsb("#####\n#@$.#\n#####")[0]
    >>> print(state.to_xsb())
    #####
    #@$.#
    #####
    >>> parse_xsb("5#|#@$.#|5#") == [state]
    True
    """
    return [level.state for level in parse_collection(text, source=source)]


def parse_collection(text: str, *, source: str = "text") -> list[TitledLevel]:
    """Return the levels of a text with their titles.

    A title is what a ``Title:`` line below the board says, or else the last line before the board, such as ``; 12``.

    Raises:
        InvalidLevel: See `parse_xsb`.
    """
    levels = [
        TitledLevel(block.title, _to_state(_rows(block, f"{source}, level {number}"), f"{source}, level {number}"))
        for number, block in enumerate(_blocks(text), start=1)
    ]
    if not levels:
        raise InvalidLevel(f"{source}: wanted at least one level drawn with # . $ * @ +, got none")
    return levels


def to_collection(levels: Iterable[TitledLevel]) -> str:
    """Return a text of which `parse_collection` makes the same levels; titles are put on one line."""
    parts = []
    for title, state in levels:
        # A blank line would end the board.
        parts += [row or "-" for row in state.to_xsb().split("\n")]
        parts += [f"Title: {' '.join(title.split())}", ""] if title.strip() else [""]
    return "\n".join(parts)


def parse_level(text: str, *, source: str = "level") -> SokobanState:
    """Return the one level of a text.

    Raises:
        InvalidLevel: The text is malformed or holds several levels.
    """
    levels = parse_xsb(text, source=source)
    if len(levels) != 1:
        raise InvalidLevel(f"{source}: wanted one level, got {len(levels)}")
    return levels[0]


class LevelFiles:
    """The levels of a file, or of all ``*.txt`` and ``*.xsb`` files under a folder, picked by number.

    Files are listed at once and read when a level of theirs is first picked; the last few stay in memory.

    Args:
        path: A file or a folder.
        split: Name of a folder below `path` to which the choice is limited, such as ``"train"``.
    """

    def __init__(self, path: str | Path, *, split: str | None = None) -> None:
        root = Path(path)
        if not root.exists():
            raise InvalidLevel(f"{root}: no such file or folder of levels")
        files = [root] if root.is_file() else sorted(p for p in root.rglob("*") if p.suffix in (".txt", ".xsb", ".sok"))
        if split is not None and root.is_dir():
            files = [file for file in files if split in file.relative_to(root).parts[:-1] or root.name == split]
        if not files:
            raise InvalidLevel(
                f"{root}: wanted .txt, .xsb or .sok files{f' in a folder {split!r}' if split else ''}, got none"
            )
        self.files = tuple(files)
        self._cache: dict[Path, list[SokobanState]] = {}

    def read(self, file: int) -> list[SokobanState]:
        """Return the levels of the file with this number."""
        path = self.files[file]
        if path not in self._cache:
            if len(self._cache) >= 4:
                self._cache.pop(next(iter(self._cache)))
            self._cache[path] = parse_xsb(path.read_text(encoding="utf-8", errors="replace"), source=str(path))
        return self._cache[path]

    def first(self, number: int | None) -> list[SokobanState]:
        """Return the levels of all files in order, at most so many; None for all."""
        levels: list[SokobanState] = []
        for file in range(len(self.files)):
            if number is not None and len(levels) >= number:
                break
            levels += self.read(file)
        return levels[:number]


def _is_row(line: str, inside: bool) -> bool:
    """Return whether a line is part of a board; a line that only resembles one is, so that its fault is reported."""
    stripped = line.strip()
    if not stripped or stripped.startswith(";") or _key_of(stripped):
        return False
    glyphs = set(stripped)
    if glyphs <= _BOARD:
        return inside or "#" in glyphs
    # A run-length row, a row with a foreign character in it, or words that mention a #.
    return "#" in glyphs and (inside or glyphs <= _BOARD | _RUNS or stripped.lstrip("0123456789").startswith("#"))


def _blocks(text: str) -> list[_Block]:
    blocks: list[_Block] = []
    lines: list[tuple[int, str]] = []
    heading = ""
    for number, line in enumerate((*text.splitlines(), ""), start=1):
        if _is_row(line, bool(lines)):
            lines.append((number, line))
            continue
        if lines:
            blocks.append(_Block(heading, tuple(lines)))
            lines, heading = [], ""
        note = line.strip().lstrip(";").strip()
        key = _key_of(note)
        value = note[len(key) + 1 :].strip() if key else note
        if key == "title" and blocks and not blocks[-1].title:
            blocks[-1] = blocks[-1]._replace(title=value)
        elif value and key in ("title", ""):
            heading = value
    return blocks


def _key_of(note: str) -> str:
    """Return what a line about a level begins with, in lower case, nothing where it is another line."""
    key = note.partition(":")[0].lower()
    return key if key in _KEYS and len(key) < len(note) else ""


def _rows(block: _Block, where: str) -> list[_Row]:
    rows: list[_Row] = []
    for number, line in block.lines:
        if _RUNS.isdisjoint(line):
            rows.append(_Row(number, line.rstrip(" \t-_")))
            continue
        for text in line.strip().split("|"):
            try:
                rows.append(_Row(number, expand_runs(text, MAX_SIDE).rstrip(" -_")))
            except ValueError as error:
                raise InvalidLevel(f"{where}, row {len(rows) + 1}, {error} (line {number})") from None
    while not rows[-1].text:
        rows.pop()
    while not rows[0].text:
        rows.pop(0)
    return rows


def _to_state(rows: Sequence[_Row], where: str) -> SokobanState:
    height, width = len(rows), max(len(row.text) for row in rows)
    if height > MAX_SIDE or width > MAX_SIDE:
        raise InvalidLevel(f"{where}: wanted at most {MAX_SIDE}x{MAX_SIDE} cells, got {height}x{width}")
    for index, row in enumerate(rows):
        for column, glyph in enumerate(row.text):
            if glyph not in _BOARD:
                at = _at(rows, index, column)
                raise InvalidLevel(f"{where}, {at}: unknown character {glyph!r}; wanted one of # . $ * @ + or blank")
    walls, goals, boxes, players = boards_of([row.text for row in rows]).values()
    _check_pieces(where, width, goals, boxes, players)
    outside = _outside(height, width, walls)
    if leaked := cells(outside & (goals | boxes | players)):
        at = _at(rows, *divmod(leaked[0], width))
        raise InvalidLevel(f"{where}, {at}: the boundary is open: this cell is connected to the outside")
    return SokobanState(Level(height, width, walls | outside, goals, outside), boxes, players.bit_length() - 1)


def _check_pieces(where: str, width: int, goals: int, boxes: int, players: int) -> None:
    if players.bit_count() != 1:
        at = "".join(f" ({cell // width + 1}, {cell % width + 1})" for cell in cells(players))
        raise InvalidLevel(f"{where}: wanted one player, got {players.bit_count()}{at and ' at' + at}")
    if not goals:
        raise InvalidLevel(f"{where}: wanted at least one goal, got none")
    if boxes.bit_count() != goals.bit_count():
        raise InvalidLevel(
            f"{where}: wanted as many boxes as goals, got {boxes.bit_count()} boxes and {goals.bit_count()} goals"
        )


def _outside(height: int, width: int, walls: int) -> int:
    """Return the cells without walls that are connected to the rectangle's rim."""
    full = (1 << height * width) - 1
    left = sum(1 << (row * width) for row in range(height))
    right = left << (width - 1)
    top = (1 << width) - 1
    rim = left | right | top | top << (width * (height - 1))
    area = rim & ~walls
    while True:
        sideways = (area & ~left) >> 1 | (area & ~right) << 1
        grown = (area | sideways | area << width | area >> width) & full & ~walls
        if grown == area:
            return area
        area = grown


def _at(rows: Sequence[_Row], row: int, column: int) -> str:
    return f"row {row + 1}, column {column + 1} (line {rows[row].line})"
