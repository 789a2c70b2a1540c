"""Search: Lucene's products in Lucene's order with its scores; queries made of instructions."""

import copy
import os
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tsr_gym_envs.webshop.small_files import item, write_files
from tsr_gym import ConfigError, InvalidCatalogue, MissingExtra
from tsr_gym_envs.webshop.catalogue.opening import import_catalogue
from tsr_gym_envs.webshop.catalogue.store import INDEX
from tsr_gym_envs.webshop.shop import open_index, suggest_queries
from tsr_gym_envs.webshop.state import parse, parse_kindly


@pytest.fixture(scope="module")
def engine(real_catalogue):
    return open_index(real_catalogue)


def test_every_golden_query_finds_what_lucene_finds(engine, golden):
    rows = golden("webshop/search.jsonl")
    same_sets = 0
    for row in rows:
        hits = engine.search(row["query"])
        assert [asin for asin, _ in hits[:10]] == row["asins"][:10], row["query"]
        assert len(hits) == row["n"]
        same_sets += {asin for asin, _ in hits} == set(row["asins"])
        for (_, score), lucene in zip(hits[:10], row["scores"], strict=False):
            assert score == pytest.approx(lucene, abs=2e-4)
    assert same_sets >= 0.99 * len(rows)
    assert len(rows) > 200


def test_rows_are_those_of_the_ids(engine, real_catalogue, golden):
    for row in golden("webshop/search.jsonl")[::20]:
        hits = engine.search(row["query"], 20)
        assert engine.rows(row["query"], 20) == tuple(real_catalogue.row_of(asin) for asin, _ in hits)
        assert engine.rows(row["query"], 5) == engine.rows(row["query"], 20)[:5]


def test_queries_without_a_known_word_find_nothing(engine):
    for query in ("", " ", "the", "qzxv"):
        assert engine.search(query) == []
        assert engine.rows(query) == ()


def test_an_agent_may_ask_for_anything(engine):
    for query in ("\ud83d", "\x00 red", "red " * 5000, '"+title:*~[', "\u200d\ufe0f", "\U0001f468\u200d\U0001f469"):
        assert len(engine.rows(query)) == len(engine.search(query)) <= 50


def test_products_are_found_by_options_and_first_bullets_but_not_by_ids(tmp_path):
    items = [
        item(1, customization_options={"Color": [{"value": "Teal"}]}, small_description=["Velvet", "Corduroy"]),
        item(2, full_description="Denim, and a longer text than the other"),
    ]
    engine = open_index(import_catalogue(write_files(tmp_path / "in", items), tmp_path / "out"))
    assert [engine.rows(word) for word in ("teal", "velvet", "denim", "soft")] == [(0,), (0,), (1,), (0, 1)]
    assert [engine.rows(word) for word in ("corduroy", "b000000001", "fashion")] == [(), (), ()]


def test_a_catalogue_may_be_named_by_its_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TSR_GYM_CACHE", str(tmp_path / "cache"))
    files = write_files(tmp_path / "in", [item(1)])
    assert open_index(str(files)).search("soft shirts")[0][0] == "B000000001"
    store = import_catalogue(files, tmp_path / "out")
    assert open_index(tmp_path / "out") is open_index(store)


def test_copies_and_pickles_find_the_same(engine):
    for other in (copy.deepcopy(engine), pickle.loads(pickle.dumps(engine))):
        assert other.search("red shoes") == engine.search("red shoes")
    assert len(pickle.dumps(engine)) < 1000


def test_unknown_engines_and_damaged_indexes_are_reported(tmp_path):
    store = import_catalogue(write_files(tmp_path / "in", [item(1)]), tmp_path / "out")
    with pytest.raises(ConfigError, match=r"wanted an engine of .*, got 'google'"):
        open_index(store, engine="google")
    for path in (store.data / INDEX).iterdir():
        os.truncate(path, 3)
    with pytest.raises(InvalidCatalogue, match=r"the search index of .* is damaged"):
        open_index(store)


def test_without_pyserini_the_missing_extra_is_named(real_catalogue, monkeypatch):
    monkeypatch.setattr("tsr_gym.optional.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"tsr-gym\[pyserini\]"):
        open_index(real_catalogue, engine="pyserini")


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
