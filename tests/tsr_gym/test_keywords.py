"""Calls written as text: what is found by its name, what is bound, and the one kind of error."""

from functools import partial

import pytest

from tsr_gym.errors import ConfigError
from tsr_gym.keywords import Call, choose, fold, parse_call, parse_settings

HERE = "tests.tsr_gym.test_keywords"


def grow(tree, *, width=2, branching, **more):
    return tree, width, branching, more


def plain(tree, *, width=2, depth=None):
    if width < 1:
        raise ValueError(f"wanted width >= 1, got {width}")
    return tree, width, depth


def of_two(first, second):
    return first, second


NUMBER = 3


def chosen(text, **more):
    return choose(text, home=HERE, what="strategy", **more)


def test_a_name_and_a_call_give_a_function_with_its_numbers_and_those_offered():
    assert chosen("plain").func is chosen(f"{HERE}:plain").func is plain
    assert chosen("plain(width=5)")("tree") == ("tree", 5, None)
    assert chosen(f"{HERE}:plain(width=5, depth=1)")("tree") == ("tree", 5, 1)
    assert isinstance(chosen("plain"), partial)
    assert chosen("plain", offered={"depth": 7, "other": 1}).keywords == {"depth": 7}
    assert chosen("plain(depth=2)", offered={"depth": 7}).keywords == {"depth": 2}
    # What is offered can make up for a number that is needed.
    assert chosen("grow", offered={"branching": 4})("tree") == ("tree", 2, 4, {})
    assert chosen("grow(branching=1, colour='red')")("tree") == ("tree", 2, 1, {"colour": "red"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("plian", "there is no strategy 'plian': did you mean plain\\? wanted one of .*grow.*, or package.module:name"),
        ("plain(3)", "wanted the strategy as name, .*got 'plain\\(3\\)' \\(wanted keywords only\\)"),
        ("plain(width=", "wanted the strategy as name"),
        ("plain(width=len)", "wanted the strategy as name"),
        ("plain(wdith=3)", "the strategy 'plain' has no \\['wdith'\\]; it has \\['depth', 'width'\\]"),
        ("grow", "the strategy 'grow' needs \\['branching'\\]: write grow\\(branching=...\\)"),
        ("of_two", "the strategy 'of_two' needs \\['second'\\]"),
        (f"{HERE}:NUMBER", "wanted the strategy as something that can be called"),
        (f"{HERE}:nothing", "there is no strategy .*nothing"),
        ("no.such:thing", "there is no strategy 'no.such:thing' .*No module named"),
    ],
)
def test_whatever_is_wrong_is_a_configuration_error_that_says_what_was_wanted(text, message):
    with pytest.raises(ConfigError, match=message):
        chosen(text)


def test_refusals_come_at_once_and_short_names_are_of_the_choices():
    with pytest.raises(ConfigError, match=r"'plain\(width=0\)' cannot be used: wanted width >= 1, got 0"):
        chosen("plain(width=0)", trial=lambda strategy: strategy(None))
    assert chosen("grow(branching=1)", among=lambda one: one is grow).func is grow
    with pytest.raises(ConfigError, match=r"wanted one of grow, or"):
        chosen("plain", among=lambda one: one is grow)


@pytest.mark.parametrize(
    ("text", "numbers", "folded"),
    [
        ("plain", {"width": 3}, "plain(width=3)"),
        ("plain(depth=1)", {"width": 3, "branching": None}, "plain(depth=1, width=3)"),
        ("plain", {}, "plain"),
    ],
)
def test_numbers_beside_a_call_are_folded_into_it(text, numbers, folded):
    assert fold(text, numbers, home=HERE, what="strategy") == folded


@pytest.mark.parametrize(
    ("text", "numbers", "message"),
    [
        ("plain(width=3)", {"width": 7}, r"width stands in 'plain\(width=3\)' and again as width=7"),
        # Also where they agree: two doors are one too many.
        ("plain(width=3)", {"width": 3}, "say it in one of the two places"),
        ("plain", {"branching": 9}, r"'plain' has no branching, got branching=9; it has \['depth', 'width'\]"),
        ("plian", {}, "there is no strategy 'plian'"),
    ],
)
def test_a_number_that_stands_in_both_or_is_not_known_is_refused(text, numbers, message):
    with pytest.raises(ConfigError, match=message):
        fold(text, numbers, home=HERE, what="strategy")


def test_a_call_comes_back_from_its_text_and_settings_are_json_or_plain():
    call = Call("beam", {"width": 2, "rank": "last", "depth": None, "parts": {"a": ("B", 1.0)}})
    assert (parse_call(str(call)), str(Call("naive", {}))) == (call, "naive")
    assert parse_settings(["a=1", "b=[1, 2]", "c=word", "d="]) == {"a": 1, "b": [1, 2], "c": "word", "d": ""}
    with pytest.raises(ConfigError, match="wanted KEY=VALUE, got 'a'"):
        parse_settings(["a"])
