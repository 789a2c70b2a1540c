"""Greedy is a beam of width 1."""

from functools import partial

import pytest

from tests.agents.worlds import WALKER, lake, picture
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.strategies import beam, greedy


@pytest.mark.parametrize("depth", [None, 2])
@pytest.mark.parametrize("branching", [1, 2, 5])
def test_greedy_is_a_beam_of_width_1(branching, depth):
    def grown(strategy):
        trees = search([lake(seed) for seed in range(8)], WALKER, strategy, seeds=range(8))
        return [(picture(tree), list(tree.chosen)) for tree in trees]

    narrow = partial(beam, width=1, branching=branching, depth=depth)
    assert grown(partial(greedy, branching=branching, depth=depth)) == grown(narrow)
