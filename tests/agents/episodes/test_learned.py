"""Learned: a tree tells with which advantages its turns were learned from, and nothing that is not so."""

import pytest

from tests.agents.reports.view.trees import small_tree
from tsr_gym.agents.episodes.trajectory import Learned, keep_learned, learned_from
from tsr_gym.tree import Tree


def test_advantages_come_back_from_the_file_of_a_tree(tmp_path):
    tree = small_tree()
    keep_learned(tree, Learned("gae", {1: (0.5, -1.25), 3: (2.0,)}))
    tree.save(tmp_path / "tree.jsonl")
    assert learned_from(Tree.load(tmp_path / "tree.jsonl")) == Learned("gae", {1: (0.5, -1.25), 3: (2.0,)})
    assert learned_from(small_tree()) == Learned("", {})


@pytest.mark.parametrize(
    "facts",
    [3, {"of": [1]}, {"of": {"9": [1.0], "1": ["much"], "2": 5, "3": [float("nan")], "4": [None]}}],
    ids=str,
)
def test_what_is_no_advantage_of_a_node_is_left_out(facts):
    tree = small_tree()
    tree.about["advantages"] = facts
    assert learned_from(tree).of == {}
