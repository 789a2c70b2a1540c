"""Pages as text, and as web pages."""

import re

import pytest
from bs4 import BeautifulSoup
from hypothesis import given
from hypothesis import strategies as st
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import escape

from tests.tsr_gym_envs.webshop.shops import goal, odd_files, play_transcripts, product, tiny_shop
from tsr_gym_envs.webshop.catalogue.opening import import_catalogue
from tsr_gym_envs.webshop.catalogue.original_random import generator_of
from tsr_gym_envs.webshop.pages import (
    MODES,
    SUB_PAGES,
    Page,
    PageNode,
    chosen_text,
    head,
    join,
    lay_out,
    options_json,
    shown,
)
from tsr_gym_envs.webshop.rules import click, page_nodes, page_text, url
from tsr_gym_envs.webshop.settings import make_settings
from tsr_gym_envs.webshop.shop import open_shop
from tsr_gym_envs.webshop.state import ShopState, parse, parse_kindly
from tsr_gym_envs.webshop.web_page import OriginalLinks, nodes_of, page_html, text_of

MUG = product(0, "Mug", options=(("color", ("red", "blue")), ("size", ("5", "red"))))


def laid_out(page, *, of=MUG, show_attrs=False, unique=True, read=parse_kindly):
    return lay_out(page, lambda row: of, read, show_attrs=show_attrs, unique=unique)


@given(st.text(" \n\t\f\r\xa0\x0bx&<", max_size=4))
def test_a_text_is_shown_as_the_originals_parser_reads_it_back(text):
    # The original drops nodes that are one line's end.
    strings = BeautifulSoup(f"<p>{escape(text)}</p>", "html.parser").find_all(string=True)
    assert [string for string in strings if string != "\n"] == ([] if shown(text) is None else [shown(text)])


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3))
def test_options_are_written_as_flask_writes_them(options):
    assert options_json(tuple(options.items())) == str(htmlsafe_json_dumps(options, sort_keys=True))


def test_options_are_marked_and_clicked_as_in_the_original_or_repaired():
    layout = laid_out(Page("item_page", row=0, options=(("size", "red"),)))
    options = [(node.text, node.clicked) for node in layout.nodes if node.role == "option"]
    assert options == [("color: red", False), ("blue", False), ("5", False), ("size: red", True)]
    marks = '{"size": "red"}'
    layout = laid_out(Page("item_page", row=0, options=(("size", "red"),), marks=marks), unique=False, read=parse)
    options = [(node.text, node.clicked) for node in layout.nodes if node.role == "option"]
    assert options == [("red", True), ("blue", False), ("5", False), ("red", True)]
    layout = laid_out(Page("item_page", row=0), unique=False, read=parse)
    assert layout.targets["red"] == ("size", "red")
    assert list(layout.targets)[-3:] == ["red", "blue", "5"]
    for show_attrs in (False, True):
        targets = laid_out(Page("item_page", row=0), show_attrs=show_attrs).targets
        assert ("attributes" in targets) is show_attrs
    assert [node.text for node in head("index", "Find it")] == ["WebShop", "Instruction: ", "Find it"]
    assert [node.text for node in head("item_page", "Find it")] == ["Instruction:", "Find it"]
    assert head("done", "Find it") == ()


@pytest.mark.parametrize(("read", "num_lost"), [(parse, 2), (parse_kindly, 1)])
def test_actions_are_the_clicks_that_the_text_can_express(read, num_lost):
    odd = product(0, "Mug", options=(("size", ("a[b", "a]b", "line\nend", "5")),))
    layout = laid_out(Page("item_page", row=0), of=odd, read=read)
    assert len(layout.targets) - len(layout.actions) == num_lost
    assert all(read(text).argument in layout.targets for text in layout.actions)


def test_the_line_of_choices_names_every_group():
    page = Page("item_page", row=0, options=(("size", "5"),))
    assert chosen_text(page, MUG) == "You have chosen color: nothing yet; size: 5"
    assert chosen_text(page, product(0, "Plain")) == ""


NODES = (
    PageNode("text", " a feature "), PageNode("text", " "), PageNode("button", "Next >"),
    PageNode("product", "B01", clicked=True), PageNode("product", "B02"), PageNode("option", "red", clicked=True),
    PageNode("option", "blue"), PageNode("option", "5", clicked=True),
    PageNode("chosen", "You have chosen color: red"),
)  # fmt: skip
HEAD = (PageNode("text", "Instruction:"),)
RICH = (
    "You have clicked 5.\nYou have clicked red.\nInstruction:\n a feature \n \n[button] Next > [button_]\n"
    "\n[clicked button] B01 [clicked button_]\n\n[button] B02 [button_]\n"
    "  [clicked button] red [clicked button_]\n  [button] blue [button_]\n  [clicked button] 5 [clicked button_]\n"
)
TEXT = "Instruction: [SEP] a feature [SEP]  [SEP] Next > [SEP] B01 [SEP] B02 [SEP] red [SEP] blue [SEP] 5"


@pytest.mark.parametrize(
    ("mode", "wanted"),
    [("text", TEXT), ("text_options", f"{TEXT} [SEP] You have chosen color: red"), ("rich", RICH)],
)
def test_a_page_is_written_in_the_form_of_its_mode(mode, wanted):
    write = MODES[mode][0]
    assert join(mode, write(HEAD), write(NODES)) == wanted
    # In one piece as well as in two.
    assert join(mode, write(()), write(HEAD + NODES)) == wanted


EVIL = "<img src=x onerror=alert(1)>\"'</title></style><script>alert(2)</script>{{ 7 * 7 }}"
GROUPS = (("color", ("red", EVIL)), (EVIL, ("5",)))
SHIRT = product(0, f"shirt {EVIL}", options=GROUPS, attributes=(EVIL,), description=EVIL, category=EVIL)
SHOP = tiny_shop([SHIRT], [goal(SHIRT, f"Find me {EVIL}")])
ITEM = ShopState(0, "s", "item_page", ("shirt", EVIL), row=0, options=(("color", EVIL),), opened=(0,))
PAGES = {
    "index": ShopState(0, "s"), "search_results": ITEM._replace(page="search_results", row=-1), "item_page": ITEM,
    "item_sub_page": ITEM._replace(page="item_sub_page", sub="Description"), "done": ITEM._replace(page="done"),
}  # fmt: skip


@pytest.fixture(scope="module")
def odd_catalogue(tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd")
    return import_catalogue(odd_files(folder / "files"), folder / "store")


def in_mode(mode, nodes):
    write = MODES[mode][0]
    return join(mode, write(()), write(nodes))


def test_every_golden_page_reads_the_same_with_and_without_html(golden, real_catalogue):
    num_pages = 0
    for played in play_transcripts(golden, real_catalogue):
        shop, state = played.env.shop, played.env.state
        nodes = nodes_of(page_html(shop, state))
        assert in_mode("text", nodes) == played.wanted["obs_text"], played.where
        assert in_mode("rich", nodes) == played.wanted["obs_rich"], played.where
        assert in_mode("text_options", nodes) == page_text(shop, state, "text_options"), played.where
        num_pages += 1
    assert num_pages > 900


def pages_of(shop, goal, row):
    """Yield a state for every kind of page about a product."""
    groups = shop.product(row).options
    dice = generator_of(1).getstate()
    choices = tuple((name, values[goal % len(values)]) for name, values in groups)
    item = ShopState(goal, "s", "item_page", ("shirt", '"red"'), row=row, opened=(row,), dice=dice)
    yield item._replace(page="index", row=-1)
    listed = item._replace(page="search_results", row=-1, keywords=("<r>",), drawn=tuple(range(row, row + 12)))
    yield listed if not shop.repairs.plain_queries else listed._replace(keywords=("shirt", str(row)))
    for options in ((), choices):
        yield item._replace(options=options)
        yield item._replace(page="done", options=options)
        for sub in SUB_PAGES:
            yield item._replace(page="item_sub_page", sub=sub, options=options)


@pytest.mark.parametrize("rules", ["fixed", "original"])
def test_odd_catalogues_read_the_same_with_and_without_html(odd_catalogue, rules):
    shop = open_shop(
        make_settings("default", {"catalogue": str(odd_catalogue.path), "rules": rules, "show_attrs": True})
    )
    num_pages = 0
    for row in range(len(odd_catalogue) - 12):
        for state in pages_of(shop, row, row):
            nodes = nodes_of(page_html(shop, state))
            assert nodes == page_nodes(shop, state), state
            for mode in MODES:
                assert in_mode(mode, nodes) == page_text(shop, state, mode), state
            num_pages += 1
    assert num_pages > 150


@pytest.mark.parametrize("state", PAGES.values(), ids=PAGES)
def test_texts_are_never_markup_and_nothing_is_loaded_from_elsewhere(state):
    html = page_html(SHOP, state)
    assert "<script" not in html
    assert "<img" not in html
    assert "49" not in html
    soup = BeautifulSoup(html, "html.parser")
    assert not any(name.startswith("on") for tag in soup.find_all(True) for name in tag.attrs)
    assert nodes_of(html) == page_nodes(SHOP, state)
    shirt = SHIRT._replace(image="https://elsewhere.invalid/shirt.jpg")
    html = page_html(tiny_shop([shirt], [goal(shirt, "Find it")]), state)
    assert "elsewhere" not in html
    assert set(re.findall(r"https?://[^/\"]+", html)) == {"http://127.0.0.1:3000"}
    assert 'style="' not in html


@pytest.mark.parametrize("mode", MODES)
def test_pages_are_turned_into_text_in_every_mode(mode):
    for state in PAGES.values():
        assert text_of(page_html(SHOP, state), mode) == page_text(SHOP, state, mode)


def test_links_lead_where_clicks_lead_and_can_be_others():
    for state in PAGES.values():
        soup = BeautifulSoup(page_html(SHOP, state), "html.parser")
        for link in soup.select("a[data-agent]"):
            name = link.get_text().lower()
            assert link["href"] == url(SHOP, click(SHOP, state, name)), name
        for form in soup.select("form.buy"):
            assert form["method"] == "post"
            assert form["action"] == url(SHOP, click(SHOP, state, "buy now"))

    class Links(OriginalLinks):
        def click(self, name):
            return f"/go?to={name}"

    soup = BeautifulSoup(page_html(SHOP, ITEM, Links(SHOP, ITEM)), "html.parser")
    assert soup.select_one("form.buy")["action"] == "/go?to=buy now"
    assert soup.select_one("a.chip")["href"] == "/go?to=red"


def test_a_person_sees_the_goal_the_choices_and_the_score_after_a_purchase():
    text = BeautifulSoup(page_html(SHOP, PAGES["done"]), "html.parser").get_text()
    assert "Find me" in text
    assert f"color: {EVIL}" in text
    assert re.search(r"\b67\b\s+of 100 points", text) or re.search(r"\b\d+\b\s+of 100 points", text)
    chips = BeautifulSoup(page_html(SHOP, ITEM), "html.parser").select("[role=radio]")
    checked = {chip.get_text(): chip["aria-checked"] for chip in chips}
    assert checked == {"red": "false", EVIL: "true", "5": "false"}
