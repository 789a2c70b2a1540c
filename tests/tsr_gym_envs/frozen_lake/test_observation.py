"""What an agent reads of a lake: texts written out by hand after RAGEN's and TSR's code."""

import pytest

from tsr_gym_envs.frozen_lake.observation import OBSERVATIONS
from tsr_gym_envs.frozen_lake.rules import FrozenLakeState

LAKE = ("SFH", "FHF", "FFG")

GRIDS = {
    0: "P_O\n_O_\n__G",
    1: "_PO\n_O_\n__G",
    2: "__X\n_O_\n__G",
    8: "__O\n_O_\n__√",
}
COORDS = {
    0: (
        "Board size: 3 rows x 3 cols (zero-indexed).\nStart: (0, 0)\nGoal: (2, 2)\nPlayer: (0, 0)\n"
        "Holes: (0, 2), (1, 1)"
    ),
    2: (
        "Board size: 3 rows x 3 cols (zero-indexed).\nStart: (0, 0)\nGoal: (2, 2)\nPlayer in hole: (0, 2)\n"
        "Holes: (0, 2), (1, 1)"
    ),
    8: (
        "Board size: 3 rows x 3 cols (zero-indexed).\nStart: (0, 0)\nGoal: (2, 2)\nPlayer on goal: (2, 2)\n"
        "Holes: (0, 2), (1, 1)"
    ),
}


@pytest.mark.parametrize("cell", GRIDS)
def test_the_grid_shows_the_board_in_ragens_glyphs(cell):
    assert OBSERVATIONS["grid"](FrozenLakeState(LAKE, cell)) == GRIDS[cell]


@pytest.mark.parametrize("cell", COORDS)
def test_the_coordinates_list_start_goal_player_and_holes(cell):
    assert OBSERVATIONS["coord"](FrozenLakeState(LAKE, cell)) == COORDS[cell]


def test_a_lake_without_holes_lists_none():
    assert OBSERVATIONS["coord"](FrozenLakeState(("SG",), 0)) == (
        "Board size: 1 rows x 2 cols (zero-indexed).\nStart: (0, 0)\nGoal: (0, 1)\nPlayer: (0, 0)"
    )


def test_grid_and_coordinates_stand_together_with_the_blanks_of_the_released_code():
    text = OBSERVATIONS["grid_coord"](FrozenLakeState(LAKE, 0))
    assert text == f"Coordinates: \n{COORDS[0]}\nGrid Map: \n{GRIDS[0]}"


@pytest.mark.parametrize(
    ("lake", "cell", "text"),
    [
        (LAKE, 0, "P a1 G c3 O c1 b2"),
        (LAKE, 7, "P b3 G c3 O c1 b2"),
        (("SG",), 1, "P b1 G b1"),
        (("GSG",), 1, "P b1 G a1 c1"),
    ],
)
def test_the_compact_form_names_squares_as_in_chess(lake, cell, text):
    assert OBSERVATIONS["compact"](FrozenLakeState(lake, cell)) == text


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_different_positions_read_differently(name):
    texts = {OBSERVATIONS[name](FrozenLakeState(LAKE, cell)) for cell in range(9)}
    assert len(texts) == 9
