"""Protocols: reading a turn, cutting texts, showing passages, and compact texts written out by hand."""

import json
from dataclasses import replace
from time import process_time

import gymnasium as gym
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tsr_gym_envs.retrieval_qa.fakes import at, qa
from tsr_gym import ConfigError
from tsr_gym.testing import check_snapshot, check_text_env
from tsr_gym_envs.retrieval_qa.contract import Passage
from tsr_gym_envs.retrieval_qa.grading import exact_match
from tsr_gym_envs.retrieval_qa.protocol import (
    MAX_QUERIES,
    PROTOCOLS,
    Protocol,
    cut_turn,
    length_of,
    make_protocol,
    parse,
    plain,
    shorten,
    show,
    write_answer,
    write_search,
)


def syllables(text):
    return sum(letter in "aeiou" for letter in text)


@pytest.mark.parametrize(
    ("limit", "length", "left"),
    [
        (None, "words", "One, two  three"), (3, "words", "One, two  three"), (2, "words", "One, two"),
        (1, "words", "One,"), (15, "characters", "One, two  three"), (14, "characters", "One, two"),
        (8, "characters", "One, two"), (7, "characters", "One,"), (3, "characters", "One"), (1, "characters", "O"),
        (3, f"{__name__}:syllables", "One, two"),
    ],
)  # fmt: skip
def test_a_text_is_cut_after_a_whole_word(limit, length, left):
    assert shorten("One, two  three", limit, length) == left


@given(st.text(max_size=60), st.integers(1, 20))
def test_what_is_left_is_the_longest_beginning_that_fits(text, limit):
    left = shorten(text, limit)
    assert text.startswith(left)
    words = text.split()
    assert left.split() == words[:limit]
    assert left == text or (not left[-1:].isspace() and len(words) > limit)


@pytest.mark.parametrize("name", ["tokens", "no.such.module:f", "math:nothing"])
def test_an_unknown_measure_is_refused(name):
    with pytest.raises(ConfigError, match="wanted length"):
        length_of(name)


SEARCH_R1, SKYRL, VERL = (PROTOCOLS[name] for name in ("search-r1", "skyrl", "verl"))
HITS = [
    [Passage("1", "Paul Walker", "An actor {born} in Glendale.", 9.0), Passage("2", 'The "Q"', "Second.\nLine.", 8.0)]
]


def read(text, protocol=SEARCH_R1):
    """Return the action of a text, as (kind, queries or answer)."""
    action = parse(cut_turn(text, protocol), protocol)
    return action.kind, action.queries if action.kind == "search" else action.answer


def call(*queries, name="search"):
    return f"<tool_call>{json.dumps({'name': name, 'arguments': {'query_list': list(queries)}})}</tool_call>"


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("<think>hm</think><search> a town </search>", ("search", ("a town",))),
        ("<answer>\n Paris </answer> and so on", ("answer", "Paris")),
        ("<search></search>", ("search", ("",))),
        ("<answer></answer>", ("answer", "")),
        ("<search>two\nlines</search>", ("search", ("two\nlines",))),
        # The first of several searches is read, and the text is cut after it.
        ("<search>one</search><search>two</search>", ("search", ("one",))),
        # The cut prefers the search, the reader then takes the first whole pair.
        ("<search>q</search><answer>a</answer>", ("search", ("q",))),
        ("<answer>a</answer><search>q</search>", ("answer", "a")),
        ("<answer>a <search>q</search> b</answer>", ("search", ("q",))),
        ("<search>never closed <answer>a</answer>", ("answer", "a")),
        ("<search>q", ("invalid", "")),
        ("q</search>", ("invalid", "")),
        ("</answer><answer>", ("invalid", "")),
        ("<Search>q</Search>", ("invalid", "")),
        ("< search>q</search>", ("invalid", "")),
        ("<search>q</answer>", ("invalid", "")),
        ("", ("invalid", "")),
    ],
)
def test_search_r1_reads_the_first_pair_of_what_it_cuts(text, action):
    assert read(text) == action


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a <search>q</search> b </search>", "a <search>q</search>"),
        ("<answer>a</answer> then <search>q</search> c", "<answer>a</answer> then <search>q</search>"),
        ("<answer>a</answer> b", "<answer>a</answer>"),
        ("neither", "neither"),
    ],
)
def test_search_r1_cuts_after_the_search_and_only_else_after_the_answer(text, left):
    assert cut_turn(text, SEARCH_R1) == left


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("<answer>a</answer><search>q</search>", ("answer", "a")),
        ("<search>q</search><answer>a</answer>", ("search", ("q",))),
        # Stopped at the closing answer tag, the search is already whole.
        ("<search>q<answer>a</answer></search>", ("answer", "a")),
        ("none", ("invalid", "")),
    ],
)
def test_skyrl_stops_at_the_earliest_tag_and_an_answer_wins(text, action):
    assert read(text, SKYRL) == action


@pytest.mark.parametrize(
    ("text", "action"),
    [
        (call("one", " two "), ("search", ("one", "two"))),
        (f"<answer>a</answer>{call('q')}", ("search", ("q",))),
        ("<answer>a</answer> <answer>b</answer>", ("answer", "b")),
        (call(*map(str, range(20))), ("search", tuple(map(str, range(MAX_QUERIES))))),
        (call("q", name="fetch"), ("invalid", "")),
        (call(), ("invalid", "")),
        (call(7), ("invalid", "")),
        ("<tool_call>q</tool_call>", ("invalid", "")),
        ('<tool_call>{"name": "search", "arguments": "q"}</tool_call>', ("invalid", "")),
        ('<tool_call>{"name": "search"}</tool_call>', ("invalid", "")),
        ("<tool_call>[1]</tool_call>", ("invalid", "")),
        (f"<tool_call>{'[' * 50_000}</tool_call>", ("invalid", "")),
        ("<search>q</search>", ("invalid", "")),
    ],
    ids=lambda value: str(value)[:60],
)
def test_verl_reads_a_tool_call_with_a_list_of_queries(text, action):
    assert read(text, VERL) == action


def test_protocols_show_hits_as_published():
    assert show(HITS, SEARCH_R1, 9999).observation == (
        '\n\n<information>Doc 1(Title: "Paul Walker") An actor {born} in Glendale.\n'
        'Doc 2(Title: "The "Q"") Second.\nLine.</information>\n\n'
    )
    assert show(HITS, SKYRL, 9999).observation == (
        '\n<information>{"result": "Doc 1: \\"Paul Walker\\"\\nAn actor {born} in Glendale.\\n'
        'Doc 2: \\"The \\"Q\\"\\"\\nSecond.\\nLine.\\n"}</information>\n'
    )
    assert "\\u00e9" in show([[Passage("1", "é", "")]], SKYRL, 9999).observation
    assert show([*HITS, [Passage("3", "é", "Third.")]], VERL, 9999).observation == (
        '\n<tool_response>\n{"result": "Doc 1 (Title: \\"Paul Walker\\")\\nAn actor {born} in Glendale.\\n\\n'
        'Doc 2 (Title: \\"The \\"Q\\"\\")\\nSecond.\\nLine.\\n---\\nDoc 1 (Title: \\"é\\")\\nThird."}'
        "\n</tool_response>\n"
    )


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)
def test_long_hits_are_cut_one_by_one_within_the_bound_and_nothing_found_is_shown_as_nothing(protocol):
    hits = [[Passage(str(place), f"T{place}", f"w{place} " * 400) for place in range(3)]]
    shown = show(hits, replace(protocol, max_document_length=5), 9999)
    assert [shown.observation.count(f"w{place}") for place in range(3)] == [5, 5, 5]
    assert [text.count("w") for text in shown.documents] == [5, 5, 5]
    assert shown.observation.rstrip().endswith(f"</{protocol.information_tag}>")
    by_letters = replace(protocol, max_document_length=11, length="characters")
    assert [show(hits, by_letters, 9999).observation.count(f"w{place}") for place in range(3)] == [4, 4, 4]
    hits = [[Passage("1", "漢" * 30_000, "字" * 90_000), Passage("2", "t", "x" * 90_000)]]
    shown = show(hits, protocol, 50_000)
    assert len(shown.observation) <= 50_000
    assert shown.observation.rstrip().endswith(f"</{protocol.information_tag}>")
    assert len(shown.documents) == 2
    shown = show([[]], protocol, 9999)
    assert shown.documents == ()
    assert "Doc" not in shown.observation
    assert protocol.observation.format(documents="X").partition("X")[2] in shown.observation


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("<search>q</search>", "search"),
        ("<answer>a</answer>", "answer"),
        ("<search>q</search><answer>a</answer>", "invalid"),
        ("<search>q</search><search>r</search>", "invalid"),
        ("<answer>a</answer><answer>a</answer>", "invalid"),
    ],
)
def test_a_protocol_may_want_exactly_one_action_and_other_tags(text, kind):
    protocol = replace(SEARCH_R1, cut="never", both="invalid")
    assert read(text, protocol)[0] == kind
    other = replace(protocol, search_tag="find", answer_tag="final")
    assert read(text, other)[0] == "invalid"
    assert read(text.replace("search", "find").replace("answer", "final"), other)[0] == kind


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)
@given(query=st.text(st.characters(exclude_characters="<>"), max_size=30))
def test_what_is_written_is_read(protocol, query):
    assert read(write_search(query, protocol), protocol) == ("search", (query.strip(),))
    assert read(write_answer(query, protocol), protocol) == ("answer", query.strip())


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)
@given(
    parts=st.lists(st.sampled_from(["<search>", "</search>", "<answer>", "</answer>", "<tool_call>", "{", '"', "x"]))
)
def test_any_text_is_read(protocol, parts):
    text = "".join(parts)
    cut = cut_turn(text, protocol)
    assert text.startswith(cut)
    assert parse(cut, protocol).kind in ("search", "answer", "invalid")


def test_reading_takes_time_in_proportion_to_the_text():
    start = process_time()
    for unit in ("<search>", "<answer>", "<search><answer>", "</search><answer>"):
        parse(unit * 40_000, replace(SEARCH_R1, cut="never"))
    # A reader that looks for the closing tag from every opening one takes minutes.
    assert process_time() - start < 2


def test_a_protocol_is_made_from_a_name_or_a_mapping_and_explains_its_tags():
    for protocol in PROTOCOLS.values():
        for tag in (protocol.think_tag, protocol.search_tag, protocol.information_tag, protocol.answer_tag):
            assert f"<{tag}>" in protocol.instructions
    assert make_protocol("skyrl") == SKYRL
    assert make_protocol(VERL) is VERL
    made = make_protocol({"preset": "skyrl", "max_document_length": 20})
    assert made == replace(SKYRL, max_document_length=20)
    assert make_protocol({"search_tag": "find"}) == replace(SEARCH_R1, search_tag="find")
    assert Protocol(instructions="Search.").search_tag == "search"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("r1", r"wanted a protocol of \['search-r1', 'skyrl', 'verl'\].*got 'r1'"),
        ({"colour": 1}, r"unknown fields \['colour'\].*known: .*search_tag"), ({"cut": "late"}, "wanted cut of"),
        ({"both": "last"}, "wanted both of"), ({"escape": "xml"}, "wanted escape of"),
        ({"max_document_length": 0}, "max_document_length >= 1"), ({"length": "tokens"}, "wanted length of"),
        ({"document": "{author}"}, "wanted a document of"), ({"observation": "{"}, "wanted a document of"),
    ],
    ids=str,
)  # fmt: skip
def test_an_impossible_protocol_is_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        make_protocol(given)


BORN = "doc ada moor | ada moor is a painter she was born in velden"
TOWN = "doc velden | velden is a town on the river sull its mayor is otto brand"


def compact(number=0, **settings):
    return at(number, observation_mode="compact", **settings)


def test_everything_that_is_shown_is_words_between_blanks():
    env = compact()
    assert env.observe(env.state) == "ask who is the mayor of the town where ada moor was born ?"
    assert env.instructions == ""
    assert env.step("<search> ada moor </search>")[0] == BORN
    assert env.step("<search> velden mayor </search>")[0] == TOWN
    observation, reward, terminated, _, info = env.step("<answer> otto brand </answer>")
    assert (observation, reward, terminated, info["success"]) == ("", 1.0, True, True)
    assert compact(top_k=2).step("<search> velden </search>")[0] == f"{BORN} {TOWN}"
    assert compact().step("<search> zebra </search>")[0] == "nothing"
    observation, *_, info = compact().step("velden")
    assert (observation, info["action_is_valid"]) == ("no action", False)
    env = compact(history="transcript")
    asked = env.observe(env.state)
    assert env.step("<search> ada moor </search>")[0] == f"{asked}\n<search> ada moor </search>{BORN}"


def test_legal_and_optimal_turns_are_plain_and_mean_what_they_mean_elsewhere():
    env = compact()
    queries = "who is the mayor of the town where ada moor was born", "ada moor"
    turns = [f"<search> {query} </search>" for query in queries] + ["<answer> yes </answer>", "<answer> no </answer>"]
    assert list(env.legal_actions(env.state)) == turns
    said = []
    while not env.episode.terminated:
        said.append(env.optimal_turn(env.state, env.limits.max_turns - env.episode.turns, None))
        env.step(said[-1])
    queries = "where was ada moor born", "who is the mayor of velden"
    assert said == [*(f"<search> {query} </search>" for query in queries), "<answer> otto brand </answer>"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('"Beneath the Courtyard" (film), 1,105 metres.', "beneath the courtyard film 1,105 metres"),
        ("M. W. O'Brien-Ost's  <search> | 5 %", "m w o'brien-ost's search 5"),
        ("“Le Sœur”  ( )", "“le sœur”"),
    ],
)
def test_plain_words_are_graded_as_the_text_that_they_stand_for(text, words):
    assert plain(text) == words
    assert exact_match(words, text)


def test_every_contract_is_kept_in_compact_form_which_calls_of_a_tool_do_not_have():
    world = {"entities": 300, "questions": 60, "hops": [1, 2]}
    env = gym.make("tsr/RetrievalQA-v0", observation_mode="compact", top_k=2, **world)
    check_text_env(env, junk=(), seeds=(0,))
    check_snapshot(env, other_processes=False, seeds=(0,))
    with pytest.raises(ConfigError, match="wanted a protocol without tool calls"):
        qa(observation_mode="compact", protocol="verl")
    with pytest.raises(ConfigError, match="wanted observation_mode of"):
        qa(observation_mode="short")
