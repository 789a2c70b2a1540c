"""Queries made of instructions."""

from hypothesis import given
from hypothesis import strategies as st

from tsr_gym_envs.webshop.actions import parse, parse_kindly
from tsr_gym_envs.webshop.search.queries import suggest_queries


def test_limits_go_and_wishes_are_asked_for_or_not():
    text = "Find me machine wash men's shirts with button closure, with color: red, and price lower than 60.00 dollars"
    assert suggest_queries(text) == (
        "machine wash men's shirts with button closure, with color: red",
        "machine wash men's shirts",
    )
    assert suggest_queries("i need a lamp") == ("i need a lamp",)


@given(st.text("ab[]| \n\r,", max_size=20))
def test_every_reading_of_actions_takes_a_suggestion_as_it_is(text):
    for query in suggest_queries(text):
        assert parse(f"search[{query}]") == parse_kindly(f"search[{query}]") == ("search", query)
        assert "||" not in query
