"""A lower bound on moves, against breadth-first search on character grids."""

import pytest
from hypothesis import given

from tests.tsr_gym_envs.sokoban import boards
from tsr_gym_envs.sokoban.fewest_moves import fewest_moves
from tsr_gym_envs.sokoban.levels import parse_level


@given(boards.boards())
def test_no_board_is_solved_in_fewer_moves(rows):
    bound, moves = fewest_moves(boards.state_of(rows)), boards.fewest_moves(rows)
    assert moves is None or (bound is not None and bound <= moves)


@pytest.mark.parametrize(
    ("text", "moves"),
    [
        # Two pushes, and one field between player and box.
        ("#######\n#@ $ .#\n#######", 3),
        ("#######\n#  @$.#\n#######", 1),
        ("#####\n#$@.#\n#####", None),
        ("#####\n#@ *#\n#####", 0),
        # The near box stands on a goal already, and may have to move first.
        ("########\n#@*  $.#\n########", 1),
    ],
)
def test_the_bound_by_hand(text, moves):
    assert fewest_moves(parse_level(text)) == moves
