"""The oracle against trying everything, on a shop of fifteen products."""

from functools import cache

import numpy as np
import pytest

from tests.tsr_gym_envs.webshop.tiny_shop import goal, product, tiny_shop
from tsr_gym_envs.webshop import oracle
from tsr_gym_envs.webshop.observation import page_of
from tsr_gym_envs.webshop.oracle import as_query, best_action, best_plan, best_purchase, best_reachable
from tsr_gym_envs.webshop.rules import follow
from tsr_gym_envs.webshop.state import ShopState

COLORS = ("color", ("light blue", "navy blue", "red"))
SIZES = ("size", ("12 oz", "20 oz"))
PRODUCTS = [
    product(0, "Steel mug", options=[COLORS, SIZES], attributes=["leak proof", "dishwasher safe"]),
    product(1, "Steel cup", options=[COLORS], attributes=["leak proof"], query="cups"),
    product(2, "Glass mug", options=[SIZES, ("lid", ("12 oz", "navy blue"))], attributes=["dishwasher safe"]),
    product(3, "Steel mug xl", options=[SIZES], attributes=["leak proof", "dishwasher safe"], price=30.0),
    # Enough mugs that a search for "mug" takes two pages.
    *(product(row, f"Mug number {row}", query="others", category="x") for row in range(4, 15)),
]
ASKED = "Find me a steel mug with color: navy blue, and size: 20 oz"
PAIRS = goal(
    PRODUCTS[0],
    ASKED,
    attributes=["leak proof", "dishwasher safe"],
    options=[("color", "navy blue"), ("size", "20 oz")],
)
BARE = goal(PRODUCTS[0], "i want a blue steel mug of 20 oz", options=["navy blue", "20 oz"])
NONE = goal(PRODUCTS[2], "Find me a mug", attributes=["dishwasher safe"])
GOALS = [PAIRS, BARE, NONE]
MOST = 6


def searches(shop, state):
    texts = [*(product.title for product in shop.catalogue.products), shop.goal(state).instruction_text, "mug"]
    return tuple(f"search[{text.lower()}]" for text in texts)


def try_everything(shop):
    """Return the function (state, actions left) -> best reward, worked out by taking every action."""

    @cache
    def best(state, left):
        if state.page == "done":
            return shop.purchase(state)["reward"]
        if left == 0:
            return 0.0
        clicks = shop.layout(page_of(shop, state)).actions
        # Whatever the product, buying it takes a search, a click on it and the purchase.
        actions = (*clicks, *searches(shop, state)) if left >= 3 else clicks
        following = {follow(shop, state, shop.parse(action)) for action in actions}
        return max(best(after._replace(opened=()), left - 1) for after in following if after is not None)

    return best


def after(shop, number, *actions):
    state = ShopState(number, "0")
    for action in actions:
        state = follow(shop, state, shop.parse(action))
        assert state is not None, action
    return state._replace(opened=())


MUG, CUP, GLASS, BIG = (f"click[b{row:09}]" for row in range(4))
TRIPS = [
    (),
    ("search[steel]",),
    ("search[mug]",),
    ("search[mug]", "click[next >]"),
    ("search[steel]", MUG),
    ("search[steel]", MUG, "click[20 oz]"),
    ("search[steel]", MUG, "click[red]", "click[12 oz]"),
    ("search[steel]", MUG, "click[navy blue]", "click[features]"),
    ("search[steel]", CUP, "click[light blue]"),
    ("search[mug]", GLASS, "click[20 oz]"),
    ("search[mug]", BIG),
    ("search[mug]", "click[next >]", "click[b000000014]"),
    ("search[steel]", CUP, "click[buy now]"),
]


@pytest.mark.parametrize("rules", ["fixed", "original"])
@pytest.mark.parametrize("number", range(len(GOALS)))
def test_no_way_of_shopping_beats_the_oracle_and_none_falls_short(rules, number):
    shop = tiny_shop(PRODUCTS, GOALS, rules)
    truth = try_everything(shop)
    seen = set()
    for trip in TRIPS:
        state = after(shop, number, *trip)
        for left in range(MOST):
            came = best_reachable(shop, state, left)
            assert came == truth(state, left), (trip, left)
            seen.add(round(came, 6))
    assert len(seen) >= 3


@pytest.mark.parametrize("rules", ["fixed", "original"])
@pytest.mark.parametrize("trip", TRIPS[:-1])
def test_following_its_actions_earns_what_the_oracle_says(rules, trip):
    shop = tiny_shop(PRODUCTS, GOALS, rules)
    for number in range(len(GOALS)):
        for left in range(1, 8):
            state = after(shop, number, *trip)
            promised, left_now = best_reachable(shop, state, left), left
            while state.page != "done" and left_now:
                state = follow(shop, state, shop.parse(best_action(shop, state, left_now)))
                left_now -= 1
            earned = shop.purchase(state)["reward"] if state.page == "done" else 0.0
            assert earned == promised


def test_without_a_limit_the_target_is_bought_as_wanted():
    shop = tiny_shop(PRODUCTS, GOALS)
    plan = best_plan(shop, after(shop, 0), None)
    assert plan == (
        1.0,
        ("search[Steel mug]", "click[b000000000]", "click[navy blue]", "click[20 oz]", "click[buy now]"),
    )
    assert best_plan(shop, after(shop, 0), 5) == plan
    # One option of five wishes has to be left out.
    assert best_reachable(shop, after(shop, 0), 4) == 4 / 5


def test_where_nothing_can_be_bought_in_time_the_first_step_is_still_named():
    shop = tiny_shop(PRODUCTS, GOALS)
    assert best_plan(shop, after(shop, 0), 2) == (0.0, ())
    assert best_action(shop, after(shop, 0), 2) == "search[Steel mug]"


def test_a_purchase_takes_no_more_clicks_than_allowed_and_none_for_what_is_chosen():
    shop = tiny_shop(PRODUCTS, GOALS)
    best = [best_purchase(shop, 0, 0, (("size", "20 oz"),), most) for most in (0, 1, None)]
    assert [bought.clicks for bought in best] == [(), ("navy blue",), ("navy blue",)]
    assert [bought.reward for bought in best] == [4 / 5, 1.0, 1.0]
    assert best[-1].options == (("size", "20 oz"), ("color", "navy blue"))
    assert best_purchase(shop, 0, 0, (("size", "12 oz"),)).options == (("size", "20 oz"), ("color", "navy blue"))


def test_options_that_no_action_can_name_are_left_out():
    products = [product(0, "Mug", options=[("size", ["buy now", "6 [us]", "7"])], attributes=["leak proof"])]
    wishes = [goal(products[0], "a mug", options=[("size", value)]) for value in ("buy now", "6 [us]", "7")]
    assert [best_purchase(tiny_shop(products, wishes), i, 0).clicks for i in range(3)] == [
        ("size: buy now",),
        ("6 [us]",),
        ("7",),
    ]
    original = tiny_shop(products, wishes, "original")
    assert [best_purchase(original, i, 0).clicks for i in range(3)] == [(), (), ("7",)]


def test_of_a_large_catalogue_only_the_hits_of_title_and_instruction_are_looked_at(monkeypatch):
    shop = tiny_shop(PRODUCTS, GOALS, "original")
    everything = best_reachable(shop, after(shop, 1), 4)
    monkeypatch.setattr(oracle, "MAX_SCANNED", 3)
    few = tiny_shop(PRODUCTS, GOALS, "original")
    assert best_reachable(few, after(few, 1), 4) == everything
    assert {row for _, row in oracle._bounds(few, 1)} <= set(few.engine.rows(as_query(BARE.instruction_text)))


def test_one_click_that_meets_two_wishes_can_make_another_product_the_better_one():
    products = [
        product(0, "Steel mug", options=[("color", ["blue"]), ("shade", ["navy"])], attributes=["leak proof"]),
        product(1, "Steel mug xl", options=[("color", ["navy blue"])], attributes=["leak proof"]),
    ]
    shop = tiny_shop(products, [goal(products[0], "mug", options=["blue", "navy"])])
    assert best_plan(shop, after(shop, 0), 4) == (
        1.0,
        ("search[Steel mug xl]", "click[b000000001]", "click[navy blue]", "click[buy now]"),
    )


def test_where_nothing_earns_anything_the_oracle_searches():
    products = [product(0, "[]", attributes=["leak proof"]), product(1, "Steel mug")]
    shop = tiny_shop(products, [goal(products[0], "mug")])
    assert best_plan(shop, after(shop, 0), None) == (0.0, ())
    assert best_action(shop, after(shop, 0), None) == "search[mug, and price lower than 20.00 dollars]"


def random_shop(rng, rules):
    """Six products, whose titles, options, attributes and prices are drawn from few, and a goal of each kind."""
    nouns, attributes, values = (
        ["mug", "cup", "lid", "box"],
        ["leak proof", "hand made"],
        ["5", "5.5", "red", "dark red"],
    )

    def some(pool, least=0):
        return [str(one) for one in rng.choice(pool, rng.integers(least, len(pool)), replace=False)]

    products = [
        product(
            row,
            " ".join(some(nouns, 1)),
            options=[(name, some(values, 1)) for name in some(["size", "color", "style"])],
            attributes=some(attributes),
            price=float(rng.choice([10.0, 30.0])),
            query=str(rng.choice(["a", "b"])),
            category=str(rng.choice(["x", "y"])),
        )
        for row in range(6)
    ]
    pairs = [(name, str(rng.choice(values))) for name, values in products[0].options]
    goals = [
        goal(products[0], "a mug", attributes=attributes, options=pairs),
        goal(products[0], "a mug", attributes=attributes[:1], options=[value for _, value in pairs]),
    ]
    return tiny_shop(products, goals, rules)


@pytest.mark.parametrize("rules", ["fixed", "original"])
@pytest.mark.parametrize("seed", range(12))
def test_on_random_shops_the_oracle_is_right_wherever_chance_leads(rules, seed):
    rng = np.random.default_rng(seed)
    shop = random_shop(rng, rules)
    truth = try_everything(shop)
    for _ in range(8):
        state = ShopState(int(rng.integers(2)), "0")
        for left in range(5, 0, -1):
            assert best_reachable(shop, state, left) == truth(state, left)
            actions = (*searches(shop, state), *3 * shop.layout(page_of(shop, state)).actions)
            following = follow(shop, state, shop.parse(str(rng.choice(actions))))
            state = state if following is None else following._replace(opened=())
            if state.page == "done":
                break
