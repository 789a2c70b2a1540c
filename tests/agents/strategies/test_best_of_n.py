"""Best-of-N keeps by reward; see the golden trees for what it grows."""

from functools import partial

import pytest

from tests.agents.worlds import WALKER, cycle, lake, letters, words_of
from tsr_gym.agents.strategies import best_of_n


@pytest.mark.parametrize("keep", [1, 3, 50])
def test_the_best_by_reward_are_kept_best_first(keep):
    tree = lake(4).search(WALKER, partial(best_of_n, n=12, keep=keep))
    returns = sorted((tree.total(leaf, "reward") for leaf in tree.leaves()), reverse=True)
    assert len(set(returns)) > 1
    assert [tree.total(end, "reward") for end in tree.chosen] == returns[:keep]


def test_paths_that_a_dead_end_stopped_are_not_chosen():
    env = letters({"a": 5.0, "b": 1.0}, turns=2, dead=["a"])
    tree = env.search(cycle("ab"), partial(best_of_n, n=2, keep=2))
    assert [words_of(tree)[end] for end in tree.chosen] == ["ba"]
