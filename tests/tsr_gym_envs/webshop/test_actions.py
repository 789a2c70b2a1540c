"""Reading what agents write: the original's way, and kindly."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tsr_gym_envs.webshop.tiny_shop import product
from tsr_gym_envs.webshop.actions import BUTTONS, option_labels, parse, parse_kindly


def test_every_golden_text_is_read_as_by_the_original(golden):
    rows = golden("webshop/parse_action.jsonl")
    assert len(rows) == 32
    for text, wanted in rows:
        assert list(parse(text)) == wanted, text


@given(st.text("[]ab \n\r\u2028", max_size=14))
def test_texts_are_read_as_by_the_originals_regular_expression(text):
    found = re.match(r"(.+)\[(.+)\]", text)
    assert parse(text) == (found.groups() if found else (text, None))


@pytest.mark.parametrize("read", [parse, parse_kindly])
def test_a_long_text_of_brackets_takes_no_time(read):
    start = time.process_time()
    assert read("[" * 100_000).argument is None
    read("a[" * 50_000 + "]" * 50_000)
    # Not a matter of speed: a pattern that backtracks takes minutes.
    assert time.process_time() - start < 20


@pytest.mark.parametrize(
    ("text", "name", "argument"),
    [
        ("search[red shoes]", "search", "red shoes"),
        ("  Search [ red shoes ] \n", "search", "red shoes"),
        ("CLICK[Buy Now]. Done!", "click", "Buy Now"),
        ("click[size [us]]", "click", "size [us]"),
        ("search[a]\nclick[b]", "search", "a"),
        ("I will buy it: click[buy now]", "i will buy it: click", "buy now"),
    ],
)
def test_blanks_capitals_and_inner_brackets_are_forgiven(text, name, argument):
    assert parse_kindly(text) == (name, argument)


@pytest.mark.parametrize("text", ["", " ", "search", "search[", "search[]", "search[  ]", "search]x[", "\nclick"])
def test_without_an_argument_nothing_is_asked(text):
    assert parse_kindly(text) == (text, None)


def test_values_are_shown_with_their_group_where_they_could_be_mistaken():
    groups = (("frame", ("red", "blue", "blue")), ("lens", ("red", "search", "5")))
    labels = dict(option_labels(product(0, "Glasses", options=groups), unique=True))
    assert labels["frame"] == (("frame: red", "red"), ("blue", "blue"), ("blue", "blue"))
    assert labels["lens"] == (("lens: red", "red"), ("lens: search", "search"), ("5", "5"))
    plain = dict(option_labels(product(0, "Glasses", options=groups), unique=False))
    assert plain["lens"] == (("red", "red"), ("search", "search"), ("5", "5"))


def test_every_button_could_be_mistaken():
    labels = option_labels(product(0, "Mug", options=(("size", BUTTONS),)), unique=True)
    assert [label for label, _ in labels[0][1]] == [f"size: {name}" for name in BUTTONS]
