"""Trees in arrays, worked out by hand."""

import numpy as np
import pytest

from tsr_gym.agents.arrays.tree import ArrayTree, root_seeds


def small():
    """Two tasks: in the first 0 -a-> 1 -b-> 3 and 0 -c-> 2, in the second 0 -d-> 1."""
    tree = ArrayTree.empty(2, 4)
    tree.parents[0, 1:], tree.actions[0, 1:] = (0, 0, 1), (10, 12, 11)
    tree.parents[1, 1], tree.actions[1, 1] = 0, 13
    return tree


def test_an_empty_tree_has_roots_only():
    tree = ArrayTree.empty(3, 5)
    assert tree.num_expanded == 0
    assert tree.parents.shape == tree.rewards.shape == (3, 5)
    assert (tree.parents == -1).all()
    assert tree.actions_to(np.array([0, 0, 0])).shape == (3, 0)


def test_the_way_to_a_node_is_read_from_the_root():
    tree = small()
    assert tree.num_expanded == 4
    assert tree.actions_to(np.array([3, 1])).tolist() == [[10, 11], [13, -1]]
    assert tree.actions_to(np.array([2, 0])).tolist() == [[12], [-1]]


def test_every_task_needs_a_seed():
    assert root_seeds(range(3), 3).tolist() == [0, 1, 2]
    assert root_seeds([2**64 - 1], 1).tolist() == [2**64 - 1]
    with pytest.raises(ValueError, match="wanted one seed for each of 3 tasks"):
        root_seeds([1, 2], 3)
