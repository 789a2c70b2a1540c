"""Discounted sums, against the sum as it is written."""

import pytest
import torch

from tsr_gym.agents.learning.advantages.mechanism.discounting import discounted_sum, later, lines_of


@pytest.mark.parametrize("discount", [0.0, 0.5, 0.99, 1.0, 1e-30])
@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 65])
def test_a_discounted_sum_is_what_its_formula_says(discount, length):
    values = torch.randn(3, length, dtype=torch.float64, generator=torch.Generator().manual_seed(length))
    for row, found in zip(values.tolist(), discounted_sum(values, discount).tolist(), strict=True):
        for t in range(length):
            expected = sum(discount ** (later - t) * row[later] for later in range(t, length))
            assert found[t] == pytest.approx(expected, abs=1e-12)


def test_it_does_not_change_what_it_is_given():
    values = torch.ones(1, 4)
    assert discounted_sum(values, 1.0).tolist() == [[4.0, 3.0, 2.0, 1.0]]
    assert values.tolist() == [[1.0] * 4]


def test_lines_begin_on_the_left_and_end_with_zeros():
    lines = lines_of(torch.tensor([0, 0, 1, 2, 2, 2]))
    matrix = lines.write(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))
    assert matrix.tolist() == [[1, 2, 0], [3, 0, 0], [4, 5, 6]]
    assert lines.read(matrix).tolist() == [1, 2, 3, 4, 5, 6]
    assert later(matrix).tolist() == [[2, 0, 0], [0, 0, 0], [5, 6, 0]]
