"""TreePO before whitening, worked out by hand."""

import pytest

from tests.agents.learning.advantages.forests import batch_of, by_trajectory, leaf
from tsr_gym.agents.learning.advantages import treepo

# Below the prompt 0, 3, 3, 6; below turn 1 the first three; below turn 2 the second and third, which are equal.
LEAVES = [leaf([1, 3], 0.0), leaf([1, 2, 4], 3.0), leaf([1, 2, 5], 3.0), leaf([6], 6.0)]


def test_a_return_is_compared_below_every_ancestor_and_these_are_averaged():
    # Mean 3 of all, 2 below turn 1, 3 below turn 2.
    batch = batch_of(LEAVES)
    found = by_trajectory(batch, treepo(batch, whiten=False))
    assert found == pytest.approx([(-3 - 2) / 2, (0 + 1 + 0) / 3, (0 + 1 + 0) / 3, 3])


def test_ancestors_can_count_as_much_as_they_have_leaves():
    batch = batch_of(LEAVES)
    found = by_trajectory(batch, treepo(batch, whiten=False, weighting="size"))
    assert found == pytest.approx([(4 * -3 + 3 * -2) / 7, (0 + 3 * 1 + 0) / 9, (0 + 3 * 1 + 0) / 9, 3])


def test_ancestors_whose_leaves_are_equal_can_be_left_out():
    batch = batch_of(LEAVES)
    found = by_trajectory(batch, treepo(batch, whiten=False, drop_flat=True))
    assert found == pytest.approx([-2.5, 0.5, 0.5, 3])


def test_the_prompt_always_counts():
    batch = batch_of([leaf([1], 2.0), leaf([2], 2.0)])
    assert by_trajectory(batch, treepo(batch, whiten=False, drop_flat=True)) == [0, 0]
    alone = batch_of([leaf([1], 2.0)])
    assert by_trajectory(alone, treepo(alone, whiten=False)) == [0]
    assert by_trajectory(alone, treepo(alone, whiten=False, alone="raw")) == [2]
