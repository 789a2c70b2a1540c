"""Actions, pages, addresses and steps of the shop, in a shop of a few products."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tsr_gym_envs.webshop.shops import goal, product, tiny_shop
from tsr_gym_envs.webshop.catalogue.original_random import generator_of
from tsr_gym_envs.webshop.pages import Page
from tsr_gym_envs.webshop.repairs import repairs_of
from tsr_gym_envs.webshop.rules import click, clickables, follow, page_name, page_nodes, page_of, page_text, url
from tsr_gym_envs.webshop.state import BUTTONS, ShopState, option_labels, parse, parse_kindly

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


def test_pages_turn_without_end_in_the_original_and_products_lead_back_to_theirs(rules):
    where = shop("original")
    state = walk(where, "search[nothing of that kind]", *["click[next >]"] * 9)
    assert state.number == 10
    assert click(shop(), walk(shop(), "search[nothing of that kind]"), "next >") is None
    where = shop(rules)
    state = walk(where, "search[mug]", "click[next >]", "click[B000000012]")
    assert (state.page, state.row, state.opened) == ("item_page", 12, (12,))
    back = walk(where, "click[< prev]", start=state)
    assert (back.page, back.number, back.row, back.opened) == ("search_results", 2, -1, (12,))
    where = shop(rules)
    assert click(where, walk(where, "search[mug]"), "b000000012") is None
    assert click(where, START, "b000000000") is None


def test_options_are_chosen_replaced_and_forgotten(rules):
    where = shop(rules)
    state = walk(where, "search[mug]", "click[b000000000]", "click[5]", "click[red]", "click[6]", "click[6]")
    assert state.options == (("size", "6"), ("color", "red"))
    assert walk(where, "click[features]", "click[< prev]", start=state) == state
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


def test_the_way_back_forgets_all_but_the_goal_and_a_purchase_leads_to_its_receipt(rules):
    where = shop(rules)
    state = walk(where, "search[mug]", "click[b000000000]", "click[5]", "click[back to search]")
    assert state == START
    state = walk(where, "search[mug]", "click[b000000000]", "click[5]", "click[buy now]")
    assert (state.page, state.row, state.options) == ("done", 0, (("size", "5"),))
    assert click(where, state, "back to search") is None
    assert click(where, state, "buy now") is None


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


def test_the_originals_way_back_and_options_can_be_confused_by_queries_and_keys():
    query = "search[mug search_results]"
    before_the_first = walk(shop("original"), query, "click[b000000000]", "click[< prev]")
    assert (before_the_first.page, before_the_first.number) == ("search_results", 0)
    assert walk(shop("original"), "click[next >]", start=before_the_first).number == 1
    assert walk(shop(), query, "click[b000000000]", "click[< prev]").number == 1
    past_the_item = ["search[mug item_page]", "click[b000000000]", "click[features]", "click[< prev]"]
    assert walk(shop("original"), *past_the_item).page == "search_results"
    assert walk(shop(), *past_the_item).page == "item_page"
    for state in (ITEM._replace(options=(), keywords=('"red"',)), ITEM._replace(options=(), session='"red"')):
        assert (chosen(ORIGINAL, state), chosen(FIXED, state)) == (["red", "red"], [])


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


def test_every_golden_text_is_read_as_by_the_original(golden):
    rows = golden("webshop/parse_action.jsonl")
    assert len(rows) == 32
    for text, expected in rows:
        assert list(parse(text)) == expected, text


@given(st.text("[]ab \n\r\u2028", max_size=14))
def test_texts_are_read_as_by_the_originals_regular_expression(text):
    match = re.match(r"(.+)\[(.+)\]", text)
    assert parse(text) == (match.groups() if match else (text, None))


@pytest.mark.parametrize("read", [parse, parse_kindly])
def test_a_long_text_of_brackets_takes_no_time(read):
    start = time.process_time()
    assert read("[" * 100_000).argument is None
    read("a[" * 50_000 + "]" * 50_000)
    # Not a matter of speed: a pattern that backtracks takes minutes.
    assert time.process_time() - start < 20


def test_what_means_nothing_leads_nowhere_and_without_an_argument_nothing_is_asked(rules):
    for text in ("click[search]", "Search[mug]", "search", "click[]", "buy now", "think[mug]", "[x]", ""):
        assert follow(shop(rules), START, parse(text)) is None
    for text in ("", " ", "search", "search[", "search[]", "search[  ]", "search]x[", "\nclick"):
        assert parse_kindly(text) == (text, None)
    # Blanks, capitals and inner brackets are forgiven.
    for text, *wanted in (
        ("search[red shoes]", "search", "red shoes"),
        ("  Search [ red shoes ] \n", "search", "red shoes"),
        ("CLICK[Buy Now]. Done!", "click", "Buy Now"),
        ("click[size [us]]", "click", "size [us]"),
        ("search[a]\nclick[b]", "search", "a"),
        ("I will buy it: click[buy now]", "i will buy it: click", "buy now"),
    ):
        assert list(parse_kindly(text)) == wanted


def test_values_that_could_be_mistaken_are_shown_with_their_group():
    groups = (("frame", ("red", "blue", "blue")), ("lens", ("red", "search", "5")))
    labels = dict(option_labels(product(0, "Glasses", options=groups), unique=True))
    assert labels["frame"] == (("frame: red", "red"), ("blue", "blue"), ("blue", "blue"))
    assert labels["lens"] == (("lens: red", "red"), ("lens: search", "search"), ("5", "5"))
    plain = dict(option_labels(product(0, "Glasses", options=groups), unique=False))
    assert plain["lens"] == (("red", "red"), ("search", "search"), ("5", "5"))
    labels = option_labels(product(0, "Mug", options=(("size", BUTTONS),)), unique=True)
    assert [label for label, _ in labels[0][1]] == [f"size: {name}" for name in BUTTONS]


SHIRT_GROUPS = (("color", ("red", 'say "hi"', "größe")), ("color 2", ("red", "color")))
FEW_MUGS = [product(row, f"mug number{row}", options=SHIRT_GROUPS) for row in range(12)]
GOALS = [goal(FEW_MUGS[0], "Find me a mug")]
FIXED, ORIGINAL = (tiny_shop(FEW_MUGS, GOALS, rules) for rules in ("fixed", "original"))
RESULTS = ShopState(0, "s", "search_results", ("mug", "a/b"))
ITEM = RESULTS._replace(page="item_page", row=0, number=2, options=(("color", "it's"),))


def chosen(shop, state):
    return [node.text for node in page_nodes(shop, state) if node.role == "option" and node.clicked]


def test_addresses_page_names_and_clickables_are_the_originals():
    base = "http://127.0.0.1:3000"
    assert url(FIXED, ShopState(0, "s")) == f"{base}/s"
    assert url(FIXED, RESULTS) == f"{base}/search_results/s/mug+a/b/1"
    assert url(FIXED, ITEM) == f'{base}/item_page/s/B000000000/mug+a/b/2/{{"color": "it\'s"}}'
    sub = ITEM._replace(page="item_sub_page", sub="Features")
    assert url(FIXED, sub) == f"{base}/item_sub_page/s/B000000000/mug+a/b/2/Features/{{'color': \"it's\"}}"
    assert url(FIXED, ITEM._replace(page="done", options=())) == f"{base}/done/s/B000000000/{{}}"
    confused = ITEM._replace(keywords=("my", "search_results"))
    assert (page_name(ORIGINAL, confused), page_name(FIXED, confused)) == ("search_results", "item_page")
    assert page_name(ORIGINAL, ShopState(0, "s")) == ""
    assert page_name(ORIGINAL, ShopState(0, "undone")) == "done"
    assert clickables(FIXED, ShopState(0, "s")) == ("search",)
    assert clickables(FIXED, RESULTS._replace(number=2)) == ("back to search", "< prev", "b000000010", "b000000011")
    assert clickables(FIXED, ITEM._replace(page="done")) == ()


def test_a_page_lists_ten_products_and_whether_more_follow():
    first, second = (page_of(FIXED, RESULTS._replace(number=number)) for number in (1, 2))
    assert (first.rows, first.total, first.has_next) == (tuple(range(10)), 12, True)
    assert (second.rows, second.total, second.has_next) == ((10, 11), 12, False)
    assert page_of(ORIGINAL, RESULTS._replace(number=2)).has_next
    assert page_of(ORIGINAL, RESULTS._replace(number=0)).rows == ()
    assert page_of(ORIGINAL, RESULTS._replace(number=7)).rows == ()


def test_opened_products_are_marked_and_goals_differ_in_the_instruction_alone():
    page = page_of(FIXED, RESULTS._replace(number=2, opened=(3, 11)))
    assert page == Page("search_results", (10, 11), (11,), 2, 12, False)
    shop = tiny_shop(FEW_MUGS, [GOALS[0], goal(FEW_MUGS[1], "Get me another")])
    first, second = (page_text(shop, ITEM._replace(goal=number), "text") for number in (0, 1))
    assert first != second
    assert first.replace("Find me a mug", "Get me another") == second
    shop = tiny_shop(FEW_MUGS, GOALS, repairs_of("fixed", ["page_state"]))
    assert page_of(shop, RESULTS._replace(number=2)).has_next
    assert page_of(shop, ITEM).marks is None


def test_the_original_cannot_show_some_options_as_chosen_and_shows_others_wrongly():
    quoted = ITEM._replace(options=(("color", 'say "hi"'),))
    assert (chosen(ORIGINAL, quoted), chosen(FIXED, quoted)) == (["color"], ['say "hi"'])
    foreign = ITEM._replace(options=(("color", "größe"),))
    assert (chosen(ORIGINAL, foreign), chosen(FIXED, foreign)) == (["color"], ["größe"])
    other_group = ITEM._replace(options=(("color", "red"),))
    assert chosen(ORIGINAL, other_group) == ["red", "red", "color"]
    assert chosen(FIXED, other_group) == ["color: red"]
