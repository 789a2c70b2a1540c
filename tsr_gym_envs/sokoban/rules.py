"""Sokoban's rules on bitboards: a set of cells is one Python integer, bit `row * width + column`.

Invariant: walls enclose every cell that a player or a box can reach, so a shifted bit never wraps around a row.
"""

from codecs import charmap_decode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

from tsr_gym.state_env import new_tuple

ACTIONS = ("Up", "Down", "Left", "Right")
LURD = "udlr"


# Codes of a board's cells: a cell without wall is FLOOR, plus 1 on a goal, plus BOX or PLAYER where one stands.
WALL, FLOOR, GOAL, BOX, PLAYER = 0, 1, 2, 2, 4
# The outside of a ragged outline, until it is drawn.
_OUTSIDE = 7
_NEWLINE = ord("\n")


# Without slots, because what is worked out on first use is kept in the object.
@dataclass(frozen=True)
class Level:
    """What never changes in a level.

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
        """What each of `ACTIONS` adds to a cell's number."""
        return (-self.width, self.width, -1, 1)

    @cached_property
    def canvas(self) -> "Canvas":
        """The board without pieces, ready to be drawn on."""
        ones = [1 << 8 * (cell + cell // self.width) for cell in range(self.height * self.width)]
        newlines = sum(_NEWLINE * ones[cell] << 8 for cell in range(self.width - 1, len(ones) - 1, self.width))
        kinds = ((~self.walls, FLOOR), (self.goals, GOAL - FLOOR), (self.outside, _OUTSIDE))
        codes = sum(code * one for board, code in kinds for cell, one in enumerate(ones) if board >> cell & 1)
        boxes, players = (tuple(code * one for one in ones) for code in (BOX, PLAYER))
        return Canvas(newlines + codes, boxes, players, self.height * (self.width + 1) - 1)


class Canvas(NamedTuple):
    """A board as one number.

    Its digits to the base 256, lowest first, are the codes of the cells, row by row, with newlines between the rows. So
    a piece is placed by an addition, and the number's bytes are the board's text in other letters.

    Attributes:
        board: The board without pieces.
        boxes: What a box on each cell adds.
        players: What the player on each cell adds.
        size: How many digits there are.
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
    """What Sokoban pays, per action that is carried out (TSR D.1, gym-sokoban)."""

    step: float = -0.1
    box: float = 1.0
    done: float = 10.0


def cells(board: int) -> list[int]:
    """Return the numbers of a bitboard's cells in ascending order.

    >>> cells(0b10010)
    [1, 4]
    """
    found = []
    while board:
        low = board & -board
        found.append(low.bit_length() - 1)
        board ^= low
    return found


def push(state: SokobanState, action: int) -> SokobanState:
    """Return the position after a move or push; the same object where something stands in the way.

    Args:
        state: The position.
        action: Index into `ACTIONS`.
    """
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
    """Return what one action paid.

    The step reward, plus or minus the box reward where a box came onto or left a goal, plus the final reward where
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
            for kind in {"*": ".$", "+": ".@"}.get(glyph, glyph):
                if kind in boards:
                    boards[kind] |= 1 << (row * width + column)
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
    area = 1 << state.player
    while True:
        grown = (area | area << 1 | area >> 1 | area << width | area >> width) & free
        if grown == area:
            return area
        area = grown
