"""GRPO, Dr. GRPO, RLOO and REINFORCE++, their baselines in mixed groups, and `compare`, worked out by hand."""

from functools import partial
from math import sqrt

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.agents.learning.advantages.forests import Sampled, batch_of, by_trajectory, by_turn, flat, leaf, path
from tests.agents.learning.test_batch import episode, turn
from tsr_gym.agents.episodes.trajectory import Group
from tsr_gym.agents.learning.advantages import (
    dr_grpo,
    gigpo,
    grpo,
    mt_grpo,
    reinforce_pp,
    rloo,
    tree_backup,
    tree_grpo,
    treepo,
    treerl,
    tspo,
)
from tsr_gym.agents.learning.advantages.grpo import compare
from tsr_gym.agents.learning.batch import collate
from tsr_gym.agents.lessons.filters import are_equal


def worth(*rewards):
    """Return an episode of one row with some turns, two tokens each."""
    ids, turns = [1], []
    for reward in rewards:
        turns.append(turn(ids, [2, 3], reward, -1.0, -1.0))
        ids = [*ids, 2, 3, 4]
    return episode(*turns)


def groups(*returns):
    return collate([Group(number, tuple(worth(value) for value in group)) for number, group in enumerate(returns)])


def test_a_return_is_compared_with_its_group():
    batch = groups([1.0, 3.0], [0.0, 2.0, 4.0, 6.0])
    # Means 2 and 3. Deviations: sqrt((1 + 1) / 1), sqrt((9 + 1 + 1 + 9) / 3).
    expected = [-1 / sqrt(2), 1 / sqrt(2), *[distance / sqrt(20 / 3) for distance in (-3, -1, 1, 3)]]
    assert by_trajectory(batch, grpo(batch)) == pytest.approx(expected, abs=1e-5)


def test_returns_are_summed_over_turns_and_rows():
    # The first episode has two turns in one row, the second has a row per turn.
    spread = episode(turn([1], [2], 1.0, -1.0), turn([5], [6], 4.0, -1.0))
    batch = collate([Group(0, (worth(0.5, 0.5), spread, worth(3.0)))])
    assert batch.ids.shape[0] == 4
    # Returns 1, 5 and 3: mean 3, deviation sqrt((4 + 4) / 2).
    assert by_trajectory(batch, grpo(batch)) == pytest.approx([-1.0, 1.0, 0.0], abs=1e-5)


def test_eps_keeps_nearly_equal_returns_small():
    batch = groups([1.0, 1.0 + 2**-20])
    # Half of 2^-20 over (2^-20 / sqrt(2) + eps).
    step = 2.0**-20
    expected = (step / 2) / (step / sqrt(2) + 1e-3)
    assert by_trajectory(batch, grpo(batch, eps=1e-3)) == pytest.approx([-expected, expected], rel=1e-3)


SIZES = [[1.0, 3.0], [0.0, 2.0, 4.0, 6.0], [5.0]]


def three_groups():
    return batch_of(*[[path((-1, worth - 1.0), (-1, 1.0)) for worth in group] for group in SIZES])


def test_returns_less_their_mean_or_that_of_the_others():
    # Means 2 and 3; one alone has nothing to be compared with.
    assert by_trajectory(three_groups(), dr_grpo(three_groups())) == [-1, 1, -3, -1, 1, 3, 0]
    # 1 - 3 and 3 - 1; 0 - 12/3, 2 - 10/3, 4 - 8/3, 6 - 6/3.
    assert by_trajectory(three_groups(), rloo(three_groups())) == pytest.approx([-2, 2, -4, -4 / 3, 4 / 3, 4, 0])


def test_reinforce_pp_by_hand():
    pair = [path(Sampled(reward=reward, tokens=1)) for reward in (1.0, 3.0)]
    batch = batch_of(pair, [path(Sampled(reward=9.0))])
    # -1, 1, 0, 0 on four tokens: mean 0, squares 2 over 3.
    expected = [-1 / (2 / 3) ** 0.5, 1 / (2 / 3) ** 0.5, 0]
    assert by_trajectory(batch, reinforce_pp(batch)) == pytest.approx(expected, abs=1e-6)
    batch = batch_of([path(*[Sampled(reward=reward, tokens=1) for reward in (1.0, 2.0, 0.0)])])
    # gamma 1/2: 2, 2, 0: mean 4/3, squares 4/9 + 4/9 + 16/9 over 2.
    actual = by_turn(batch, reinforce_pp(batch, subtract="nothing", gamma=0.5))
    assert actual == [pytest.approx([(2 / 3) / (4 / 3) ** 0.5] * 2 + [(-4 / 3) / (4 / 3) ** 0.5], abs=1e-6)]
    batch = batch_of([path((-1, 0.1)), path((-1, 0.1)), path((-1, 0.1))])
    assert torch.count_nonzero(reinforce_pp(batch, subtract="nothing")) == 0


def mixed():
    """Naive returns 0 and 2, searched ones 4 and 10; then a group without naive ones, 1 and 3."""
    first = [path((-1, 0.0)), path((-1, 2.0))]
    searched = [path((-1, worth), selected_by="beam") for worth in (4.0, 10.0, 1.0, 3.0)]
    return batch_of(first + searched[:2], searched[2:])


def test_mixed_groups_have_the_mean_of_all_of_the_naive_ones_or_of_each_kind():
    # Mean 4.
    assert by_trajectory(mixed(), dr_grpo(mixed())) == [-4, -2, 0, 6, -1, 1]
    # Mean 1 of the naive ones; a group without any is its own baseline.
    assert by_trajectory(mixed(), dr_grpo(mixed(), baseline="naive")) == [-1, 1, 3, 9, -1, 1]
    # Means 1 and 7.
    assert by_trajectory(mixed(), dr_grpo(mixed(), baseline="per_kind")) == [-1, 1, -3, 3, -1, 1]
    # Naive: 0 - 2 and 2 - 0; searched against the mean 1 of both naive ones.
    assert by_trajectory(mixed(), rloo(mixed(), baseline="naive")) == [-2, 2, 3, 9, -2, 2]


def test_the_deviation_is_that_of_the_whole_group_or_of_each_kind():
    # All: squares 16 + 4 + 0 + 36 over 3, for either mean. Per kind: 1 + 1 and 9 + 9 over 1.
    whole = sqrt(56 / 3)
    naive = [-1 / whole, 1 / whole, 3 / whole, 9 / whole, -1 / sqrt(2), 1 / sqrt(2)]
    assert by_trajectory(mixed(), grpo(mixed(), baseline="naive")) == pytest.approx(naive, abs=1e-4)
    per_kind = [-1 / sqrt(2), 1 / sqrt(2)] * 3
    assert by_trajectory(mixed(), grpo(mixed(), baseline="per_kind")) == pytest.approx(per_kind, abs=1e-4)
    expected = [value / whole for value in (-4, -2, 0, 6)] + [-1 / sqrt(2), 1 / sqrt(2)]
    assert by_trajectory(mixed(), grpo(mixed())) == pytest.approx(expected, abs=1e-4)


SPLIT = ([-0.2, 1.0, -0.1, 9.9], [-0.3, -0.2, 1.0, 1.0, -0.2, -0.3, -0.2, 9.8])


@pytest.mark.parametrize("naive", [[[-0.1], [-0.2], [-0.1], [-0.1]], [[-0.1, -0.2], [-0.3]], SPLIT])
def test_naive_returns_that_hardly_differ_do_not_blow_up_a_searched_one(naive):
    paths = [path(*[(-1, reward) for reward in rewards]) for rewards in naive]
    batch = batch_of([*paths, path((-1, 20.0), selected_by="beam")])
    actual = by_trajectory(batch, grpo(batch, baseline="naive"))
    # A distance is at most the range r, and a deviation of n values at least r / sqrt(2 (n - 1)).
    assert max(map(abs, actual)) <= sqrt(2 * len(naive))
    assert actual[-1] > 1


def test_few_or_equal_naive_trajectories_are_baseline_enough_for_searched_ones():
    batch = batch_of([path((-1, 0.0)), path((-1, 0.0)), path((-1, 3.0), selected_by="beam")])
    # Of 0, 0, 3: mean 1, squares 1 + 1 + 4 over 2. Divided by the naive ones' deviation it would be 3 / 1e-6.
    assert by_trajectory(batch, grpo(batch, baseline="naive")) == pytest.approx([0, 0, 3 / sqrt(3)], abs=1e-4)
    batch = batch_of([path((-1, 1.0)), path((-1, 3.0), selected_by="beam"), path((-1, 5.0), selected_by="beam")])
    assert by_trajectory(batch, dr_grpo(batch, baseline="naive")) == [0, 2, 4]


def test_turns_and_siblings_take_the_same_choice():
    naive, searched = path((-1, 1.0), (-1, 0.0)), path((-1, 5.0), (-1, 2.0), selected_by="beam")
    batch = batch_of([naive, path((-1, 3.0), (-1, 0.0)), searched])
    # Turn 0: mean 2 of the naive ones, deviation 2 of 1, 3, 5. Turn 1: mean 0, deviation of 0, 0, 2.
    actual = by_turn(batch, tspo(batch, baseline="naive"))
    assert flat(actual) == pytest.approx([-1 / 2, 0, 1 / 2, 0, 3 / 2, 2 / sqrt(4 / 3)], abs=1e-4)
    trees = batch_of([leaf([1], 1.0), leaf([2], 3.0), leaf([3], 8.0, selected_by="beam")])
    assert by_trajectory(trees, tree_backup(trees, baseline="naive")) == [-2, 2, 6]


@pytest.mark.parametrize("baseline", ["all", "naive", "per_kind"])
@pytest.mark.parametrize("estimator", [grpo, rloo, tree_grpo, treerl, partial(treepo, whiten=False), gigpo, mt_grpo])
def test_a_group_of_one_kind_is_as_without_the_choice(estimator, baseline):
    batch = batch_of([leaf([1, 2], 0.0), leaf([1, 3], 3.0), leaf([4], 6.0)])
    torch.testing.assert_close(estimator(batch, baseline=baseline), estimator(batch))


def compared(values, keys, *, fitted=None, weights=None, dtype=torch.float32, **choices):
    values, weights = (torch.tensor(row, dtype=dtype) for row in (values, weights or [1.0] * len(values)))
    fitted = torch.tensor(fitted or [True] * len(values))
    choices = {"centre": "mean", "scale": "none", "ddof": 1, "eps": 0.0} | choices
    return compare(values, torch.tensor(keys), fitted, weights, **choices)


def test_compare_subtracts_means_and_divides_by_deviations():
    actual = compared([1.0, 3.0, 10.0, 20.0, 30.0], [7, 7, 2, 2, 2])
    assert actual.advantage.tolist() == [-1.0, 1.0, -10.0, 0.0, 10.0]
    assert actual.size.tolist() == [2, 2, 3, 3, 3]
    # 1 - 3, 3 - 1; 10 - 25, 20 - 20, 30 - 15.
    actual = compared([1.0, 3.0, 10.0, 20.0, 30.0], [7, 7, 2, 2, 2], centre="loo")
    assert actual.advantage.tolist() == [-2.0, 2.0, -15.0, 0.0, 15.0]
    # Distances -1, 1: squares 2, over 1 or over 2.
    sample = compared([1.0, 3.0], [0, 0], scale="std").advantage
    assert sample.tolist() == pytest.approx([-1 / sqrt(2), 1 / sqrt(2)])
    assert compared([1.0, 3.0], [0, 0], scale="std", ddof=0).advantage.tolist() == pytest.approx([-1.0, 1.0])
    # In single precision the mean of ten times 0.1 is not 0.1.
    actual = compared([0.1] * 10, [0] * 10, scale="std")
    assert actual.advantage.tolist() == [0.0] * 10
    assert actual.flat.all()


def test_a_singleton_is_reported_but_not_one_next_to_fitted_ones():
    actual = compared([4.0, 1.0, 2.0], [0, 1, 1], centre="loo")
    assert actual.alone.tolist() == [True, False, False]
    actual = compared([1.0, 4.0], [0, 0], fitted=[True, False])
    assert (actual.alone.tolist(), actual.advantage.tolist()[1]) == ([True, False], 3.0)


def test_weights_count_as_often():
    # (2 * 1 + 1 * 4) / 3 = 2. Leave one out removes both copies of the first.
    assert compared([1.0, 4.0], [0, 0], weights=[2.0, 1.0]).advantage.tolist() == [-1.0, 2.0]
    assert compared([1.0, 4.0], [0, 0], weights=[2.0, 1.0], centre="loo").advantage.tolist() == [-3.0, 3.0]


def test_statistics_can_be_fitted_on_some_and_flat_is_what_equals_them():
    # Mean of 1 and 3 is 2. The deviation is that of 1, 3, 8: mean 4, squares 9 + 1 + 16 over 2.
    actual = compared([1.0, 3.0, 8.0], [0, 0, 0], fitted=[True, True, False], scale="std")
    assert actual.advantage.tolist() == pytest.approx([-1 / sqrt(13), 1 / sqrt(13), 6 / sqrt(13)])
    assert actual.size.tolist() == [2, 2, 2]
    others = compared([1.0, 3.0, 7.0], [0, 0, 0], fitted=[True, True, False], centre="loo")
    # 1 - 3, 3 - 1, and 7 against the mean of both.
    assert others.advantage.tolist() == [-2.0, 2.0, 5.0]
    # Of 1, 1, 4: mean 2, squares 1 + 1 + 4 over 2, deviation sqrt 3.
    actual = compared([1.0, 1.0, 4.0], [0, 0, 0], fitted=[True, True, False], scale="std")
    assert actual.advantage.tolist() == pytest.approx([0.0, 0.0, 3 / sqrt(3)])
    assert actual.flat.tolist() == [True, True, False]


NUMBERS = st.floats(-1e6, 1e6) | st.sampled_from([0.0, 1.0, -3.0, 1e-9, 10.6, 1e5])


@settings(max_examples=30)
@given(st.lists(st.tuples(NUMBERS, st.sampled_from([0, 1, -1, 3, 100]), st.integers(0, 2)), min_size=1, max_size=12))
def test_what_is_equal_is_what_filters_call_equal(drawn):
    """Numbers a few tenths of the tolerance apart, in up to three groups, by the tensor and by plain Python."""
    values = [value + steps * 0.3e-9 * max(1.0, abs(value)) for value, steps, _ in drawn]
    keys = [key for *_, key in drawn]
    actual = compared(values, keys, dtype=torch.float64).flat.tolist()
    for key in set(keys):
        members = [value for value, its in zip(values, keys, strict=True) if its == key]
        assert {flat for flat, its in zip(actual, keys, strict=True) if its == key} == {are_equal(members)}


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_is_not_hidden(bad):
    actual = compared([1.0, bad, 1.0, 3.0], [0, 0, 1, 1], scale="std")
    assert not torch.isfinite(actual.advantage[:2]).any()
    assert torch.isfinite(actual.advantage[2:]).all()
