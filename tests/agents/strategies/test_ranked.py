"""One order of nodes for all strategies."""

from tests.agents.worlds import letters
from tsr_gym.agents.strategies.ranked import is_dead, ranked


def grown(**settings):
    env = letters({"a": 1.0, "b": 2.0, "c": 3.0, "d": 3.0}, "c", **settings)
    env.expand(0, list("abcd"))
    return env.tree


def test_the_best_come_first_and_dead_ends_last():
    tree = grown(dead=["d"])
    assert ranked(tree, [1, 2, 3, 4], tree.merit) == [3, 2, 1, 4]
    assert ranked(tree, [1, 2, 3, 4], lambda node: -tree.merit(node)) == [1, 2, 3, 4]
    assert [is_dead(tree, node) for node in range(5)] == [False, False, False, False, True]


def test_an_end_is_no_dead_end_even_where_the_way_on_would_be_lost():
    tree = letters({"a": 1.0, "x": 0.0}, "x", dead=["x"])
    tree.expand(0, ["x"])
    assert not is_dead(tree.tree, 1)


def test_ties_are_broken_as_the_tree_breaks_them():
    orders = set()
    for seed in range(8):
        tree = grown(seed=seed)
        equal = ranked(tree, [1, 2, 3, 4], lambda node: 0.1 + 0.2 if node % 2 else 0.3)
        assert equal == ranked(tree, [4, 3, 2, 1], lambda node: 0.0)
        orders.add(tuple(equal))
        assert ranked(tree, [3, 4], tree.merit) == tree.best([3, 4], 2)
    assert len(orders) > 4
