"""Boxoban at test time: views of a board, the player that lists moves, and searches that end at a solution."""

from functools import partial

import numpy as np
import pytest
import torch

from benchmarks import boxoban_search
from tests.agents.worlds import cycle, letters, words_of
from tsr_gym.agents.strategies import best_first
from tsr_gym.tree import Expand
from tsr_gym.wrappers import TreeSearchWrapper
from tsr_gym_envs.sokoban.discrete_env import SokobanDiscreteEnv
from tsr_gym_envs.sokoban.levels import parse_level
from tsr_gym_envs.sokoban.settings import make_settings

ROWS = ("#@       #", "# $      #", "#    $   #", "#        #", "#        #", "# ..     #", "#        #", "#        #")
LEVEL = "\n".join(["#" * 10, *ROWS, "#" * 10])
# Rows and columns of up, down, left and right.
DELTAS = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])


def standing(boards):
    return np.argwhere(boards >= 5)[:, 1:]


@pytest.mark.parametrize("view", range(8))
def test_in_every_view_a_move_goes_where_the_player_stands_next(view):
    found = boxoban_search.seen_from(boxoban_search.positions_of([parse_level(LEVEL)]), view)
    steps = standing(found.boards)[1:] - standing(found.boards)[:-1]
    assert len(steps) > 10
    assert (steps == DELTAS[found.moves[:-1]]).all()
    assert found.left.tolist() == list(range(len(found.moves), 0, -1))


def level_env():
    env = TreeSearchWrapper(SokobanDiscreteEnv(make_settings("paper", {"obs_type": "array", "level": LEVEL})))
    env.reset(seed=0)
    return env


def test_the_player_lists_all_moves_and_those_against_a_wall_last():
    torch.manual_seed(0)
    player = boxoban_search.Player(boxoban_search.BoxobanNet().eval())
    tree = level_env().tree
    (said,) = player([(tree, Expand(0, 4))])
    chances = [np.exp(candidate.logprobs[0]) for candidate in said]
    assert sorted(candidate.text for candidate in said) == [0, 1, 2, 3]
    # Up and left of the start there is wall.
    assert {candidate.text for candidate in said[2:]} == {0, 2}
    assert chances[0] >= chances[1] >= 0.005
    assert sum(chances) == pytest.approx(1.0)


def test_a_search_ends_at_its_first_solution_or_at_its_expansions():
    env = letters({"a": 1.0, "b": 2.0, "x": 0.0}, "x", turns=9)
    bound = partial(boxoban_search.until_solved, strategy=partial(best_first, expansions=50, samples=3), expansions=9)
    tree = env.search(cycle("abx"), bound)
    assert [words_of(tree)[end] for end in tree.chosen] == ["x"]
    assert len(tree.nodes) == 4
    tree = letters({"a": 1.0, "b": 2.0}, turns=99).search(cycle("ab"), bound)
    assert tree.chosen == ()
    assert sum(bool(tree.children(node)) for node in tree.below()) == 9


def test_what_is_told_counts_solutions_within_every_budget():
    rows = [{"expansions": 10, "moves": 4}, {"expansions": 30, "moves": 6}, {"expansions": 60, "moves": None}]
    told = boxoban_search.told(rows, 60)
    assert [(point["expansions"], point["solved"]) for point in told["curve"]] == [(10, 1), (20, 1), (50, 2), (60, 2)]
    assert (told["solved"], told["total_expansions"], told["mean_length"]) == (2, 100, 5.0)
    assert told["expansions_by_level"] == [10, 30, None]
