"""Trees in arrays, and the seeds of their nodes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agents.arrays import singles
from tests.conftest import run_python
from tsr_gym.agents.arrays import tree
from tsr_gym.agents.arrays.tree import ArrayTree, root_seeds


def small():
    """Two tasks: in the first 0 -a-> 1 -b-> 3 and 0 -c-> 2, in the second 0 -d-> 1."""
    tree = ArrayTree.empty(2, 4)
    tree.parents[0, 1:], tree.actions[0, 1:] = (0, 0, 1), (10, 12, 11)
    tree.parents[1, 1], tree.actions[1, 1] = 0, 13
    return tree


def test_a_tree_has_a_root_for_every_seed_and_paths_from_it():
    tree = ArrayTree.empty(3, 5)
    assert tree.num_expanded == 0
    assert tree.parents.shape == tree.rewards.shape == (3, 5)
    assert (tree.parents == -1).all()
    assert tree.actions_to(np.array([0, 0, 0])).shape == (3, 0)
    tree = small()
    assert tree.num_expanded == 4
    assert tree.actions_to(np.array([3, 1])).tolist() == [[10, 11], [13, -1]]
    assert tree.actions_to(np.array([2, 0])).tolist() == [[12], [-1]]
    assert root_seeds(range(3), 3).tolist() == [0, 1, 2]
    assert root_seeds([2**64 - 1], 1).tolist() == [2**64 - 1]
    with pytest.raises(ValueError, match="wanted one seed for each of 3 tasks"):
        root_seeds([1, 2], 3)


def test_seeds_derive_by_splitmix64():
    # The first outputs of splitmix64 from the state 0, as its authors' code gives them.
    first = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [int(tree.derive(np.uint64(0), number)) for number in range(3)] == first


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**40))
def test_seeds_are_those_of_plain_python(seed, number):
    assert int(tree.derive(np.uint64(seed), number)) == singles.derive(seed, number)


def test_purposes_are_apart_from_each_other_and_from_children():
    assert (tree.POLICY, tree.DICE, tree.TIE) == (singles.POLICY, singles.DICE, singles.TIE)
    assert len({tree.POLICY, tree.DICE, tree.TIE} | set(range(100))) == 103


def test_without_numba_the_pip_line_is_named():
    code = "import sys; sys.modules['numba'] = None\nimport tsr_gym.agents\nimport tsr_gym.agents.arrays"
    done = run_python(code, check=False)
    assert done.returncode == 1
    assert "pip install 'tsr-gym[agents]'" in done.stderr
