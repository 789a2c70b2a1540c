"""The oracle, the value and random play, against trying everything in small shops."""

from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from tests.tsr_gym_envs.webshop.shops import goal, product, tiny_shop
from tests.tsr_gym_envs.webshop.test_compact import shop_env
from tsr_gym_envs.webshop import oracle
from tsr_gym_envs.webshop.env import WebShopEnv
from tsr_gym_envs.webshop.oracle import as_query, best_action, best_plan, best_purchase, best_reachable
from tsr_gym_envs.webshop.rules import follow, page_of
from tsr_gym_envs.webshop.settings import make_settings
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
WANTED = [("color", "navy blue"), ("size", "20 oz")]
PAIRS = goal(PRODUCTS[0], ASKED, attributes=["leak proof", "dishwasher safe"], options=WANTED)
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
        # The purchase of any product takes a search, a click on it and the purchase.
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
    (), ("search[steel]",), ("search[mug]",), ("search[mug]", "click[next >]"), ("search[steel]", MUG),
    ("search[steel]", MUG, "click[20 oz]"), ("search[steel]", MUG, "click[red]", "click[12 oz]"),
    ("search[steel]", MUG, "click[navy blue]", "click[features]"), ("search[steel]", CUP, "click[light blue]"),
    ("search[mug]", GLASS, "click[20 oz]"), ("search[mug]", BIG),
    ("search[mug]", "click[next >]", "click[b000000014]"), ("search[steel]", CUP, "click[buy now]"),
]  # fmt: skip


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
def test_following_its_actions_earns_the_oracles_reward(rules, trip):
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


def test_without_a_limit_the_target_is_bought_as_wanted_or_the_clicks_that_are_left_taken():
    shop = tiny_shop(PRODUCTS, GOALS)
    plan = best_plan(shop, after(shop, 0), None)
    clicks = "click[b000000000]", "click[navy blue]", "click[20 oz]", "click[buy now]"
    assert plan == (1.0, ("search[Steel mug]", *clicks))
    assert best_plan(shop, after(shop, 0), 5) == plan
    # One option of five wishes has to be left out.
    assert best_reachable(shop, after(shop, 0), 4) == 4 / 5
    shop = tiny_shop(PRODUCTS, GOALS)
    assert best_plan(shop, after(shop, 0), 2) == (0.0, ())
    assert best_action(shop, after(shop, 0), 2) == "search[Steel mug]"
    best = [best_purchase(shop, 0, 0, (("size", "20 oz"),), most) for most in (0, 1, None)]
    assert [bought.clicks for bought in best] == [(), ("navy blue",), ("navy blue",)]
    assert [bought.reward for bought in best] == [4 / 5, 1.0, 1.0]
    assert best[-1].options == (("size", "20 oz"), ("color", "navy blue"))
    assert best_purchase(shop, 0, 0, (("size", "12 oz"),)).options == (("size", "20 oz"), ("color", "navy blue"))


def test_where_nothing_earns_anything_or_no_action_can_name_an_option_it_is_left_out():
    products = [product(0, "Mug", options=[("size", ["buy now", "6 [us]", "7"])], attributes=["leak proof"])]
    wishes = [goal(products[0], "a mug", options=[("size", value)]) for value in ("buy now", "6 [us]", "7")]
    clicks = [best_purchase(tiny_shop(products, wishes), i, 0).clicks for i in range(3)]
    assert clicks == [("size: buy now",), ("6 [us]",), ("7",)]
    original = tiny_shop(products, wishes, "original")
    assert [best_purchase(original, i, 0).clicks for i in range(3)] == [(), (), ("7",)]
    products = [product(0, "[]", attributes=["leak proof"]), product(1, "Steel mug")]
    shop = tiny_shop(products, [goal(products[0], "mug")])
    assert best_plan(shop, after(shop, 0), None) == (0.0, ())
    assert best_action(shop, after(shop, 0), None) == "search[mug, and price lower than 20.00 dollars]"


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
    clicks = "click[b000000001]", "click[navy blue]", "click[buy now]"
    assert best_plan(shop, after(shop, 0), 4) == (1.0, ("search[Steel mug xl]", *clicks))


def random_shop(rng, rules):
    """Six products, whose titles, options, attributes and prices are drawn from few, and a goal of each kind."""
    nouns, values, attributes = (
        ["mug", "cup", "lid", "box"],
        ["5", "5.5", "red", "dark red"],
        ["leak proof", "hand made"],
    )

    def some(pool, least=0):
        return [str(value) for value in rng.choice(pool, rng.integers(least, len(pool)), replace=False)]

    products = [
        product(
            row, " ".join(some(nouns, 1)),
            options=[(name, some(values, 1)) for name in some(["size", "color", "style"])], attributes=some(attributes),
            price=float(rng.choice([10.0, 30.0])), query=str(rng.choice(["a", "b"])),
            category=str(rng.choice(["x", "y"])),
        )
        for row in range(6)
    ]  # fmt: skip
    pairs = [(name, str(rng.choice(values))) for name, values in products[0].options]
    goals = [
        goal(products[0], "a mug", attributes=attributes, options=pairs),
        goal(products[0], "a mug", attributes=attributes[:1], options=[value for _, value in pairs]),
    ]
    return tiny_shop(products, goals, rules)


@pytest.mark.parametrize("rules", ["fixed", "original"])
@pytest.mark.parametrize("seed", range(6))
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


def env_of(shop, **settings):
    shop.catalogue.digest = "tiny"
    return WebShopEnv(make_settings("default", settings), shop)


@pytest.mark.parametrize("per_turn", [1, 2])
def test_a_state_is_worth_one_where_some_way_of_shopping_meets_every_wish(per_turn):
    shop = tiny_shop(PRODUCTS, GOALS)
    env, truth = env_of(shop, max_actions_per_turn=per_turn), try_everything(shop)
    seen = set()
    for number in range(len(GOALS)):
        for trip in TRIPS:
            state = after(shop, number, *trip)
            for turns in range(6 // per_turn):
                for actions in (None, 4):
                    left = turns * per_turn if actions is None else min(actions, turns * per_turn)
                    expected = float(truth(state, left) == 1)
                    assert env.best_value(state, turns, actions) == expected, (number, trip, turns, actions)
                    seen.add(expected)
    assert seen == {0.0, 1.0}


def test_a_purchase_is_final():
    shop = tiny_shop(PRODUCTS, GOALS)
    env = env_of(shop)
    trip = ("search[steel]", "click[b000000000]", "click[navy blue]", "click[20 oz]")
    right, wrong = after(shop, 0, *trip, "click[buy now]"), after(shop, 0, *trip[:-1], "click[buy now]")
    assert env.best_value(right, 0, None) == 1.0
    # A mug without its size was bought: turns that are left do not help.
    assert env.best_value(wrong, 10, None) == 0.0


LEAK_PROOF = ["leak proof"]
BAR_PRODUCTS = [
    product(0, "Steel mug", options=[("color", ("blue", "red")), ("size", ("12 oz", "8 oz"))], attributes=LEAK_PROOF),
    product(1, "Glass mug", options=[("color", ("blue", "tan"))]),
    product(2, "Plain mug"),
]
BAR_GOALS = [
    goal(BAR_PRODUCTS[0], "a mug with color: blue, and size: 8 oz", options=[("color", "blue"), ("size", "8 oz")]),
    goal(BAR_PRODUCTS[0], "steel mug, blue", options=["blue"]),
]


def every_way(env, state, left):
    """Return the success of random play by walking all ways, one at a time."""
    actions = env.legal_actions(state)
    if not left or not actions:
        return Fraction(0)
    total = Fraction(0)
    for action in actions:
        after, _, terminated, info = env.transition(state, action, None)
        total += Fraction(int(info["success"])) if terminated else every_way(env, after, left - 1)
    return total / len(actions)


@pytest.mark.parametrize("mode", ["compact", "text"])
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("max_turns", [2, 4, 5])
def test_random_success_is_the_mean_over_all_ways(mode, number, max_turns):
    env = shop_env(number=number, goals=BAR_GOALS, products=BAR_PRODUCTS, observation_mode=mode, max_turns=max_turns)
    random, best = env.success_bars(env.state)
    assert random == pytest.approx(float(every_way(env, env.state, max_turns)))
    # A search, the product, as many options as are wanted, the purchase.
    assert best == float(max_turns >= (5 if number == 0 else 4))
    assert (random > 0) == (best == 1)


def test_there_are_no_bars_where_turns_or_limits_are_others():
    for settings in ({"max_turns": None}, {"max_actions_per_turn": 2}):
        env = shop_env(goals=BAR_GOALS, products=BAR_PRODUCTS, **settings)
        assert env.success_bars(env.state) is None
