"""Comparisons by hand: who is compared with whom, and what is left undefined elsewhere."""

from math import sqrt

import pytest
import torch

from tsr_gym.agents.learning.advantages.mechanism.comparison import compare


def compared(values, keys, *, fitted=None, weights=None, centre="mean", scale="none", ddof=1, eps=0.0):
    fitted = [True] * len(values) if fitted is None else fitted
    weights = [1.0] * len(values) if weights is None else weights
    return compare(
        torch.tensor(values),
        torch.tensor(keys),
        torch.tensor(fitted),
        torch.tensor(weights),
        centre=centre,
        scale=scale,
        ddof=ddof,
        eps=eps,
    )


def test_the_mean_of_each_key_is_subtracted():
    found = compared([1.0, 3.0, 10.0, 20.0, 30.0], [7, 7, 2, 2, 2])
    assert found.advantage.tolist() == [-1.0, 1.0, -10.0, 0.0, 10.0]
    assert found.size.tolist() == [2, 2, 3, 3, 3]


def test_or_the_mean_of_the_others():
    # 1 - 3, 3 - 1; 10 - 25, 20 - 20, 30 - 15.
    found = compared([1.0, 3.0, 10.0, 20.0, 30.0], [7, 7, 2, 2, 2], centre="loo")
    assert found.advantage.tolist() == [-2.0, 2.0, -15.0, 0.0, 15.0]


def test_the_deviation_is_that_of_a_sample_or_of_a_population():
    # Distances -1, 1: squares 2, over 1 or over 2.
    sample = compared([1.0, 3.0], [0, 0], scale="std").advantage
    assert sample.tolist() == pytest.approx([-1 / sqrt(2), 1 / sqrt(2)])
    assert compared([1.0, 3.0], [0, 0], scale="std", ddof=0).advantage.tolist() == pytest.approx([-1.0, 1.0])


def test_one_alone_is_told_so():
    found = compared([4.0, 1.0, 2.0], [0, 1, 1], centre="loo")
    assert found.alone.tolist() == [True, False, False]


def test_exactly_equal_values_have_exactly_nothing():
    # In single precision the mean of ten times 0.1 is not 0.1.
    found = compared([0.1] * 10, [0] * 10, scale="std")
    assert found.advantage.tolist() == [0.0] * 10
    assert found.flat.all()


def test_weights_count_as_often():
    # (2 * 1 + 1 * 4) / 3 = 2; others of the first: one of its own copies stays out with it.
    found = compared([1.0, 4.0], [0, 0], weights=[2.0, 1.0])
    assert found.advantage.tolist() == [-1.0, 2.0]
    assert compared([1.0, 4.0], [0, 0], weights=[2.0, 1.0], centre="loo").advantage.tolist() == [-3.0, 3.0]


def test_statistics_can_be_fitted_on_some():
    # Mean of 1 and 3 is 2, deviation sqrt 2; the third is compared but not asked.
    found = compared([1.0, 3.0, 7.0], [0, 0, 0], fitted=[True, True, False], scale="std")
    assert found.advantage.tolist() == pytest.approx([-1 / sqrt(2), 1 / sqrt(2), 5 / sqrt(2)])
    assert found.size.tolist() == [2, 2, 2]
    others = compared([1.0, 3.0, 7.0], [0, 0, 0], fitted=[True, True, False], centre="loo")
    # 1 - 3, 3 - 1, and 7 against the mean of both.
    assert others.advantage.tolist() == [-2.0, 2.0, 5.0]


def test_where_those_are_all_equal_the_deviation_is_that_of_the_whole_group():
    # Fitted on 1 and 1, whose deviation is 0. Of 1, 1, 4: mean 2, squares 1 + 1 + 4 over 2, deviation sqrt 3.
    found = compared([1.0, 1.0, 4.0], [0, 0, 0], fitted=[True, True, False], scale="std")
    assert found.advantage.tolist() == pytest.approx([0.0, 0.0, 3 / sqrt(3)])
    assert found.flat.tolist() == [True, True, False]


def test_one_who_is_not_fitted_is_not_alone_with_one_who_is():
    found = compared([1.0, 4.0], [0, 0], fitted=[True, False])
    assert found.alone.tolist() == [True, False]
    assert found.advantage.tolist()[1] == 3.0


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_is_not_hidden(bad):
    found = compared([1.0, bad, 1.0, 3.0], [0, 0, 1, 1], scale="std")
    assert not torch.isfinite(found.advantage[:2]).any()
    assert torch.isfinite(found.advantage[2:]).all()
