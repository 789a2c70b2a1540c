"""Comparisons by hand: who is compared with whom, and what is left undefined elsewhere."""

from math import sqrt

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tsr_gym.agents.learning.advantages.mechanism.comparison import compare
from tsr_gym.agents.lessons.filters import are_equal


def compared(
    values, keys, *, fitted=None, weights=None, centre="mean", scale="none", ddof=1, eps=0.0, dtype=torch.float32
):
    fitted = [True] * len(values) if fitted is None else fitted
    weights = [1.0] * len(values) if weights is None else weights
    return compare(
        torch.tensor(values, dtype=dtype),
        torch.tensor(keys),
        torch.tensor(fitted),
        torch.tensor(weights, dtype=dtype),
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
    # Mean of 1 and 3 is 2. The deviation is that of 1, 3, 8: mean 4, squares 9 + 1 + 16 over 2.
    found = compared([1.0, 3.0, 8.0], [0, 0, 0], fitted=[True, True, False], scale="std")
    assert found.advantage.tolist() == pytest.approx([-1 / sqrt(13), 1 / sqrt(13), 6 / sqrt(13)])
    assert found.size.tolist() == [2, 2, 2]
    others = compared([1.0, 3.0, 7.0], [0, 0, 0], fitted=[True, True, False], centre="loo")
    # 1 - 3, 3 - 1, and 7 against the mean of both.
    assert others.advantage.tolist() == [-2.0, 2.0, 5.0]


def test_an_item_is_flat_where_it_equals_all_that_the_mean_is_fitted_on():
    # Of 1, 1, 4: mean 2, squares 1 + 1 + 4 over 2, deviation sqrt 3.
    found = compared([1.0, 1.0, 4.0], [0, 0, 0], fitted=[True, True, False], scale="std")
    assert found.advantage.tolist() == pytest.approx([0.0, 0.0, 3 / sqrt(3)])
    assert found.flat.tolist() == [True, True, False]


NUMBERS = st.floats(-1e6, 1e6) | st.sampled_from([0.0, 1.0, -3.0, 1e-9, 10.6, 1e5])


@given(st.lists(st.tuples(NUMBERS, st.sampled_from([0, 1, -1, 3, 100]), st.integers(0, 2)), min_size=1, max_size=12))
def test_what_is_equal_is_what_filters_call_equal(drawn):
    """Numbers a few tenths of the tolerance apart, in up to three groups, by the tensor and by plain Python."""
    values = [value + steps * 0.3e-9 * max(1.0, abs(value)) for value, steps, _ in drawn]
    keys = [key for *_, key in drawn]
    found = compared(values, keys, dtype=torch.float64).flat.tolist()
    for key in set(keys):
        members = [value for value, its in zip(values, keys, strict=True) if its == key]
        assert {flat for flat, its in zip(found, keys, strict=True) if its == key} == {are_equal(members)}


def test_one_who_is_not_fitted_is_not_alone_with_one_who_is():
    found = compared([1.0, 4.0], [0, 0], fitted=[True, False])
    assert found.alone.tolist() == [True, False]
    assert found.advantage.tolist()[1] == 3.0


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_is_not_hidden(bad):
    found = compared([1.0, bad, 1.0, 3.0], [0, 0, 1, 1], scale="std")
    assert not torch.isfinite(found.advantage[:2]).any()
    assert torch.isfinite(found.advantage[2:]).all()
