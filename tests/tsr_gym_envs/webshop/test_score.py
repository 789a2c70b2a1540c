"""The proxy scores: milestones, words and wishes counted by hand."""

import pytest

from tests.tsr_gym_envs.webshop.shops import goal, product, tiny_shop
from tsr_gym_envs.webshop.rules import follow
from tsr_gym_envs.webshop.score import fit, overlap, progress, read_instruction
from tsr_gym_envs.webshop.state import ShopState

PRODUCTS = [
    product(
        0,
        "Steel mug",
        options=[("color", ("blue", "navy blue")), ("size", ("5", "15"))],
        description="Keeps tea warm.",
    ),
    product(1, "Glass mug for tea", price=30.0),
]
GOALS = [
    goal(PRODUCTS[0], "Find me a warm steel mug with color: navy blue, and size: 5", attributes=["hidden wish"]),
    goal(PRODUCTS[0], "i need a warm navy blue mug of size 5"),
]
MUG, GLASS, BUY = "click[b000000000]", "click[b000000001]", "click[buy now]"


@pytest.fixture(scope="module")
def shop():
    return tiny_shop(PRODUCTS, GOALS)


def after(shop, *actions, number=0):
    state = ShopState(number, "0")
    for action in actions:
        state = follow(shop, state, shop.parse(action))
    return state


def test_progress_counts_the_product_its_options_and_the_purchase(shop):
    opened = ("search[mug]", MUG)
    trips = [(), ("search[mug]",), opened, (*opened, "click[blue]"), (*opened, "click[blue]", "click[5]")]
    assert [progress(shop, after(shop, *trip)) * 3 for trip in trips] == [0, 0, 1, 1, 2]
    assert progress(shop, after(shop, *trips[-1], "click[features]")) * 3 == 2
    assert progress(shop, after(shop, *trips[-1], BUY)) == 1
    assert progress(shop, after(shop, *opened, BUY)) * 3 == 2
    assert progress(shop, after(shop, *trips[-1], "click[< prev]")) == 0
    # A product without options leaves nothing to choose.
    assert progress(shop, after(shop, "search[mug]", GLASS)) * 3 == 2


def test_overlap_is_the_share_of_the_instructions_words_on_the_page(shop):
    # warm steel mug color navy blue size 5 20.00
    assert overlap(shop, after(shop)) == 0
    assert overlap(shop, after(shop, "search[glass]")) == 1 / 9
    assert overlap(shop, after(shop, "search[mug]")) == 2 / 9
    assert overlap(shop, after(shop, "search[mug]", MUG)) == 7 / 9
    assert overlap(shop, after(shop, "search[mug]", MUG, "click[description]")) == 3 / 9


def test_after_the_purchase_the_page_of_the_product_counts(shop):
    here = after(shop, "search[mug]", MUG)
    assert overlap(shop, follow(shop, here, shop.parse(BUY))) == overlap(shop, here)


def test_fit_is_the_mean_over_price_options_and_twice_the_words(shop):
    # Words: warm, steel, mug. Price, color and size make five parts with the words, which count twice.
    assert fit(shop, after(shop)) == 0
    assert fit(shop, after(shop, "search[mug]")) == pytest.approx((2 * 2 / 3 + 1) / 5)
    assert fit(shop, after(shop, "search[glass]")) == pytest.approx((2 * 1 / 3 + 0) / 5)
    opened = ("search[mug]", MUG)
    assert fit(shop, after(shop, *opened)) == pytest.approx((2 * 1 + 1) / 5)
    assert fit(shop, after(shop, *opened, "click[navy blue]")) == pytest.approx((2 + 1 + 1) / 5)
    assert fit(shop, after(shop, *opened, "click[blue]")) == pytest.approx((2 + 1) / 5)
    assert fit(shop, after(shop, *opened, "click[navy blue]", "click[5]", BUY)) == 1
    assert fit(shop, after(shop, "search[mug]", GLASS, BUY)) == pytest.approx(2 * 1 / 3 / 5)


def test_where_people_name_no_groups_the_longest_values_in_their_words_are_meant(shop):
    opened = after(shop, "search[mug]", MUG, number=1)
    # Words: warm, navy, blue, mug, size, 5; the title and the description contain two of them.
    assert fit(shop, opened) == pytest.approx((2 * 2 / 6 + 1) / 5)
    assert fit(shop, opened._replace(options=(("color", "navy blue"),))) == pytest.approx((2 * 2 / 6 + 2) / 5)
    assert fit(shop, opened._replace(options=(("color", "blue"), ("size", "15")))) == fit(shop, opened)


def test_instructions_without_limit_or_options_are_read_too():
    request = read_instruction("Find me soft, warm socks with rubber sole, arch support")
    assert request.words == {"soft", "warm", "socks", "rubber", "sole", "arch", "support"}
    assert (request.wishes, request.limit) == ((), float("inf"))


def test_the_wishes_of_every_generated_instruction_are_read_as_they_were_meant(golden):
    goals = golden("webshop/goals_synthetic_seed0.jsonl")
    right = sum(dict(read_instruction(goal["instruction_text"]).wishes) == goal["goal_options"] for goal in goals)
    assert right / len(goals) > 0.99
    assert all(
        read_instruction(goal["instruction_text"]).limit in (goal["price_upper"], float("inf")) for goal in goals
    )


def test_scores_do_not_depend_on_what_the_goal_hides(shop):
    secret = goal(PRODUCTS[1], "Find me a warm steel mug with color: navy blue, and size: 5", attributes=["other"])
    other = tiny_shop(PRODUCTS, [secret])
    state = after(shop, "search[mug]", MUG, "click[blue]")
    for rate in (progress, overlap, fit):
        assert rate(other, state) == rate(shop, state)
