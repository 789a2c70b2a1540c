"""Distances to the goal, against breadth-first search and Eq. 14 by hand."""

import gymnasium as gym
import numpy as np
import pytest

import tsr_gym  # noqa: F401 (registers the worlds)
from tsr_gym_envs.frozen_lake.rules import FrozenLakeState, fewest_steps, proximity, transition_table


def reached_after(desc, cell, slippery):
    """Return after how many actions a goal can first be reached, by what can happen at all."""
    table, letters = transition_table(desc, is_slippery=slippery), "".join(desc)
    here = {cell}
    for steps in range(len(letters) + 1):
        if any(letters[there] == "G" for there in here):
            return steps
        # Holes and goals are absorbing: their rows of the table lead nowhere else.
        here |= {
            there
            for cell_before in here
            if letters[cell_before] not in "GH"
            for action in range(4)
            for chance, there, *_ in table[cell_before][action]
            if chance > 0
        }
    return None


@pytest.mark.parametrize("slippery", [True, False])
def test_the_fewest_steps_are_those_after_which_a_goal_can_first_be_reached(slippery):
    rng = np.random.default_rng(3)
    missing = 0
    for _ in range(40):
        letters = rng.choice(list("FFFHG"), (int(rng.integers(1, 5)), int(rng.integers(2, 5))))
        letters.flat[0], letters.flat[-1] = "S", "G"
        desc = tuple("".join(row) for row in letters)
        for cell in range(letters.size):
            steps = fewest_steps(FrozenLakeState(desc, cell))
            assert steps == reached_after(desc, cell, slippery)
            missing += steps is None
    assert missing > 20


@pytest.mark.parametrize("settings", [{}, {"action_type": "discrete"}])
def test_a_hole_and_a_shore_without_a_way_are_dead_ends(settings):
    env = gym.make("tsr/FrozenLake-v0", desc=["SFH", "HHG"], **settings).unwrapped
    env.reset(seed=1)
    reasons = [env.dead_end(FrozenLakeState(("SFH", "HHG"), cell)) for cell in range(6)]
    assert reasons == ["no way", "no way", "hole", "hole", "hole", None]
    assert env.fewest_actions(FrozenLakeState(("SFG", "HHH"), 0)) == 2


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
