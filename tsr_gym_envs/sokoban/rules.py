"""Sokoban's rules on bitboards, and a position as text: a set of cells is one integer, bit `row * width + column`.

Invariant: walls enclose every cell that a player or a box can reach, so a shifted bit never wraps around a row.
"""

from codecs import charmap_decode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

from tsr_gym.state_env import new_tuple
from tsr_gym_envs.tiles import square, symmetries

ACTIONS = ("Up", "Down", "Left", "Right")
LURD = "udlr"


# Codes of a board's cells: a cell without wall is FLOOR, plus 1 on a goal, plus BOX or PLAYER where one stands.
WALL, FLOOR, GOAL, BOX, PLAYER = 0, 1, 2, 2, 4
# The outside of a ragged outline, until it is drawn.
_OUTSIDE = 7
_NEWLINE = ord("\n")


# No slots, because cached properties are stored in the object.
@dataclass(frozen=True)
class Level:
    """The parts of a level that never change.

    Attributes:
        height: Rows.
        width: Columns.
        walls: Cells that nothing enters, the outside of a ragged outline included.
        goals: Cells that boxes belong on.
        outside: The part of `walls` that files write as blanks.
    """

    height: int
    width: int
    walls: int
    goals: int
    outside: int = 0

    @cached_property
    def offsets(self) -> tuple[int, int, int, int]:
        """The number that each of `ACTIONS` adds to a cell."""
        return (-self.width, self.width, -1, 1)

    @cached_property
    def canvas(self) -> "Canvas":
        """The board without pieces, ready to be drawn on."""
        digits = [1 << 8 * (cell + cell // self.width) for cell in range(self.height * self.width)]
        newlines = sum(_NEWLINE * digits[cell] << 8 for cell in range(self.width - 1, len(digits) - 1, self.width))
        parts = ((~self.walls, FLOOR), (self.goals, GOAL - FLOOR), (self.outside, _OUTSIDE))
        codes = sum(code * digit for board, code in parts for cell, digit in enumerate(digits) if board >> cell & 1)
        boxes, players = (tuple(code * digit for digit in digits) for code in (BOX, PLAYER))
        return Canvas(newlines + codes, boxes, players, self.height * (self.width + 1) - 1)

    @cached_property
    def squares(self) -> tuple[str, ...]:
        """The name of each cell, as in chess, counted inside the outer ring; see `compact`."""
        return tuple(square(cell // self.width - 1, cell % self.width - 1) for cell in range(self.height * self.width))

    @cached_property
    def ground(self) -> str:
        """The goals and the inner walls in the words of `compact`."""
        parts = (("O", self.goals), ("#", self.walls & inside(self)))
        return " ".join(f"{sign} {_squares(self, board)}" for sign, board in parts if board)

    def __reduce__(self) -> tuple[type["Level"], tuple[int, ...]]:
        # Without the properties, which another process computes again.
        return Level, (self.height, self.width, self.walls, self.goals, self.outside)

    # Kept with the level, because the hash of a whole position takes longer than a text.
    @cached_property
    def grids(self) -> "Texts":
        """The texts of `grid` so far, by boxes and player."""
        return {}

    @cached_property
    def compacts(self) -> "Texts":
        """The texts of `compact` so far, by boxes and player."""
        return {}


Texts = dict[tuple[int, int], str]
# Texts of each form that a level keeps.
MOST_TEXTS = 1 << 10


class Canvas(NamedTuple):
    """A board as one number.

    Its digits to the base 256, lowest first, are the codes of the cells, row by row, with newlines between the rows. So
    a piece is placed by an addition, and the number's bytes are the board's text in other letters.

    Attributes:
        board: The board without pieces.
        boxes: By cell, the number that a box adds.
        players: By cell, the number that the player adds.
        size: Number of digits.
    """

    board: int
    boxes: tuple[int, ...]
    players: tuple[int, ...]
    size: int


class SokobanState(NamedTuple):
    """A position of Sokoban.

    Attributes:
        level: Walls and goals.
        boxes: Bitboard of the boxes.
        player: Number of the player's cell.
    """

    level: Level
    boxes: int
    player: int

    @property
    def solved(self) -> bool:
        """Whether every box stands on a goal."""
        return self.boxes == self.level.goals

    def to_xsb(self) -> str:
        """Return the board in XSB characters, rows joined by newlines, trailing blanks cut."""
        return "\n".join(row.rstrip() for row in draw(self, "# .$*@+").split("\n"))


class Rewards(NamedTuple):
    """The rewards of an executed action (TSR D.1, gym-sokoban)."""

    step: float = -0.1
    box: float = 1.0
    done: float = 10.0


def cells(board: int) -> list[int]:
    """Return the numbers of a bitboard's cells in ascending order.

    >>> cells(0b10010)
    [1, 4]
    """
    numbers = []
    while board:
        low = board & -board
        numbers.append(low.bit_length() - 1)
        board ^= low
    return numbers


def push(state: SokobanState, action: int) -> SokobanState:
    """Return the position after a move or push; the same object if a wall or box blocks it.

    Args:
        state: The position.
        action: Index into `ACTIONS`.
    """
    # Searches call this function most. The state is built by `new_tuple`, which skips the slower `__new__` of the
    # class, and an impossible action returns the same object, so that callers compare identities instead of boards.
    level, boxes, player = state
    offset = level.offsets[action]
    target = player + offset
    if level.walls >> target & 1:
        return state
    if boxes >> target & 1:
        beyond = target + offset
        if (level.walls | boxes) >> beyond & 1:
            return state
        boxes ^= 1 << target | 1 << beyond
    return new_tuple(SokobanState, (level, boxes, target))


def reward_of(before: SokobanState, after: SokobanState, rewards: Rewards) -> float:
    """Return the reward of one action.

    This is the step reward, plus or minus the box reward if a box came onto or left a goal, plus the final reward if
    the level is now solved.
    """
    (level, boxes, _), (_, boxes_before, _) = after, before
    reward, box, done = rewards
    if boxes != boxes_before:
        goals = level.goals
        moved = (boxes & goals).bit_count() - (boxes_before & goals).bit_count()
        if moved:
            reward += box if moved > 0 else -box
        if boxes == goals:
            reward += done
    return reward


def state_key(state: SokobanState) -> bytes:
    """Return the bytes of walls, goals, boxes and player."""
    level, boxes, player = state
    return b"%d %d %x %x %x %d" % (level.height, level.width, level.walls, level.goals, boxes, player)


def paint(state: SokobanState) -> bytes:
    """Return the codes of the cells, row by row, with newlines between the rows."""
    level, boxes, player = state
    board, box_on, player_on, size = level.canvas
    board += player_on[player]
    # A piece is one addition, because the digits of empty cells leave room for it; no carry can occur.
    while boxes:
        cell = boxes.bit_length() - 1
        boxes ^= 1 << cell
        board += box_on[cell]
    return board.to_bytes(size, "little")


def draw(state: SokobanState, glyphs: str) -> str:
    """Return the board as text, rows joined by newlines.

    Args:
        state: The position.
        glyphs: Characters for wall, floor, goal, box, box on goal, player, player on goal. The outside of a ragged
            outline is drawn as floor where floor is a blank, as wall otherwise.
    """
    return charmap_decode(paint(state), "strict", _letters(glyphs))[0]


def boards_of(rows: Sequence[str]) -> dict[str, int]:
    """Return bitboards of walls ``#``, goals ``.``, boxes ``$`` and players ``@``; anything else is floor."""
    boards = {"#": 0, ".": 0, "$": 0, "@": 0}
    width = max(map(len, rows))
    for row, line in enumerate(rows):
        for column, glyph in enumerate(line):
            for part in {"*": ".$", "+": ".@"}.get(glyph, glyph):
                if part in boards:
                    boards[part] |= 1 << (row * width + column)
    return boards


@lru_cache(maxsize=64)
def _letters(glyphs: str) -> str:
    """Return the character of every code, at the code's place."""
    outside = glyphs[FLOOR] if glyphs[FLOOR] == " " else glyphs[WALL]
    return (glyphs + outside).ljust(_NEWLINE) + "\n"


def reachable(state: SokobanState) -> int:
    """Return the bitboard of cells that the player can walk to without pushing."""
    level = state.level
    free = ~(level.walls | state.boxes)
    width = level.width
    # A flood of all cells at a time; the walls around the board stop the shifts at the rim.
    area = 1 << state.player
    while True:
        grown = (area | area << 1 | area >> 1 | area << width | area >> width) & free
        if grown == area:
            return area
        area = grown


def canonical_form(state: SokobanState, *, player_region: bool = False) -> SokobanState:
    """Return the same position for all of its 8 symmetries and translations.

    The board is cut down to its floor and one ring of wall; the smallest of its eight views is the canonical one.

    Args:
        state: The position.
        player_region: Whether all cells that the player can reach without pushing count as the same cell.
    """
    if player_region:
        area = reachable(state)
        views = [_trimmed(state._replace(player=cell)) for cell in cells(area)]
    else:
        views = [_trimmed(state)]
    # The smallest of all views in the order of text is the same for every rotation and reflection.
    rows = min(view for rows in views for view in symmetries(rows))
    walls, goals, boxes, players = boards_of(rows).values()
    return SokobanState(Level(len(rows), len(rows[0]), walls, goals), boxes, players.bit_length() - 1)


def _trimmed(state: SokobanState) -> tuple[str, ...]:
    level = state.level
    whole = state._replace(level=Level(level.height, level.width, level.walls, level.goals))
    rows = draw(whole, "# .$*@+").split("\n")
    used = [index for index, row in enumerate(rows) if row.strip("#")]
    columns = [index for index in range(level.width) if any(row[index] != "#" for row in rows)]
    top, bottom, left, right = used[0] - 1, used[-1] + 2, columns[0] - 1, columns[-1] + 2
    return tuple(row[left:right] for row in rows[top:bottom])


# RAGEN's glyphs for wall, floor, goal, box, box on goal, player, player on goal.
GLYPHS = "#_OX√PS"
# The same by code, the outside drawn as wall, in ASCII first because that is quicker.
_ASCII = bytes.maketrans(bytes(range(8)), (GLYPHS + GLYPHS[0]).replace("√", "*").encode())


def grid(state: SokobanState) -> str:
    """Return the board in RAGEN's glyphs ``# _ O √ X P S``, one row a line."""
    level, boxes, player = state
    text = level.grids.get((boxes, player))
    if text is None:
        text = _keep(level.grids, state, paint(state).translate(_ASCII).decode().replace("*", "√"))
    return text


def _keep(texts: Texts, state: SokobanState, text: str) -> str:
    """Return the text of a position after it was added to those of its level, which are dropped when they are many."""
    if len(texts) >= MOST_TEXTS:
        texts.clear()
    texts[state.boxes, state.player] = text
    return text


def coord(state: SokobanState) -> str:
    """Return RAGEN's coordinate text: row and column of every piece, without pieces that do not occur."""
    level, boxes, player = state
    goals = level.goals
    man = 1 << player
    places = (
        ("Targets", goals & ~boxes & ~man),
        ("Boxes", boxes & ~goals),
        ("Boxes on target", boxes & goals),
        ("Player", man & ~goals),
        ("Player on target", man & goals),
    )
    lines = [f"Board size: {level.height} rows x {level.width} cols (zero-indexed)."]
    lines += [f"{name}: {_places(board, level.width)}" for name, board in places if board]
    return "\n".join(lines)


def grid_coord(state: SokobanState) -> str:
    """Return coordinates and board, as TSR's released code shows them."""
    return f"Coordinates: \n{coord(state)}\nGrid Map: \n{grid(state)}"


def compact(state: SokobanState) -> str:
    """Return a short form for very small models: every piece and inner wall by the name of its square, as in chess.

    An example is ``P b3 X c2 O d4 # a1 a2``: player, boxes, goals, and the walls inside the outer ring; a square's
    letter is its column and its number its row, both within the ring. Every sign and every square is intended to be one
    token.
    """
    # The outer ring is always wall, so it is left out: a 6x6 room has squares a1 to d4.
    level, boxes, player = state
    text = level.compacts.get((boxes, player))
    if text is None:
        moving = f"X {_squares(level, boxes)} " if boxes else ""
        text = _keep(level.compacts, state, f"P {level.squares[player]} {moving}{level.ground}".rstrip())
    return text


def _squares(level: Level, board: int) -> str:
    return " ".join([level.squares[cell] for cell in cells(board)])


@lru_cache(maxsize=64)
def _ring(height: int, width: int) -> int:
    row = (1 << width) - 1
    sides = sum((1 | 1 << width - 1) << number * width for number in range(height))
    return row | row << width * (height - 1) | sides


def inside(level: Level) -> int:
    """Return the cells of a level that are not on its outer ring."""
    return ((1 << level.height * level.width) - 1) & ~_ring(level.height, level.width)


def _places(board: int, width: int) -> str:
    return ", ".join(f"({cell // width}, {cell % width})" for cell in cells(board))


OBSERVATIONS: dict[str, Callable[[SokobanState], str]] = {
    "grid": grid,
    "coord": coord,
    "grid_coord": grid_coord,
    "compact": compact,
}
