"""Edges: what trees tried, whatever became of it."""

import numpy as np

from tests.agents.episodes.test_collect import collector
from tests.agents.worlds import cycle, letters
from tsr_gym import Candidate, Node, Tree
from tsr_gym.agents.episodes.collect import edges_by_task
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.episodes.settings import SearchConfig
from tsr_gym.agents.episodes.trajectory import Edge, edges_along, harvest_all, harvest_edges
from tsr_gym.agents.strategies import best_of_n


def tree_of(*nodes):
    """Return a tree of bare nodes: what was said, the parent's index, and the state's key."""
    tree = Tree()
    for parent, said, key, more in nodes:
        depth = 0 if parent is None else tree.nodes[parent].depth + 1
        tree.add(Node(parent, depth, Candidate(said), "", 0.0, 0.0, False, False, more, None, key))
    return tree


def test_the_edges_of_trees_and_of_their_trajectories_are_the_same_but_for_where_the_last_one_leads():
    env = letters({"a": 1.0, "b": 0.0}, ends="b", turns=3)
    (tree,) = search([env], cycle("ab"), lambda tree: best_of_n(tree, n=4), seeds=[0])
    trees, along = harvest_edges([tree]), edges_along(harvest_all(tree))
    assert len(trees) == len(along) == len(tree.nodes) - 1
    ends = {node.state_key for node in tree.nodes if node.done}
    assert set(along) == {one._replace(after=None if one.ended else one.after) for one in trees}
    assert {one.after for one in trees if one.ended} == ends


def test_moves_from_states_that_nobody_knows_are_in_no_graph():
    tree = tree_of((None, "", b"s", {}), (0, "a", None, {}), (1, "b", b"t", {}), (0, "c", b"t", {}))
    assert harvest_edges([tree]) == [
        Edge(b"s", "a", None, 0, False, False),
        Edge(b"s", "c", b"t", 0, False, False),
    ]


def test_what_was_carried_out_counts_and_not_what_was_said():
    info = {"executed": ("Up", "Left")}
    tree = tree_of((None, "", b"s", {}), (0, "go up, left", b"t", info), (0, "up left", b"t", info))
    assert set(harvest_edges([tree])) == {Edge(b"s", ("Up", "Left"), b"t", 2, False, False)}


def test_an_action_that_cannot_be_compared_is_unknown():
    tree = tree_of((None, "", b"s", {}), (0, np.zeros(2), b"t", {}))
    assert [one.action for one in harvest_edges([tree])] == [None]


def test_collected_trees_give_the_edges_of_their_tasks():
    brought = collector(SearchConfig(search="beam(width=2, branching=3)", trajectories=2, naive=1)).collect(0, 2)
    found = edges_by_task(brought)
    assert list(found) == [group.task for group in brought.groups]
    for group, trees in zip(brought.groups, brought.trees, strict=True):
        assert len(found[group.task]) == sum(len(tree.nodes) - 1 for tree in trees)


def test_a_proven_dead_end_is_an_end():
    dead = tree_of((None, "", b"s", {}), (0, "a", b"t", {"dead_end": "a corner"}))
    assert harvest_edges([dead]) == [Edge(b"s", "a", b"t", 0, False, True)]
