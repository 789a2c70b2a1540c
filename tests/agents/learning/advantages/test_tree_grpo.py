"""Tree-GRPO, worked out by hand."""

from math import sqrt

import pytest

from tests.agents.learning.advantages.forests import batch_of, by_trajectory, by_turn, leaf, path
from tsr_gym.agents.learning.advantages import tree_grpo


def forest():
    """A tree of three leaves, two of them below one turn, and a tree of one leaf."""
    return batch_of([leaf([1, 2], 0.0), leaf([1, 3], 2.0), leaf([4], 4.0), leaf([1], 6.0, tree=1)])


# Within the first tree: mean 2, squares 4 + 0 + 4 over 2, deviation 2. Over all: mean 3, squares 9 + 1 + 1 + 9 over 3.
INTRA = [-1.0, 0.0, 1.0, 0.0]
INTER = [distance / sqrt(20 / 3) for distance in (-3, -1, 1, 3)]


def test_a_leaf_is_compared_within_its_tree_and_within_its_prompt():
    batch = forest()
    expected = [intra + inter for intra, inter in zip(INTRA, INTER, strict=True)]
    assert by_trajectory(batch, tree_grpo(batch)) == pytest.approx(expected, abs=1e-5)
    assert by_trajectory(batch, tree_grpo(batch, inter=0.0)) == pytest.approx(INTRA, abs=1e-5)
    assert by_trajectory(batch, tree_grpo(batch, intra=0.0, inter=2.0)) == pytest.approx(
        [2 * inter for inter in INTER], abs=1e-5
    )


def test_the_only_leaf_of_a_tree_has_its_return_where_the_published_code_is_wanted():
    batch = forest()
    assert by_trajectory(batch, tree_grpo(batch, inter=0.0, alone="raw"))[3] == 6.0


def test_a_shared_turn_stands_there_once_per_leaf_or_once_with_the_sum():
    batch = forest()
    assert by_turn(batch, tree_grpo(batch, inter=0.0)) == [
        pytest.approx([-1, -1], abs=1e-5),
        pytest.approx([0, 0], abs=1e-5),
        pytest.approx([1], abs=1e-5),
        [0],
    ]
    once = by_turn(batch, tree_grpo(batch, inter=0.0, prefix="once"))
    assert once == [pytest.approx([-1, -1], abs=1e-5), [0, 0], pytest.approx([1], abs=1e-5), [0]]


def test_returns_that_differ_by_rounding_are_equal():
    """Three ways to earn 10.6; in single precision their sums differ, and a deviation of rounding is no deviation."""
    ways = ([1.0, -0.1, -0.3, 10.0], [-0.2, -0.3, -0.2, -0.1, 11.4], [-0.3, -0.2, 1.0, -0.3, -0.1, 10.5])
    batch = batch_of([path(*[(-1, reward) for reward in way]) for way in ways], [path((-1, 1.0)), path((-1, 2.0))])
    assert by_trajectory(batch, tree_grpo(batch, inter=0.0))[:3] == [0.0] * 3
