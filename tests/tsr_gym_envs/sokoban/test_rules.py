"""Sokoban's rules on bitboards against a naive twin on character grids, and against the real gym-sokoban.

Canonical forms: one for all rotations, reflections and translations, and only for those.
"""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tsr_gym_envs.sokoban.boards import NAMES, boards, move, rows_of, solved, state_of, trimmed, turned
from tsr_gym_envs.sokoban import rules
from tsr_gym_envs.sokoban.rules import ACTIONS, Rewards, canonical_form, cells, draw, push, reachable, reward_of
from tsr_gym_envs.tiles import symmetries


@given(boards(max_side=6), st.lists(st.integers(0, 3), max_size=25))
def test_pushing_does_what_the_naive_twin_does(rows, actions):
    assert list(ACTIONS) == NAMES
    state = state_of(rows)
    for action in actions:
        before = state
        after, state = move(rows, ACTIONS[action]), push(state, action)
        # An impossible move returns the very same state.
        assert (state is before) == (after == rows)
        rows = after
        assert (rows_of(state), state.solved) == (rows, solved(rows))


def boxes_on_goals(rows):
    return sum(row.count("*") for row in rows)


def sign(number):
    return (number > 0) - (number < 0)


def test_boards_rewards_and_ends_are_gym_sokobans_for_its_pushes(golden):
    compared = 0
    for row in golden("sokoban/gym_sokoban_traj.jsonl"):
        rows = row["rows"]
        for number, (action, reward, done, moved_player, moved_box, board) in enumerate(row["steps"], start=1):
            after_rows = [line.ljust(len(rows[0])) for line in board.split("/")]
            # 1 to 4 push up, down, left and right; 0 waits and 5 to 8 walk without ever pushing.
            if 1 <= action <= 4:
                before = state_of(rows)
                after = push(before, action - 1)
                assert rows_of(after) == after_rows
                assert (after.player != before.player) == (moved_player or moved_box)
                assert (after.boxes != before.boxes) == moved_box
                expected = reward_of(before, after, Rewards())
                if number == 1:
                    # gym-sokoban counts no box on a target before the first step, wherever the boxes are, and pays
                    # for a level that was solved from the start.
                    there = boxes_on_goals(after_rows)
                    expected += sign(there) - sign(there - boxes_on_goals(rows))
                    expected += 10.0 * (solved(rows) and solved(after_rows) and before.boxes == after.boxes)
                assert reward == pytest.approx(expected)
                assert done == (after.solved or number == row["max_steps"])
                compared += 1
            rows = after_rows
    assert compared > 3000


ROOM = ["######", "#@$. #", "#  $.#", "#    #", "######"]


@pytest.mark.parametrize(
    ("rows", "name", "reward"),
    [
        (ROOM, "Down", 0.25),  # a walk
        (ROOM, "Up", 0.25),  # against a wall
        (ROOM, "Right", 0.25 + 2.0),  # a box onto a goal
        (["#######", "#@*$. #", "#######"], "Right", 0.25),  # against two boxes
        (["#######", "#@* $.#", "#######"], "Right", 0.25 - 2.0),  # a box off its goal
        (["#######", "#@*.$ #", "#######"], "Right", 0.25),  # from goal to goal
        (["######", "#@$. #", "######"], "Right", 0.25 + 2.0 + 30.0),  # the last box
    ],
)
def test_an_action_pays_its_step_its_box_and_the_end(rows, name, reward):
    before = state_of(rows)
    assert reward_of(before, push(before, NAMES.index(name)), Rewards(0.25, 2.0, 30.0)) == reward


@given(boards(max_side=5))
def test_a_position_is_drawn_in_any_glyphs(rows):
    state = state_of(rows)
    glyphs = dict(zip("# .$*@+", "WFGBTPS", strict=True))
    assert draw(state, "WFGBTPS") == "\n".join("".join(glyphs[glyph] for glyph in row) for row in rows)
    ragged = state_of(["  ####", "###.@#", "# $  #", "######"])
    assert ragged.to_xsb() == "  ####\n###.@#\n# $  #\n######"
    assert draw(ragged, "#_OX√PS").split("\n")[0] == "######"


@pytest.mark.parametrize("most", [2, 1000])
@given(rows=boards(max_side=5), actions=st.lists(st.integers(0, 3), max_size=25))
def test_kept_texts_are_those_of_the_position(most, rows, actions):
    state = state_of(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rules, "MOST_TEXTS", most)
        for action in actions * 2:
            state = push(state, action)
            assert rules.grid(state) == draw(state, rules.GLYPHS)
            assert rules.compact(state) == rules.compact(state_of(rows_of(state)))
            assert len(state.level.grids) <= most
            assert len(state.level.compacts) <= most


def test_a_level_goes_to_another_process_without_its_texts():
    level = state_of(["######", "#@ $.#", "######"]).level
    before = pickle.dumps(level)
    rules.grid(rules.SokobanState(level, 1 << 9, 7))
    assert pickle.dumps(level) == before
    assert pickle.loads(before) == level


@given(boards(max_side=5))
def test_the_reachable_cells_are_those_that_a_walk_visits(rows):
    state = state_of(rows)
    width = len(rows[0])
    seen, queue = {state.player}, [state.player]
    while queue:
        row, column = divmod(queue.pop(), width)
        for down, right in ((0, 1), (1, 0), (0, -1), (-1, 0)):
            cell = (row + down) * width + column + right
            if rows[row + down][column + right] in " .@+" and cell not in seen:
                seen.add(cell)
                queue.append(cell)
    assert cells(reachable(state)) == sorted(seen)


def test_a_board_of_many_words_is_played_like_a_small_one():
    # 64 x 64 cells are 64 machine words: nothing may depend on the width of an integer.
    side = 64
    rows = ["#" * side, *(f"#{' ' * (side - 2)}#" for _ in range(side - 2)), "#" * side]
    rows[62] = f"#@{' ' * 58}$. #"
    state = state_of(rows)
    for _ in range(59):
        rows, state = move(rows, "Right"), push(state, NAMES.index("Right"))
    assert state.solved
    assert rows_of(state) == rows


def padded(rows, above, below, left, right):
    width = len(rows[0]) + left + right
    body = [f"{'#' * left}{row}{'#' * right}" for row in rows]
    return ["#" * width] * above + body + ["#" * width] * below


margins = st.tuples(*[st.integers(0, 3)] * 4)


@given(boards(max_side=5), st.integers(0, 3), st.booleans(), margins)
def test_all_views_of_a_board_have_one_canonical_form(rows, turns, mirrored, margin):
    other, form = padded(turned(rows, turns, mirrored), *margin), canonical_form(state_of(rows))
    assert canonical_form(state_of(other)) == form == canonical_form(form)


@settings(max_examples=200)
@given(boards(max_side=3, max_boxes=1), boards(max_side=3, max_boxes=1))
def test_boards_that_are_not_views_of_each_other_have_different_forms(first, other):
    views = {tuple(turned(trimmed(first), turns, mirrored)) for turns in range(4) for mirrored in (False, True)}
    same = canonical_form(state_of(first)) == canonical_form(state_of(other))
    assert same == (trimmed(other) in views)


@given(boards(max_side=4), st.integers(0, 10))
def test_with_the_players_region_all_cells_of_a_walk_are_one(rows, pick):
    state = state_of(rows)
    area = cells(reachable(state))
    moved = state._replace(player=area[pick % len(area)])
    assert canonical_form(moved, player_region=True) == canonical_form(state, player_region=True)


def test_walls_and_the_outside_separate_regions():
    left, right = (state_of(["#######", row, "#######"]) for row in ("#@ $. #", "#  $.@#"))
    assert canonical_form(left, player_region=True) != canonical_form(right, player_region=True)
    ragged = state_of(["  ####", "###.@#", "#  $ #", "######"])
    full = state_of(["######", "###.@#", "#  $ #", "######"])
    assert ragged != full
    assert canonical_form(ragged) == canonical_form(full)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 10**6))
def test_the_eight_views_of_a_rectangle_are_numpys(height, width, seed):
    letters = np.random.default_rng(seed).choice(list("abc"), (height, width))
    rows = tuple("".join(row) for row in letters)
    expected = {tuple(turned(rows, turns, mirrored)) for turns in range(4) for mirrored in (False, True)}
    assert (len(symmetries(rows)), set(symmetries(rows))) == (8, expected)
