"""Prices and limits: the original's tiers and draws, and those that belong to a product for good."""

import random
from collections import Counter
from itertools import pairwise

import pytest

from tsr_gym_envs.webshop.catalogue.original_random import generator_of
from tsr_gym_envs.webshop.catalogue.prices import (
    NO_TIER,
    draw_price,
    draw_tier,
    limit_of,
    limit_text,
    stored_price,
    stored_tier,
    tiers_above,
)

ASINS = [f"B{number:09d}" for number in range(3000)]


def test_the_tiers_above_a_price_are_the_originals(golden):
    for row in golden("webshop/price_tiers.jsonl"):
        assert [limit_of(tier) for tier in tiers_above(row["price"])] == row["candidates"]
        assert (stored_tier(row["price"], "B1") != NO_TIER) == row["has_upper"]


def test_the_tiers_above_a_price_are_the_first_four_of_the_list():
    everything = [10.0 * tier for tier in range(1, 100)]
    draw = random.Random(1)
    for price in [*(draw.uniform(0, 1100) for _ in range(5000)), *everything, 0.0, 29.999999999999996]:
        assert [limit_of(tier) for tier in tiers_above(price)] == [tier for tier in everything if tier > price][:4]


def test_prices_and_limits_are_drawn_as_the_original_draws_them():
    ours, theirs = generator_of(5), random.Random(5)
    for price in (3.5, 55.5, 975.0, 980.0, 2000.0, 12.0):
        assert draw_price(price, 2 * price, ours) == theirs.uniform(price, 2 * price)
        candidates = [limit for limit in (10.0 * tier for tier in range(1, 100)) if limit > price][:4]
        if len(candidates) >= 2:
            assert limit_of(draw_tier(price, ours)) == sorted(theirs.sample(candidates, 2))[1]
        else:
            assert draw_tier(price, ours) == NO_TIER
    assert ours.getstate() == theirs.getstate()


def test_limits_read_as_in_the_original():
    assert limit_text(6) == ", and price lower than 60.00 dollars"
    assert (limit_text(NO_TIER), limit_of(NO_TIER)) == ("", 1_000_000)


def test_stored_prices_lie_in_the_range_in_full_cents_and_spread_over_it():
    prices = [stored_price(asin, (10.0, 20.0)) for asin in ASINS]
    assert all(10 <= price <= 20 and round(price, 2) == price for price in prices)
    # Within four standard errors of a uniform draw.
    assert sum(prices) / len(prices) == pytest.approx(15, abs=4 * 10 / 12**0.5 / len(prices) ** 0.5)
    assert max(b - a for a, b in pairwise(sorted(prices))) < 0.1
    assert stored_price("B1", (12.345,)) == 12.345


def test_stored_limits_have_the_originals_odds():
    drawn = Counter(stored_tier(55.5, asin) for asin in ASINS)
    # The larger of two among four: never the first, then 1, 2 and 3 of 6 pairs.
    assert sorted(drawn) == [7, 8, 9]
    for tier, share in ((7, 1 / 6), (8, 2 / 6), (9, 3 / 6)):
        assert drawn[tier] / len(ASINS) == pytest.approx(share, abs=4 * (share * (1 - share) / len(ASINS)) ** 0.5)
    assert all(limit_of(stored_tier(price, "B1", 3)) > price for price in (1.0, 10.0, 960.0, 980.0, 5000.0))


def test_instructions_of_one_product_have_limits_of_their_own():
    assert len({tuple(stored_tier(55.5, asin, number) for asin in ASINS[:50]) for number in range(3)}) == 3
