"""The proxy of TSR's Eq. 14, worked out by hand."""

import pytest

from tsr_gym_envs.frozen_lake.rules import FrozenLakeState
from tsr_gym_envs.frozen_lake.score import proximity

LAKE = ("SFFH", "FHFF", "FFFG")


@pytest.mark.parametrize(
    ("cell", "score"), [(0, -5.0), (1, -4.0), (11, 0.0), (10, -1.0), (4, -4.0), (3, -2.0 - 7.0), (5, -3.0 - 7.0)]
)
def test_the_score_is_minus_the_distance_minus_the_penalty_of_a_hole(cell, score):
    assert proximity(FrozenLakeState(LAKE, cell), hole_penalty=7.0) == score


def test_the_nearest_goal_counts():
    assert proximity(FrozenLakeState(("GFSFFG",), 2), hole_penalty=0.0) == -2.0
    assert proximity(FrozenLakeState(("GFSFFG",), 3), hole_penalty=0.0) == -2.0


def test_distances_ignore_the_holes_on_the_way():
    assert proximity(FrozenLakeState(("SHG",), 0), hole_penalty=9.0) == -2.0
