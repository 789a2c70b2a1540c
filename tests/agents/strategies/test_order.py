"""Which nodes stand in one state and may be merged, and the one order of nodes for all strategies."""

import pytest

from tests.agents.worlds import grow_bare, letters
from tsr_gym.agents.strategies.order import distinct, identity, is_dead, ranked


def grown():
    """0 the empty word; 1: a, 2: b; below a 3: ab, 4: ax (ended); below b 5: ba, 6: bx (ended); below ab 7: abc."""
    env = letters({"a": 1.0, "b": 2.0, "c": 0.0, "x": 0.0}, "x", 3, bag=True)
    env.expand(0, ["a", "b"])
    env.expand(1, ["b", "x"])
    env.expand(2, ["a", "x"])
    env.expand(3, ["c"])
    return env.tree


@pytest.mark.parametrize("merge", ["state", "turns"])
def test_nodes_in_one_state_are_one(merge):
    tree = grown()
    assert identity(tree, 3, merge) == identity(tree, 5, merge) != identity(tree, 1, merge)
    assert distinct(tree, [6, 5, 4, 3, 2, 1], merge) == [6, 5, 4, 2, 1]


def test_without_merging_and_after_an_end_a_node_is_only_itself():
    tree = grown()
    everything = list(range(8))
    assert distinct(tree, everything, None) == everything
    assert [identity(tree, node, "state") for node in (4, 6, 7)] == [4, 6, 7]


def test_the_turns_that_are_left_may_belong_to_the_state():
    # The same word after one turn and after two, because the policy said nothing that counts.
    env = letters({"a": 1.0, "": 0.0}, turns=5)
    env.expand(0, ["a", ""])
    env.expand(2, ["a"])
    tree = env.tree
    assert distinct(tree, [1, 3], "state") == [1]
    assert distinct(tree, [1, 3], "turns") == [1, 3]


def test_nodes_whose_state_nobody_knows_are_not_merged():
    tree, _ = grow_bare(lambda tree: iter([[(0, 3)]]), lambda tree, parent, number: {})
    assert distinct(tree, [1, 2, 3], "state") == [1, 2, 3]


def test_an_unknown_way_of_merging_is_refused():
    with pytest.raises(ValueError, match="wanted merge of None, 'state' or 'turns', got 'all'"):
        identity(grown(), 1, "all")


def siblings(**settings):
    env = letters({"a": 1.0, "b": 2.0, "c": 3.0, "d": 3.0}, "c", **settings)
    env.expand(0, list("abcd"))
    return env.tree


def test_the_best_come_first_and_dead_ends_last():
    tree = siblings(dead=["d"])
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
        tree = siblings(seed=seed)
        equal = ranked(tree, [1, 2, 3, 4], lambda node: 0.1 + 0.2 if node % 2 else 0.3)
        assert equal == ranked(tree, [4, 3, 2, 1], lambda node: 0.0)
        orders.add(tuple(equal))
        assert ranked(tree, [3, 4], tree.merit) == tree.best([3, 4], 2)
    assert len(orders) > 4
