"""Contents of pages: blank space as in browsers, JSON as in Flask, texts in the original's order."""

import pytest
from bs4 import BeautifulSoup
from hypothesis import given
from hypothesis import strategies as st
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import escape

from tests.tsr_gym_envs.webshop.shops import product
from tsr_gym_envs.webshop.pages import MODES, Page, PageNode, chosen_text, head, join, lay_out, options_json, shown
from tsr_gym_envs.webshop.state import parse, parse_kindly

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


def test_only_the_search_page_bears_the_shops_name():
    assert [node.text for node in head("index", "Find it")] == ["WebShop", "Instruction: ", "Find it"]
    assert [node.text for node in head("item_page", "Find it")] == ["Instruction:", "Find it"]
    assert head("done", "Find it") == ()


def test_options_are_marked_by_what_is_chosen_in_their_group():
    layout = laid_out(Page("item_page", row=0, options=(("size", "red"),)))
    options = [(node.text, node.clicked) for node in layout.nodes if node.role == "option"]
    assert options == [("color: red", False), ("blue", False), ("5", False), ("size: red", True)]


def test_the_original_marks_what_stands_between_quotes_in_its_address():
    marks = '{"size": "red"}'
    layout = laid_out(Page("item_page", row=0, options=(("size", "red"),), marks=marks), unique=False, read=parse)
    options = [(node.text, node.clicked) for node in layout.nodes if node.role == "option"]
    assert options == [("red", True), ("blue", False), ("5", False), ("red", True)]


def test_a_click_on_a_value_of_two_groups_goes_to_the_last_in_the_original():
    layout = laid_out(Page("item_page", row=0), unique=False, read=parse)
    assert layout.targets["red"] == ("size", "red")
    assert list(layout.targets)[-3:] == ["red", "blue", "5"]


def test_attributes_have_a_page_only_where_that_is_wanted():
    for show_attrs in (False, True):
        targets = laid_out(Page("item_page", row=0), show_attrs=show_attrs).targets
        assert ("attributes" in targets) is show_attrs


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
    PageNode("text", " a feature "),
    PageNode("text", " "),
    PageNode("button", "Next >"),
    PageNode("product", "B01", clicked=True),
    PageNode("product", "B02"),
    PageNode("option", "red", clicked=True),
    PageNode("option", "blue"),
    PageNode("option", "5", clicked=True),
    PageNode("chosen", "You have chosen color: red"),
)
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
