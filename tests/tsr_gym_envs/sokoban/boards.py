"""Sokoban played naively on character grids: the plain twin that the tests compare the bitboards with."""

import json
from collections import deque

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.conftest import NOT_THERE, SHARED
from tsr_gym_envs.sokoban.levels import parse_level

STEPS = {"Up": (-1, 0), "Down": (1, 0), "Left": (0, -1), "Right": (0, 1)}
NAMES = list(STEPS)


def move(rows, name):
    """Return the rows after an action, in XSB characters."""
    grid = [list(row) for row in rows]
    row, column = next((r, c) for r, line in enumerate(grid) for c, glyph in enumerate(line) if glyph in "@+")
    down, right = STEPS[name]
    there, beyond = (row + down, column + right), (row + 2 * down, column + 2 * right)

    def at(place):
        inside = 0 <= place[0] < len(grid) and 0 <= place[1] < len(grid[place[0]])
        return grid[place[0]][place[1]] if inside else "#"

    def put(place, on_floor, on_goal):
        grid[place[0]][place[1]] = on_goal if at(place) in ".*+" else on_floor

    if at(there) in "$*":
        if at(beyond) not in " .":
            return list(rows)
        put(beyond, "$", "*")
    elif at(there) not in " .":
        return list(rows)
    put((row, column), " ", ".")
    put(there, "@", "+")
    return ["".join(line) for line in grid]


def solved(rows):
    return not any("$" in row for row in rows)


def fewest_moves(rows, limit=None):
    """Return the length of a shortest solution by breadth-first search, None without a solution."""
    start = tuple(rows)
    seen, queue = {start: 0}, deque([start])
    while queue:
        here = queue.popleft()
        if solved(here):
            return seen[here]
        if limit is not None and seen[here] == limit:
            continue
        for name in NAMES:
            after = tuple(move(here, name))
            if after not in seen:
                seen[after] = seen[here] + 1
                queue.append(after)
    return None


def labelled(path):
    """Return (row, position) for each row of a file of labelled positions, named by its path below ../shared."""
    if not SHARED.is_dir():
        pytest.skip(NOT_THERE)
    rows = [json.loads(line) for line in (SHARED / path).read_text(encoding="utf-8").splitlines()]
    return [(row, parse_level("\n".join(row["rows"]))) for row in rows]


def state_of(rows):
    return parse_level("\n".join(rows))


def rows_of(state):
    width = state.level.width
    return [row.ljust(width) for row in state.to_xsb().split("\n")]


@st.composite
def boards(draw, max_side=4, max_boxes=3):
    """Draw an enclosed board with as many boxes as goals, anywhere, solvable or not."""
    height, width = draw(st.integers(1, max_side)), draw(st.integers(2, max_side))
    places = [(row, column) for row in range(height) for column in range(width)]
    free = draw(st.permutations(places))
    boxes = draw(st.integers(1, max(1, min(max_boxes, len(free) // 2))))
    grid = [[" "] * width for _ in range(height)]
    for row, column in free[: draw(st.integers(0, max(0, len(free) - 2 * boxes - 1)))]:
        grid[row][column] = "#"
    open_cells = [place for place in draw(st.permutations(places)) if grid[place[0]][place[1]] == " "]
    goals = set(draw(st.permutations(open_cells))[:boxes])
    for number, (row, column) in enumerate(open_cells[: boxes + 1]):
        piece = "$" if number < boxes else "@"
        grid[row][column] = {"$": "*", "@": "+"}[piece] if (row, column) in goals else piece
    for row, column in goals - set(open_cells[: boxes + 1]):
        grid[row][column] = "."
    side = "#" * (width + 2)
    return [side, *(f"#{''.join(line)}#" for line in grid), side]


def trimmed(rows):
    """Return a board cut down to its floor with one ring of wall."""
    board = np.array([list(row) for row in rows])
    used = np.argwhere(board != "#")
    (top, left), (bottom, right) = used.min(axis=0) - 1, used.max(axis=0) + 2
    return tuple("".join(row) for row in board[top:bottom, left:right])


def turned(rows, turns, mirrored):
    """Return rows turned and mirrored by numpy."""
    board = np.rot90(np.array([list(row) for row in rows]), turns)
    return ["".join(row) for row in (board[:, ::-1] if mirrored else board)]
