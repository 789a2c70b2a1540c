"""Naive and searched trajectories in one group: on whom the baseline is fitted, worked out by hand."""

from functools import partial
from math import sqrt

import pytest
import torch

from tests.agents.learning.advantages.forests import batch_of, by_trajectory, by_turn, flat, leaf, path
from tsr_gym.agents.learning.advantages import (
    dr_grpo,
    gigpo,
    grpo,
    mt_grpo,
    rloo,
    tree_backup,
    tree_grpo,
    treepo,
    treerl,
    tspo,
)


def mixed():
    """Naive returns 0 and 2, searched ones 4 and 10; then a group without naive ones, 1 and 3."""
    first = [path((-1, worth)) for worth in (0.0, 2.0)] + [
        path((-1, worth), selected_by="beam") for worth in (4.0, 10.0)
    ]
    return batch_of(first, [path((-1, worth), selected_by="beam") for worth in (1.0, 3.0)])


def test_on_all():
    # Mean 4.
    assert by_trajectory(mixed(), dr_grpo(mixed())) == [-4, -2, 0, 6, -1, 1]


def test_on_the_naive_ones():
    # Mean 1 of the naive ones; a group without any is its own baseline.
    assert by_trajectory(mixed(), dr_grpo(mixed(), baseline="naive")) == [-1, 1, 3, 9, -1, 1]


def test_per_kind():
    # Means 1 and 7.
    assert by_trajectory(mixed(), dr_grpo(mixed(), baseline="per_kind")) == [-1, 1, -3, 3, -1, 1]


def test_the_deviation_is_that_of_the_whole_group_or_of_each_kind():
    # All: squares 16 + 4 + 0 + 36 over 3, for either mean. Per kind: 1 + 1 and 9 + 9 over 1.
    whole = sqrt(56 / 3)
    naive = [-1 / whole, 1 / whole, 3 / whole, 9 / whole, -1 / sqrt(2), 1 / sqrt(2)]
    assert by_trajectory(mixed(), grpo(mixed(), baseline="naive")) == pytest.approx(naive, abs=1e-4)
    per_kind = [-1 / sqrt(2), 1 / sqrt(2)] * 3
    assert by_trajectory(mixed(), grpo(mixed(), baseline="per_kind")) == pytest.approx(per_kind, abs=1e-4)
    expected = [value / whole for value in (-4, -2, 0, 6)] + [-1 / sqrt(2), 1 / sqrt(2)]
    assert by_trajectory(mixed(), grpo(mixed())) == pytest.approx(expected, abs=1e-4)


def test_leaving_one_out_leaves_it_out_only_where_it_is_in():
    # Naive: 0 - 2 and 2 - 0; searched against the mean 1 of both naive ones.
    assert by_trajectory(mixed(), rloo(mixed(), baseline="naive")) == [-2, 2, 3, 9, -2, 2]


SPLIT = ([-0.2, 1.0, -0.1, 9.9], [-0.3, -0.2, 1.0, 1.0, -0.2, -0.3, -0.2, 9.8])


@pytest.mark.parametrize("naive", [[[-0.1], [-0.2], [-0.1], [-0.1]], [[-0.1, -0.2], [-0.3]], SPLIT])
def test_naive_returns_that_hardly_differ_do_not_blow_up_a_searched_one(naive):
    paths = [path(*[(-1, reward) for reward in rewards]) for rewards in naive]
    batch = batch_of([*paths, path((-1, 20.0), selected_by="beam")])
    found = by_trajectory(batch, grpo(batch, baseline="naive"))
    # A distance is at most the range r, and a deviation of n values at least r / sqrt(2 (n - 1)).
    assert max(map(abs, found)) <= sqrt(2 * len(naive))
    assert found[-1] > 1


def test_where_all_naive_ones_failed_alike_the_searched_success_is_scaled_by_the_whole_group():
    batch = batch_of([path((-1, 0.0)), path((-1, 0.0)), path((-1, 3.0), selected_by="beam")])
    # Of 0, 0, 3: mean 1, squares 1 + 1 + 4 over 2. Divided by the naive ones' deviation it would be 3 / 1e-6.
    assert by_trajectory(batch, grpo(batch, baseline="naive")) == pytest.approx([0, 0, 3 / sqrt(3)], abs=1e-4)


def test_one_naive_trajectory_is_baseline_enough_for_the_searched_ones_but_not_for_itself():
    batch = batch_of([path((-1, 1.0)), path((-1, 3.0), selected_by="beam"), path((-1, 5.0), selected_by="beam")])
    assert by_trajectory(batch, dr_grpo(batch, baseline="naive")) == [0, 2, 4]


def test_turns_and_siblings_take_the_same_choice():
    naive, searched = path((-1, 1.0), (-1, 0.0)), path((-1, 5.0), (-1, 2.0), selected_by="beam")
    batch = batch_of([naive, path((-1, 3.0), (-1, 0.0)), searched])
    # Turn 0: mean 2 of the naive ones, deviation 2 of 1, 3, 5. Turn 1: mean 0, deviation of 0, 0, 2.
    found = by_turn(batch, tspo(batch, baseline="naive"))
    assert flat(found) == pytest.approx([-1 / 2, 0, 1 / 2, 0, 3 / 2, 2 / sqrt(4 / 3)], abs=1e-4)
    trees = batch_of([leaf([1], 1.0), leaf([2], 3.0), leaf([3], 8.0, selected_by="beam")])
    assert by_trajectory(trees, tree_backup(trees, baseline="naive")) == [-2, 2, 6]


@pytest.mark.parametrize("baseline", ["all", "naive", "per_kind"])
@pytest.mark.parametrize("estimator", [grpo, rloo, tree_grpo, treerl, partial(treepo, whiten=False), gigpo, mt_grpo])
def test_a_group_of_one_kind_is_as_without_the_choice(estimator, baseline):
    batch = batch_of([leaf([1, 2], 0.0), leaf([1, 3], 3.0), leaf([4], 6.0)])
    torch.testing.assert_close(estimator(batch, baseline=baseline), estimator(batch))
