"""Canonical forms: one for all rotations, reflections and translations, and only for those."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tsr_gym_envs.sokoban.boards import boards, state_of
from tsr_gym_envs.sokoban.rules import cells, reachable
from tsr_gym_envs.sokoban.symmetry import canonical_form
from tsr_gym_envs.split import symmetries


def turned(rows, turns, mirrored):
    """Return rows turned and mirrored by numpy."""
    board = np.rot90(np.array([list(row) for row in rows]), turns)
    return ["".join(row) for row in (board[:, ::-1] if mirrored else board)]


def padded(rows, above, below, left, right):
    width = len(rows[0]) + left + right
    body = [f"{'#' * left}{row}{'#' * right}" for row in rows]
    return ["#" * width] * above + body + ["#" * width] * below


margins = st.tuples(*[st.integers(0, 3)] * 4)


@given(boards(max_side=5), st.integers(0, 3), st.booleans(), margins)
def test_all_views_of_a_board_have_one_canonical_form(rows, turns, mirrored, margin):
    other = padded(turned(rows, turns, mirrored), *margin)
    assert canonical_form(state_of(other)) == canonical_form(state_of(rows))


def trimmed(rows):
    """Return a board cut down to its floor with one ring of wall."""
    board = np.array([list(row) for row in rows])
    used = np.argwhere(board != "#")
    (top, left), (bottom, right) = used.min(axis=0) - 1, used.max(axis=0) + 2
    return tuple("".join(row) for row in board[top:bottom, left:right])


@settings(max_examples=200)
@given(boards(max_side=3, max_boxes=1), boards(max_side=3, max_boxes=1))
def test_boards_that_are_no_views_of_each_other_have_different_forms(one, other):
    views = {tuple(turned(trimmed(one), turns, mirrored)) for turns in range(4) for mirrored in (False, True)}
    same = canonical_form(state_of(one)) == canonical_form(state_of(other))
    assert same == (trimmed(other) in views)


@given(boards(max_side=5))
def test_a_canonical_form_is_its_own(rows):
    form = canonical_form(state_of(rows))
    assert canonical_form(form) == form


@given(boards(max_side=4), st.integers(0, 10))
def test_with_the_players_region_all_cells_of_a_walk_are_one(rows, pick):
    state = state_of(rows)
    area = cells(reachable(state))
    moved = state._replace(player=area[pick % len(area)])
    assert canonical_form(moved, player_region=True) == canonical_form(state, player_region=True)


def test_two_sides_of_a_wall_are_two_regions():
    left, right = (state_of(["#######", row, "#######"]) for row in ("#@ $. #", "#  $.@#"))
    assert canonical_form(left, player_region=True) != canonical_form(right, player_region=True)


def test_the_outside_of_a_ragged_outline_counts_as_wall():
    ragged = state_of(["  ####", "###.@#", "#  $ #", "######"])
    full = state_of(["######", "###.@#", "#  $ #", "######"])
    assert ragged != full
    assert canonical_form(ragged) == canonical_form(full)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 10**6))
def test_the_eight_views_of_a_rectangle_are_numpys(height, width, seed):
    letters = np.random.default_rng(seed).choice(list("abc"), (height, width))
    rows = tuple("".join(row) for row in letters)
    wanted = {tuple(turned(rows, turns, mirrored)) for turns in range(4) for mirrored in (False, True)}
    assert len(symmetries(rows)) == 8
    assert set(symmetries(rows)) == wanted
