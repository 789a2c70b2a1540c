"""Fates: what became of every node, why, and what it is worth, on a tree worked by hand."""

import pytest

from tests.agents.reports.view.trees import node, small_tree
from tsr_gym.agents.reports.view.fates import fates, gains, outcome_of, ranks, reason, values
from tsr_gym.tree import Tree


def why(tree, index):
    return reason(tree, index, fates(tree)[index], ranks(tree))


def test_every_node_is_kept_continued_ended_or_pruned():
    assert fates(small_tree()) == ["kept", "kept", "expanded", "kept", "ended", "pruned"]


def test_a_reason_says_only_what_the_tree_says():
    tree = small_tree()
    assert why(tree, 3) == "on the path that the search chose (1 of 1); merit 3, rank 1 of 3 at its depth"
    assert why(tree, 5) == "not continued: merit 1.2, rank 3 of 3 at its depth; the search went on from 0 there"
    assert why(tree, 2).startswith("the search went on from here and chose no path through it; merit 1, rank 2 of 2")


def test_equals_share_a_rank_and_a_twin_and_a_dead_end_are_named():
    tree = Tree()
    tree.add(node(None, 0))
    for said in ("a", "b"):
        tree.add(node(0, 1, said, score=1.0, state_key=b"same"))
    tree.add(node(0, 1, "c", info={"dead_end": "a box in a corner"}))
    assert why(tree, 2) == (
        "not continued: merit 1, rank 1 (shared) of 3 at its depth; the search went on from 0 there; "
        "the same state as node 1"
    )
    assert why(tree, 3) == "a dead end: a box in a corner"


def test_a_played_episode_is_told_from_what_was_imagined():
    tree = Tree()
    tree.add(node(None, 0), played=True)
    tree.add(node(0, 1, "imagined"))
    tree.add(node(0, 1, "played"), played=True)
    assert fates(tree) == ["played", "pruned", "played"]


@pytest.mark.parametrize(
    ("end", "info", "outcome"),
    [("solved", {}, "solved"), ("failed", {}, "failed"), ("cut", {}, "cut"), ("", {"dead_end": "x"}, "dead end")],
)
def test_outcomes_tell_ends_apart(end, info, outcome):
    assert outcome_of(node(0, 1, end=end, info=info)) == outcome


def test_values_are_means_over_children_that_are_known():
    # V(3) = V(4) = 0, V(1) = (1 + 0) / 2; below 2 nothing has ended, so V(0) is what is known of 1 alone.
    assert values(small_tree()) == [0.5, 0.5, None, 0.0, 0.0, None]


def test_gains_are_reward_plus_value_less_the_parents_value():
    tree = small_tree()
    assert gains(tree, values(tree)) == [None, 0.0, None, 0.5, -0.5, None]
