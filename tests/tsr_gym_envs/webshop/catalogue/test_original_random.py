"""Random numbers, prices and limits, against Python's global functions and golden cases."""

import json
import random
import string
from collections import Counter
from itertools import pairwise

import pytest

from tsr_gym_envs.webshop.catalogue.original_random import (
    NO_TIER,
    draw_name,
    draw_order,
    draw_price,
    draw_rows,
    draw_tier,
    generator_of,
    limit_of,
    limit_text,
    stored_price,
    stored_tier,
    tiers_above,
)


@pytest.fixture
def global_random():
    """Python's global generator, put back afterwards."""
    state = random.getstate()
    yield random
    random.setstate(state)


@pytest.mark.parametrize("count", [0, 1, 2, 13, 6910])
def test_goals_are_shuffled_as_a_list_is(global_random, count):
    expected = list(range(count))
    global_random.seed(233)
    global_random.shuffle(expected)
    order, dice = draw_order(count)
    assert order.tolist() == expected
    assert dice == global_random.getstate()


def test_the_order_of_the_real_goals_is_the_golden_one(shared):
    row = json.loads((shared / "golden" / "webshop" / "rng_reset_sequence.json").read_text())
    assert draw_order(6910)[0][:50].tolist() == row["perm_head"]


def test_names_and_rows_are_drawn_as_the_original_draws_them(global_random):
    global_random.seed(7)
    ours = generator_of(7)
    products = list(range(1000))
    for _ in range(5):
        assert draw_name(ours) == "".join(global_random.choices(string.ascii_lowercase, k=10))
        assert draw_rows(ours, 1000) == tuple(global_random.sample(products, k=50))
    assert ours.getstate() == global_random.getstate()


def test_few_products_are_all_listed():
    assert sorted(draw_rows(generator_of(1), 7)) == list(range(7))


def test_a_state_continues_where_it_was_taken_and_the_global_generator_is_left_alone(global_random):
    before = global_random.getstate()
    generator = generator_of(3)
    generator.random()
    state = generator.getstate()
    expected = [generator.random() for _ in range(3)]
    again = generator_of(state)
    assert [again.random() for _ in range(3)] == expected
    assert global_random.getstate() == before


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
