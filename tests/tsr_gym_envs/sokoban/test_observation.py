"""What an agent reads of a room: texts written out by hand after RAGEN's and TSR's code."""

import pytest

from tests.tsr_gym_envs.sokoban.boards import state_of
from tsr_gym_envs.sokoban.observation import OBSERVATIONS

#       012345
ROOM = ["######", "#@ $ #", "# *# #", "# .  #", "######"]
ON_GOAL = ["#####", "#+$ #", "#  *#", "#####"]
BARE = ["####", "#+$#", "#  #", "####"]

GRID = "######\n#P_X_#\n#_√#_#\n#_O__#\n######"
COORD = (
    "Board size: 5 rows x 6 cols (zero-indexed).\nTargets: (3, 2)\nBoxes: (1, 3)\nBoxes on target: (2, 2)\n"
    "Player: (1, 1)"
)


def test_the_grid_shows_the_room_in_ragens_glyphs():
    assert OBSERVATIONS["grid"](state_of(ROOM)) == GRID
    assert OBSERVATIONS["grid"](state_of(ON_GOAL)) == "#####\n#SX_#\n#__√#\n#####"


def test_the_coordinates_list_the_kinds_that_occur():
    assert OBSERVATIONS["coord"](state_of(ROOM)) == COORD
    assert OBSERVATIONS["coord"](state_of(ON_GOAL)) == (
        "Board size: 4 rows x 5 cols (zero-indexed).\nBoxes: (1, 2)\nBoxes on target: (2, 3)\nPlayer on target: (1, 1)"
    )


def test_several_places_of_one_kind_stand_in_reading_order():
    text = OBSERVATIONS["coord"](state_of(["######", "#@$$.#", "#.   #", "######"]))
    assert "Targets: (1, 4), (2, 1)\nBoxes: (1, 2), (1, 3)" in text


def test_grid_and_coordinates_stand_together_with_the_blanks_of_the_released_code():
    assert OBSERVATIONS["grid_coord"](state_of(ROOM)) == f"Coordinates: \n{COORD}\nGrid Map: \n{GRID}"


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (ROOM, "P a1 X c1 b2 O b2 b3 # c2"),
        (ON_GOAL, "P a1 X b1 c2 O a1 c2"),
        (BARE, "P a1 X b1 O a1"),
    ],
)
def test_the_compact_form_names_squares_within_the_ring_as_in_chess(rows, text):
    assert OBSERVATIONS["compact"](state_of(rows)) == text


def test_the_outside_of_a_ragged_outline_reads_as_wall():
    assert OBSERVATIONS["grid"](state_of(["  ####", "###.@#", "# $  #", "######"])).split("\n")[0] == "######"
