"""Compact pages of a tiny shop, written out by hand, and actions by the names that they show."""

from tests.tsr_gym_envs.webshop.shops import goal, product, tiny_shop
from tsr_gym_envs.webshop.compact import vocabulary_of, want_of
from tsr_gym_envs.webshop.env import WebShopEnv
from tsr_gym_envs.webshop.oracle import best_plan
from tsr_gym_envs.webshop.settings import make_settings

COLORS = ("color", ("navy/blue", "red", "navy blue", "sky blue", "buy"))
SIZES = ("size [us]", ('5"', "5 oz", "x-large"))
PRODUCTS = [
    product(0, "Zelo Steel Travel Mugs, 2 Pack, leak-proof", options=[COLORS, SIZES], attributes=["leak proof"]),
    product(1, "Acme Deluxe Glass Mug (Set of 4)", price=99.0),
    *(product(row, f"Brand{row} Plain Mug") for row in range(2, 12)),
]
TEXT = 'Find me leak proof steel mugs for the steel kitchen with color: navy/blue, and size [us]: 5"'
GOALS = [
    goal(PRODUCTS[0], TEXT, options=[("color", "navy/blue"), ("size [us]", '5"')]),
    goal(PRODUCTS[0], "i want a steel mug in 5 oz", options=["5 oz"]),
]


def shop_env(*, number=0, goals=GOALS, products=PRODUCTS, **settings):
    """Return an environment of the tiny shop, on its search page."""
    shop = tiny_shop(products, goals)
    shop.catalogue.digest = "tiny"
    env = WebShopEnv(make_settings("default", {"observation_mode": "compact", **settings}), shop)
    env.reset(options={"goal": number})
    return env


def test_the_search_page_shows_each_wanted_word_once_or_a_query():
    env = shop_env()
    assert env.observe(env.state) == "want leak proof steel mugs kitchen ; color : navy blue ; size us : 5 index"
    assert env.legal_actions(env.state) == (
        "search [ leak proof steel mugs kitchen navy blue 5 ]",
        "search [ leak proof steel mugs kitchen ]",
    )
    # What people write spells no options out.
    assert want_of(GOALS[1].instruction_text).query == ("steel", "mug", "5", "oz")
    env = shop_env(goals=[goal(PRODUCTS[0], "find me")])
    assert env.observe(env.state) == "want index"
    assert env.legal_actions(env.state) == ("search [ product ]",)


def test_results_show_the_words_shared_with_the_instruction_and_whether_a_product_is_dear():
    env = shop_env()
    observation, *_, info = env.step("search [ steel mugs mug ]")
    plain = " ".join(f"r{row} | mugs , brand{row} plain | ok" for row in range(2, 11))
    assert observation == f"page 1 r1 | steel mugs , zelo travel | ok {plain} next".replace(
        # The glass mug has one word of the query, as the plain ones have, and stands before them.
        plain,
        "r2 | mugs , deluxe glass | dear " + " ".join(f"r{n} | mugs , brand{n - 1} plain | ok" for n in range(3, 11)),
    )
    assert info["available_actions"]["clickables"] == [*(f"r{number}" for number in range(1, 11)), "next", "back"]
    observation, *_ = env.step("click [ next ]")
    assert observation == "page 2 r1 | mugs , brand10 plain | ok r2 | mugs , brand11 plain | ok prev"
    assert env.step("click [ prev ]")[0].startswith("page 1 r1 | steel mugs")


def test_a_product_lists_the_options_that_share_a_word_with_the_instruction_and_what_is_chosen():
    env = shop_env()
    env.step("search [ steel mugs ]")
    # Values with the same words are numbered; "buy" is the name of a button, so the colour gets a number too.
    assert env.step("click [ r1 ]")[0] == "item ok ; color ? navy blue / navy blue 2 / sky blue ; size us ? 5 / 5 oz"
    observation, *_, info = env.step("click [ navy blue ]")
    assert observation == "item ok ; color = navy blue ; size us ? 5 / 5 oz"
    assert env.state.options == (("color", "navy/blue"),)
    assert info["available_actions"]["actions"] == [
        *("click [ 5 ]", "click [ 5 oz ]", "click [ buy ]", "click [ back ]", "click [ prev ]")
    ]
    # What is not listed can be clicked all the same, in any case and with any blanks.
    assert env.step("CLICK[ X-Large ]")[0] == "item ok ; color = navy blue ; size us = x-large"
    assert env.step("click [ buy 2 ]")[0] == "item ok ; color = buy 2 ; size us = x-large"
    assert env.step("click [ navy blue 2 ]")[0] == "item ok ; color = navy blue 2 ; size us = x-large"
    env.step("click [ navy blue ]")
    env.step("click [ 5 ]")
    observation, reward, terminated, _, info = env.step("click [ buy ]")
    assert (observation, reward, terminated, info["success"]) == ("bought", 1.0, True, True)
    assert env.legal_actions(env.state) == ()


def test_products_that_were_opened_are_not_described_again():
    env = shop_env()
    env.step("search [ glass steel ]")
    assert env.step("click [ r2 ]")[0] == "item dear"
    assert env.step("click [ prev ]")[0] == "page 1 r1 | steel mugs , zelo travel | ok r2 | seen"
    assert env.step("click [ back ]")[0].endswith("index")


def test_what_the_page_does_not_show_means_nothing():
    unseen = ["r3", "b000000000", "next", "buy now"]
    for text in (*(f"click [ {name} ]" for name in unseen), "click [ ]", "steel", "search [ ]"):
        env = shop_env()
        before = env.step("search [ glass steel ]")[0]
        observation, reward, terminated, _, info = env.step(text)
        assert (observation, reward, terminated) == (before, 0.0, False)
        assert not info["action_is_valid"]
        assert info["invalid_reason"].startswith(("the page shows no '", f"'{text}' is no action"))
    observation, *_, info = env.step("search [ socks ]")
    assert observation == "page 1 nothing"
    assert info["available_actions"]["actions"] == ["click [ back ]"]


def test_the_oracles_plans_are_those_of_the_shop_under_other_names():
    env, turns = shop_env(), []
    while not env.episode.terminated:
        turns.append(env.optimal_turn(env.state, env.limits.max_turns - env.episode.turns, None))
        *_, reward, _, _, _ = env.step(turns[-1])
    assert turns[0] == "search [ zelo steel travel mugs, 2 pack, leak-proof ]"
    assert turns[1:] == ["click [ r1 ]", "click [ navy blue ]", "click [ 5 ]", "click [ buy ]"]
    assert reward == 1.0
    several = shop_env(max_actions_per_turn=3)
    assert several.optimal_turn(several.state, 5, None) == " || ".join(turns[:3])
    assert len(best_plan(several.shop, several.state, 15).actions) == 5


def test_every_word_is_in_the_vocabulary_and_other_modes_know_none():
    env = shop_env(observation_mode="text")
    env.step("search[glass steel]")
    assert not env.step("click [ r1 ]")[-1]["action_is_valid"]
    assert env.step("click[b000000001]")[-1]["action_is_valid"]
    words = vocabulary_of(tiny_shop(PRODUCTS, GOALS))
    assert {"leak", "steel", "us", "5", "oz", "x-large", "zelo", "brand11", "glass", "navy", "sky"} <= words
    # Words of a title behind its first part are shown only where the instruction has them.
    assert words.isdisjoint({"pack", "leak-proof", "set", "the", "find"})
