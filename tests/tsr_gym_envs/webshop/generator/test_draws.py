"""Draws and ids of the generator: reproducible, with the right distribution, never repeated."""

import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsr_gym_envs.webshop.generator.vocabulary import BLOCK, HALF, LETTERS, Draws, _keys, _mixed, asin_of


def test_draws_depend_on_what_they_are_for_and_on_nothing_else():
    first = [Draws("product", 0, 7).below(10**9) for _ in range(2)]
    others = [Draws("product", 0, 8), Draws("product", 1, 7), Draws("brand", 0, 7)]
    assert first[0] == first[1]
    assert first[0] not in [draws.below(10**9) for draws in others]


def test_a_stream_continues_after_the_numbers_of_a_block():
    draws = Draws("long")
    assert len({draws.below(10**12) for _ in range(3 * BLOCK)}) == 3 * BLOCK


def test_samples_hold_no_value_twice_and_all_values_equally_often():
    draws, counts = Draws("sample"), Counter()
    for _ in range(4000):
        drawn = draws.sample(range(5), 2)
        assert len(set(drawn)) == 2
        counts.update(drawn)
    assert all(abs(count / 1600 - 1) < 0.1 for count in counts.values())
    assert sorted(draws.sample("abc", 7)) == ["a", "b", "c"]


def test_early_values_are_drawn_more_often_where_that_is_asked_for():
    draws = Draws("early")
    counts = Counter(value for _ in range(4000) for value in draws.sample_early(range(4), 1))
    # The square of a unit is below 1/4 half of the time.
    assert abs(counts[0] / 2000 - 1) < 0.1
    assert counts[0] > counts[1] > counts[2] > counts[3]
    assert sorted(draws.sample_early("abc", 7)) == ["a", "b", "c"]


def test_weighted_draws_have_the_shares_that_running_sums_say():
    draws = Draws("weighted")
    counts = Counter(draws.weighted((0.1, 0.1, 0.7, 1.0)) for _ in range(5000))
    assert counts[1] == 0
    assert [round(counts[number] / 5000, 1) for number in (0, 2, 3)] == [0.1, 0.6, 0.3]


def test_quantiles_are_met_with_straight_lines_between_them():
    draws = Draws("quantile")
    values = [draws.quantile((0, 10, 100)) for _ in range(8000)]
    assert np.quantile(values, [0.25, 0.5, 0.75]) == pytest.approx([5, 10, 55], rel=0.1)
    assert 0 <= min(values) <= max(values) <= 100


def row_of(seed, asin):
    """Return the row of an id, by undoing the rounds one by one."""
    left, right = (int(part, 36) for part in (asin[2:6], asin[6:]))
    for key in reversed(_keys(seed)):
        left, right = (right - _mixed(left ^ key)) % HALF, left
    return left * HALF + right


@given(st.integers(0, 50), st.integers(0, HALF**2 - 1))
def test_every_row_can_be_read_from_its_id_so_no_two_share_one(seed, row):
    asin = asin_of(seed, row)
    assert re.fullmatch("B0[0-9A-Z]{8}", asin)
    assert row_of(seed, asin) == row


def test_ids_of_neighbors_and_of_other_seeds_look_unrelated():
    assert LETTERS == "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    asins = [asin_of(0, row) for row in range(3000)]
    for place in range(2, 10):
        assert len({asin[place] for asin in asins}) == 36
    assert not {asin_of(1, row) for row in range(3000)} & set(asins)
