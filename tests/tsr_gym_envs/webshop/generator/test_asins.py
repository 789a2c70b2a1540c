"""Ids of generated products: never the same twice, by an inverse written here."""

import re

from hypothesis import given
from hypothesis import strategies as st

from tsr_gym_envs.webshop.generator.asins import HALF, LETTERS, _keys, _mixed, asin_of


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
