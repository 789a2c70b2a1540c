"""Comparing words: the original's numbers, and what the repaired reward asks instead."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsr_gym_envs.webshop.matching import (
    COLORS,
    close,
    fits_best,
    normalize_color,
    same_value,
    token_set_ratio,
)


def as_value(value):
    return tuple(value) if isinstance(value, list) else value


def test_every_golden_ratio_comes_out_to_the_point(golden):
    rows = golden("webshop/token_set_ratio.jsonl")
    assert len(rows) == 613
    for row in rows:
        assert token_set_ratio(row["p"], as_value(row["g"])) == row["score"], row


def test_a_quick_match_says_what_the_ratio_says(golden):
    rows = golden("webshop/token_set_ratio.jsonl")
    verdicts = [close(row["p"], as_value(row["g"])) for row in rows]
    assert verdicts == [row["score"] > 85 for row in rows]
    assert 50 < sum(verdicts) < 600


@given(st.text("abcd xé-", max_size=12), st.text("abcd xé-", max_size=12))
def test_a_quick_match_says_what_the_ratio_says_of_any_text(first, second):
    assert close(first, second) == (token_set_ratio(first, second) > 85)


@given(st.lists(st.sampled_from(["stone", "stones", "storm", "warm", "war", "x"]), min_size=1, max_size=4))
def test_repetition_and_order_of_words_change_nothing(words):
    assert token_set_ratio(" ".join(words), " ".join(reversed(words + words))) == 100


def test_signs_and_latin_1_letters_count_for_nothing():
    assert token_set_ratio("+", "+") == 0
    assert token_set_ratio("é", "é") == 0
    assert token_set_ratio("café", "CAF!") == 100
    assert token_set_ratio("a_b", "a b") < 100


def test_there_are_the_originals_colours_in_its_order(shared):
    assert list(COLORS) == json.loads((shared / "golden/webshop/color_set.json").read_text())


def test_every_golden_colour_comes_out(golden):
    rows = golden("webshop/normalize_color.jsonl")
    assert len(rows) > 1000
    for value, wanted, *_ in rows:
        assert normalize_color(as_value(value)) == as_value(wanted), value


@pytest.mark.parametrize(
    ("first", "second"),
    [("a2-army\xa0green", "A2-Army Green"), ("30 | 32", "30/32"), ("a  |  b", "a/b"), (" 5.5", "5.5 "), ("+", "+")],
)
def test_values_are_the_same_whatever_their_case_blanks_and_slashes(first, second):
    assert same_value(first, second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("5", "5.5"),
        ("large", "x-large"),
        ("6 ounce (pack of 1)", "6 ounce (pack of 2)"),
        ("navy blue", "blue"),
        ("2005grey", "grey"),
        ("rectangular", "tan"),
    ],
)
def test_other_values_are_not_the_same(first, second):
    assert not same_value(first, second)


def test_a_wish_in_words_is_met_by_the_value_that_fits_best():
    offered = ["navy blue", "dark navy blue", "red"]
    assert [fits_best(value, "blue", offered) for value in offered] == [True, False, False]
    assert [fits_best(value, "navy blue", offered) for value in offered] == [True, False, False]


def test_where_the_very_value_is_on_offer_no_other_will_do():
    offered = ["blue", "navy blue"]
    assert [fits_best(value, "Blue", offered) for value in offered] == [True, False]


def test_values_that_fit_equally_well_will_both_do():
    offered = ["7 wide", "7 narrow", "7.5 wide"]
    assert [fits_best(value, "7", offered) for value in offered] == [True, True, False]


@pytest.mark.parametrize(("value", "wish"), [("5.5", "5"), ("x-large", "large"), ("6 ounce (pack of 12)", "pack of 1")])
def test_part_of_a_word_is_no_word(value, wish):
    assert not fits_best(value, wish, [value])


def test_a_wish_without_words_is_met_only_by_itself():
    assert fits_best("()", "()", ["()", "red"])
    assert not fits_best("red", "()", ["red"])
