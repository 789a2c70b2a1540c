"""SokobanScore: the reward, or the reward and the gain of a potential."""

import gymnasium as gym
import pytest

from tsr_gym import ConfigError
from tsr_gym.wrappers import AnswerFormat, SokobanScore

#        columns 0123456
LEVEL = "#######\n#@ $ .#\n#######"
ROOM = "#####\n#@  #\n# $ #\n#  .#\n#####"


def scores(level, turns, **arguments):
    env = SokobanScore(gym.make("tsr/Sokoban-v0", level=level, max_turns=None, max_actions=None), **arguments)
    env.reset(seed=1)
    results = [env.step(turn) for turn in turns]
    return [(round(result[1], 9), round(result[4]["score"], 9)) for result in results]


def test_without_a_potential_the_score_is_the_reward():
    # Two steps, a push, and the push that solves: -0.1, -0.1, and -0.1 + 1 + 10.
    assert scores(LEVEL, ["Right", "Right", "Right"]) == [(-0.1, -0.1), (-0.1, -0.1), (10.9, 10.9)]
    assert scores(LEVEL, ["Up"]) == [(-0.1, -0.1)]


def test_the_oracle_adds_the_moves_that_a_turn_gained():
    # Three moves from solved: every Right gains one, Left gains nothing at the wall and loses one elsewhere.
    assert scores(LEVEL, ["Right", "Left", "Left"], potential="oracle") == [(-0.1, 0.9), (-0.1, -1.1), (-0.1, -0.1)]
    assert scores(LEVEL, ["Right || Right || Right"], potential="oracle") == [(10.7, 13.7)]


def test_the_weight_scales_the_potential_alone():
    assert scores(LEVEL, ["Right"], potential="oracle", weight=0.25) == [(-0.1, 0.15)]
    assert scores(LEVEL, ["Right"], potential="oracle", weight=0.0) == [(-0.1, -0.1)]


def test_the_estimate_adds_pushes_and_the_walk_to_the_nearest_box():
    # Two pushes, and one field between player and box: 2 + (2 - 1) = 3; then 2 + (1 - 1) = 2.
    assert scores(LEVEL, ["Right"], potential="estimate") == [(-0.1, 0.9)]


@pytest.mark.parametrize("potential", ["estimate", "oracle"])
def test_a_push_into_a_corner_loses_as_much_as_a_lost_game(potential):
    # Shortest: Down, Right (push), Up, Right, Down (push), five moves; from below the box it takes Left and Up first
    # and no Down, six. The estimate sees two pushes and the walk to the box. Up pushes the box against the wall for
    # good, which counts as 40 moves.
    start, below = {"estimate": (-3.0, -2.0), "oracle": (-5.0, -6.0)}[potential]
    came = scores(ROOM, ["Down || Down || Right", "Up"], potential=potential)
    assert came[0] == (-0.3, round(-0.3 + below - start, 9))
    assert came[1] == (-0.1, round(-0.1 - 40.0 - below, 9))


def test_an_unknown_potential_is_refused():
    with pytest.raises(ConfigError, match=r"None or of \['estimate', 'next_push', 'oracle'\], got 'magic'"):
        SokobanScore(gym.make("tsr/Sokoban-v0"), potential="magic")


def test_scores_rate_turns_so_that_a_tree_adds_them_up():
    env = SokobanScore(AnswerFormat(gym.make("tsr/Sokoban-v0")), potential="estimate", weight=2.0)
    assert env.score_of == "turn"
    again = gym.make(env.spec)
    assert (again.potential, again.weight) == ("estimate", 2.0)
