"""The rules of the shop: where every action leads, in a shop of a few products."""

import pytest

from tests.tsr_gym_envs.webshop.tiny_shop import goal, product, tiny_shop
from tsr_gym_envs.webshop.actions import parse
from tsr_gym_envs.webshop.catalogue.original_random import generator_of
from tsr_gym_envs.webshop.rules import click, follow
from tsr_gym_envs.webshop.state import ShopState

GROUPS = (("color", ("red", "blue")), ("size", ("5", "6")))
MUGS = [product(row, f"mug number{row}", options=GROUPS if row == 0 else ()) for row in range(23)]
START = ShopState(0, "7")


def shop(rules="fixed", products=MUGS):
    return tiny_shop(products, [goal(products[0], "Find me a mug")], rules)


def walk(where, *texts, start=START):
    """Return the state after some actions, every one of which means something."""
    state = start
    for text in texts:
        after = follow(where, state, parse(text))
        assert after is not None, text
        state = after
    return state


@pytest.fixture(params=["fixed", "original"])
def rules(request):
    return request.param


def test_a_search_lists_results_from_any_page(rules):
    where = shop(rules)
    for texts in (
        [],
        ["search[mug]"],
        ["search[mug]", "click[b000000000]"],
        ["search[mug]", "click[b000000000]", "click[features]"],
        ["search[mug]", "click[b000000000]", "click[buy now]"],
    ):
        state = walk(where, *texts, "search[Red  MUG]")
        assert (state.page, state.keywords, state.number, state.row) == ("search_results", ("red", "", "mug"), 1, -1)
        assert (state.options, state.sub) == ((), "")


def test_pages_of_results_are_turned(rules):
    where = shop(rules)
    second = walk(where, "search[mug]", "click[next >]")
    assert second.number == 2
    assert walk(where, "click[< prev]", start=second).number == 1
    third = walk(where, "click[next >]", start=second)
    assert third.number == 3
    assert (click(where, third, "next >") is None) is (rules == "fixed")
    assert click(where, walk(where, "search[mug]"), "< prev") is None


def test_the_original_turns_pages_without_end():
    where = shop("original")
    state = walk(where, "search[nothing of that kind]", *["click[next >]"] * 9)
    assert state.number == 10
    assert click(shop(), walk(shop(), "search[nothing of that kind]"), "next >") is None


def test_a_product_leads_back_to_its_page_of_results(rules):
    where = shop(rules)
    state = walk(where, "search[mug]", "click[next >]", "click[B000000012]")
    assert (state.page, state.row, state.opened) == ("item_page", 12, (12,))
    back = walk(where, "click[< prev]", start=state)
    assert (back.page, back.number, back.row, back.opened) == ("search_results", 2, -1, (12,))


def test_products_that_are_not_listed_cannot_be_opened(rules):
    where = shop(rules)
    assert click(where, walk(where, "search[mug]"), "b000000012") is None
    assert click(where, START, "b000000000") is None


def test_options_are_chosen_replaced_and_forgotten(rules):
    where = shop(rules)
    state = walk(where, "search[mug]", "click[b000000000]", "click[5]", "click[red]", "click[6]", "click[6]")
    assert state.options == (("size", "6"), ("color", "red"))
    seen = walk(where, "click[features]", "click[< prev]", start=state)
    assert seen == state
    for way_out in ("click[< prev]", "search[mug]", "click[back to search]"):
        assert walk(where, way_out, start=state).options == ()


@pytest.mark.parametrize("name", ["Description", "Features", "Reviews"])
def test_sub_pages_open_and_close(rules, name):
    where = shop(rules)
    item = walk(where, "search[mug]", "click[b000000000]")
    state = walk(where, f"click[{name}]", start=item)
    assert (state.page, state.sub) == ("item_sub_page", name)
    assert walk(where, "click[< prev]", start=state) == item
    assert click(where, state, "buy now") is None
    assert click(where, item, "attributes") is None


def test_the_way_back_to_the_search_forgets_all_but_the_goal(rules):
    where = shop(rules)
    state = walk(where, "search[mug]", "click[b000000000]", "click[5]", "click[back to search]")
    assert state == START


def test_a_purchase_leads_to_its_receipt(rules):
    where = shop(rules)
    state = walk(where, "search[mug]", "click[b000000000]", "click[5]", "click[buy now]")
    assert (state.page, state.row, state.options) == ("done", 0, (("size", "5"),))
    assert click(where, state, "back to search") is None
    assert click(where, state, "buy now") is None


@pytest.mark.parametrize(
    "text", ["click[search]", "Search[mug]", "search", "click[]", "buy now", "think[mug]", "[x]", ""]
)
def test_what_means_nothing_leads_nowhere(rules, text):
    assert follow(shop(rules), START, parse(text)) is None


def test_names_of_buttons_come_before_options_of_the_same_name_in_the_original():
    odd = product(0, "mug", options=(("size", ("buy now", "description", "next >", "attributes")),))
    item = ShopState(0, "7", "item_page", ("mug",), row=0)
    where = shop("original", [odd])
    assert walk(where, "click[buy now]", start=item).page == "done"
    assert walk(where, "click[description]", start=item).sub == "Description"
    assert walk(where, "click[attributes]", start=item).sub == "Attributes"
    # Only pages of results have such a button.
    assert walk(where, "click[next >]", start=item).options == (("size", "next >"),)


def test_every_option_can_be_chosen_once_repaired():
    groups = (("size", ("buy now", "5")), ("color", ("5", "red")))
    where = shop("fixed", [product(0, "mug", options=groups)])
    item = ShopState(0, "7", "item_page", ("mug",), row=0)
    state = walk(where, "click[size: buy now]", "click[color: 5]", start=item)
    assert state.options == (("size", "buy now"), ("color", "5"))
    assert walk(where, "click[size: 5]", start=state).options == (("size", "5"), ("color", "5"))
    assert click(where, item, "5") is None


def test_a_query_can_confuse_the_originals_way_back():
    query = "search[mug search_results]"
    before_the_first = walk(shop("original"), query, "click[b000000000]", "click[< prev]")
    assert (before_the_first.page, before_the_first.number) == ("search_results", 0)
    assert walk(shop("original"), "click[next >]", start=before_the_first).number == 1
    assert walk(shop(), query, "click[b000000000]", "click[< prev]").number == 1
    past_the_item = ["search[mug item_page]", "click[b000000000]", "click[features]", "click[< prev]"]
    assert walk(shop("original"), *past_the_item).page == "search_results"
    assert walk(shop(), *past_the_item).page == "item_page"


def test_random_products_are_drawn_anew_on_every_page_of_results():
    where = shop("original")
    start = START._replace(dice=generator_of(99).getstate())
    first = walk(where, "search[<r> mug]", start=start)
    second = walk(where, "click[next >]", start=first)
    expected = generator_of(99)
    assert first.drawn == tuple(expected.sample(range(23), 23))
    assert second.drawn == tuple(expected.sample(range(23), 23))
    assert second.dice == expected.getstate()
    assert walk(where, "search[mug]", start=second).drawn == ()
    assert walk(shop(), "search[<r> mug]", start=start).drawn == ()
