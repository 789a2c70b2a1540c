"""Addresses, and pages as the state's values decide them."""

from tests.tsr_gym_envs.webshop.tiny_shop import goal, product, tiny_shop
from tsr_gym_envs.webshop.observation import clickables, page_name, page_nodes, page_of, page_text, url
from tsr_gym_envs.webshop.pages.layout import Page
from tsr_gym_envs.webshop.repairs import repairs_of
from tsr_gym_envs.webshop.state import ShopState

GROUPS = (("color", ("red", 'say "hi"', "größe")), ("color 2", ("red", "color")))
MUGS = [product(row, f"mug number{row}", options=GROUPS) for row in range(12)]
GOALS = [goal(MUGS[0], "Find me a mug")]
FIXED, ORIGINAL = (tiny_shop(MUGS, GOALS, rules) for rules in ("fixed", "original"))
RESULTS = ShopState(0, "s", "search_results", ("mug", "a/b"))
ITEM = RESULTS._replace(page="item_page", row=0, number=2, options=(("color", "it's"),))


def chosen(shop, state):
    return [node.text for node in page_nodes(shop, state) if node.role == "option" and node.clicked]


def test_addresses_are_the_originals():
    base = "http://127.0.0.1:3000"
    assert url(FIXED, ShopState(0, "s")) == f"{base}/s"
    assert url(FIXED, RESULTS) == f"{base}/search_results/s/mug+a/b/1"
    assert url(FIXED, ITEM) == f'{base}/item_page/s/B000000000/mug+a/b/2/{{"color": "it\'s"}}'
    sub = ITEM._replace(page="item_sub_page", sub="Features")
    assert url(FIXED, sub) == f"{base}/item_sub_page/s/B000000000/mug+a/b/2/Features/{{'color': \"it's\"}}"
    assert url(FIXED, ITEM._replace(page="done", options=())) == f"{base}/done/s/B000000000/{{}}"


def test_a_page_lists_ten_products_and_says_whether_more_follow():
    first, second = (page_of(FIXED, RESULTS._replace(number=number)) for number in (1, 2))
    assert (first.rows, first.total, first.has_next) == (tuple(range(10)), 12, True)
    assert (second.rows, second.total, second.has_next) == ((10, 11), 12, False)
    assert page_of(ORIGINAL, RESULTS._replace(number=2)).has_next
    assert page_of(ORIGINAL, RESULTS._replace(number=0)).rows == ()
    assert page_of(ORIGINAL, RESULTS._replace(number=7)).rows == ()


def test_opened_products_are_marked_where_they_are_listed():
    page = page_of(FIXED, RESULTS._replace(number=2, opened=(3, 11)))
    assert page == Page("search_results", (10, 11), (11,), 2, 12, False)


def test_the_original_cannot_show_some_options_as_chosen_and_shows_others_wrongly():
    quoted = ITEM._replace(options=(("color", 'say "hi"'),))
    assert (chosen(ORIGINAL, quoted), chosen(FIXED, quoted)) == (["color"], ['say "hi"'])
    foreign = ITEM._replace(options=(("color", "größe"),))
    assert (chosen(ORIGINAL, foreign), chosen(FIXED, foreign)) == (["color"], ["größe"])
    other_group = ITEM._replace(options=(("color", "red"),))
    assert chosen(ORIGINAL, other_group) == ["red", "red", "color"]
    assert chosen(FIXED, other_group) == ["color: red"]


def test_quotes_in_a_query_or_a_key_can_choose_options_in_the_original():
    for state in (
        ITEM._replace(options=(), keywords=('"red"',)),
        ITEM._replace(options=(), session='"red"'),
    ):
        assert chosen(ORIGINAL, state) == ["red", "red"]
        assert chosen(FIXED, state) == []


def test_the_originals_page_name_is_the_first_that_its_address_holds():
    confused = ITEM._replace(keywords=("my", "search_results"))
    assert (page_name(ORIGINAL, confused), page_name(FIXED, confused)) == ("search_results", "item_page")
    assert page_name(ORIGINAL, ShopState(0, "s")) == ""
    assert page_name(ORIGINAL, ShopState(0, "undone")) == "done"


def test_clickables_are_buttons_then_products_then_options():
    assert clickables(FIXED, ShopState(0, "s")) == ("search",)
    assert clickables(FIXED, RESULTS._replace(number=2)) == (
        "back to search",
        "< prev",
        "b000000010",
        "b000000011",
    )
    assert clickables(FIXED, ITEM._replace(page="done")) == ()


def test_pages_of_two_goals_differ_in_the_instruction_alone():
    shop = tiny_shop(MUGS, [GOALS[0], goal(MUGS[1], "Get me another")])
    first, second = (page_text(shop, ITEM._replace(goal=number), "text") for number in (0, 1))
    assert first != second
    assert first.replace("Find me a mug", "Get me another") == second


def test_each_repair_can_be_left_out_alone():
    shop = tiny_shop(MUGS, GOALS, repairs_of("fixed", ["page_state"]))
    assert page_of(shop, RESULTS._replace(number=2)).has_next
    assert page_of(shop, ITEM).marks is None
