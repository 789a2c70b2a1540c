"""Levels and solutions as text: XSB boards, Boxoban files, run-length boards, LURD solutions, and their errors.

XSB characters: ``#`` wall, blank (also ``-`` and ``_``) floor, ``.`` goal, ``$`` box, ``*`` box on goal, ``@`` player,
``+`` player on goal. In a run-length row a count repeats the next character and ``|`` ends a row. In a solution
``l u r d`` move and ``L U R D`` push; a count before a letter repeats it.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tsr_gym.errors import InvalidLevel
from tsr_gym_envs.sokoban.rules import LURD, Level, SokobanState, boards_of, cells, push

_BOARD = frozenset("# .$*@+-_")
_RUNS = frozenset("0123456789|")
# First words of lines that describe a level; only the title is kept.
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
        title: Its title in the file, empty without one.
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
        source: Name of the text in errors, such as a file name.

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

    A title is the text of a ``Title:`` line below the board, or else the last line before the board, such as ``; 12``.

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
    """Return the text that `parse_collection` reads back into the same levels; a title becomes one line."""
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
        split: Name of the folder below `path` whose files count, such as ``"train"``.
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
        """Return the first `number` levels of all files in order, all levels for None."""
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
    # The line is a run-length row, a row with a foreign character, or prose that mentions a #. A faulty row must count
    # as a row: as prose it would be skipped, and the level would lose a row without an error.
    return "#" in glyphs and (inside or glyphs <= _BOARD | _RUNS or stripped.lstrip("0123456789").startswith("#"))


def _blocks(text: str) -> list[_Block]:
    blocks: list[_Block] = []
    lines: list[tuple[int, str]] = []
    heading = ""
    # The empty line at the end closes the last board. A title below a board belongs to it only if the board has none,
    # and any other text becomes the heading of the next board.
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
    """Return the key that a line about a level begins with, in lower case; an empty text for any other line."""
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
    # The outside becomes wall, so that no shifted bit of the bitboards leaves the board. A piece on it means that the
    # boundary has a gap.
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
    # A flood from the rim, all cells at a time: the masks of the first and last column keep a shift from wrapping
    # around to the neighbouring row.
    area = rim & ~walls
    while True:
        sideways = (area & ~left) >> 1 | (area & ~right) << 1
        grown = (area | sideways | area << width | area >> width) & full & ~walls
        if grown == area:
            return area
        area = grown


def _at(rows: Sequence[_Row], row: int, column: int) -> str:
    return f"row {row + 1}, column {column + 1} (line {rows[row].line})"


def expand_runs(text: str, max_length: int) -> str:
    """Return the text with its runs written out.

    Raises:
        ValueError: A count is 0 or at the end, or the result is longer than `max_length`; the message begins with the
            column of the result where that happens, counted from 1.

    >>> expand_runs("3#2-$", 64)
    '###--$'
    """
    parts: list[str] = []
    length, count = 0, ""
    for glyph in text:
        if "0" <= glyph <= "9":
            # A count with more digits than the limit is never allowed. It is cut instead of converted, because
            # converting a million digits takes quadratic time.
            count = (count + glyph)[: len(str(max_length)) + 1]
            continue
        run = int(count) if count else 1
        if not 1 <= run <= max_length - length:
            raise ValueError(
                f"column {length + 1}: wanted at most {max_length} columns in runs of 1 or more, got {run}"
            )
        parts.append(glyph * run)
        length += run
        count = ""
    if count:
        raise ValueError(f"column {length + 1}: wanted a character after the count {count}, got the end")
    return "".join(parts)


MAX_LENGTH = 1_000_000


def parse_lurd(text: str) -> tuple[int, ...]:
    """Return the actions of a solution as indices into `rules.ACTIONS`; blanks and line ends are skipped.

    Raises:
        InvalidLevel: A character is none of ``l u r d L U R D``, or a count is impossible.

    >>> parse_lurd("u2R")
    (0, 3, 3)
    """
    return tuple(LURD.index(letter.lower()) for letter in _letters(text))


def play_lurd(state: SokobanState, lurd: str) -> SokobanState:
    """Return the position after a solution; every letter is checked, so that the result can serve as a proof.

    Raises:
        InvalidLevel: A step runs into something, moves where it should push, or pushes where it should move.
    """
    for number, letter in enumerate(_letters(lurd), start=1):
        after = push(state, LURD.index(letter.lower()))
        if after is state:
            raise InvalidLevel(f"solution, letter {number}: wanted a free cell for {letter!r}, got an obstacle")
        if (after.boxes != state.boxes) != letter.isupper():
            wanted, got = ("push", "move") if letter.isupper() else ("move", "push")
            raise InvalidLevel(f"solution, letter {number}: wanted a {wanted} for {letter!r}, got a {got}")
        state = after
    return state


def lurd_of_boards(state: SokobanState, boards: Sequence[int]) -> str:
    """Return a shortest LURD text that makes the pushes in the given order.

    Args:
        state: The position before the first push.
        boards: Bitboards of the boxes after each push.
    """
    letters = []
    for boxes in boards:
        origin = (state.boxes & ~boxes).bit_length() - 1
        target = (boxes & ~state.boxes).bit_length() - 1
        action = state.level.offsets.index(target - origin)
        letters += [LURD[step] for step in walk_to(state, 2 * origin - target)]
        letters.append(LURD[action].upper())
        state = SokobanState(state.level, boxes, origin)
    return "".join(letters)


def walk_to(state: SokobanState, cell: int) -> list[int]:
    """Return a shortest walk to a cell that the player can reach, as indices into `rules.ACTIONS`."""
    level = state.level
    width, free = level.width, ~(level.walls | state.boxes)
    # Breadth-first search on bitboards, one integer per distance, until the cell is reached.
    layers = [1 << state.player]
    seen = layers[0]
    while not layers[-1] >> cell & 1:
        rim = layers[-1]
        rim = (rim << 1 | rim >> 1 | rim << width | rim >> width) & free & ~seen
        if not rim:
            raise ValueError(f"wanted a cell that the player can reach, got {cell}")
        seen |= rim
        layers.append(rim)
    # Backwards from the cell: each earlier layer holds a neighbour one step nearer to the player.
    steps = []
    for layer in layers[-2::-1]:
        action = next(action for action, offset in enumerate(level.offsets) if layer >> (cell - offset) & 1)
        steps.append(action)
        cell -= level.offsets[action]
    return steps[::-1]


def _letters(text: str) -> str:
    try:
        letters = expand_runs("".join(text.split()), MAX_LENGTH)
    except ValueError as error:
        raise InvalidLevel(f"solution, {error}") from None
    for number, letter in enumerate(letters, start=1):
        if letter not in "lurdLURD":
            raise InvalidLevel(f"solution, letter {number}: wanted one of l u r d L U R D, got {letter!r}")
    return letters
