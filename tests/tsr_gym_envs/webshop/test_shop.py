"""The shop, its search, and the start of an episode."""

import copy
import json
import os
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tsr_gym_envs.webshop.shops import goal, item, product, tiny_shop, write_files
from tsr_gym import ConfigError, InvalidCatalogue, MissingExtra
from tsr_gym_envs.webshop.catalogue.goals import make_goals
from tsr_gym_envs.webshop.catalogue.opening import import_catalogue
from tsr_gym_envs.webshop.catalogue.store import INDEX
from tsr_gym_envs.webshop.repairs import RULES
from tsr_gym_envs.webshop.settings import WebShopSettings, make_settings
from tsr_gym_envs.webshop.shop import (
    MAX_KNOWN,
    Stream,
    begin,
    begin_as_original,
    open_index,
    open_shop,
    stream_from,
    suggest_queries,
)
from tsr_gym_envs.webshop.state import ShopState, parse, parse_kindly

MUG = product(0, "steel mug", options=(("size", ("5",)),), attributes=("leak proof",))


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory):
    items = [
        item(
            number, name=f"shirt {number}", category="fashion" if number % 2 else "garden", query=f"query {number % 3}"
        )
        for number in range(60)
    ]
    items.append(item(60, category="", query="", name="nameless"))
    folder = tmp_path_factory.mktemp("sixty")
    return import_catalogue(write_files(folder / "files", items), folder / "store")


def found(catalogue, rules, query):
    shop = open_shop(WebShopSettings(catalogue=str(catalogue.path), rules=rules))
    return shop.results(ShopState(0, "s", "search_results", tuple(query.split(" "))))


def test_commands_list_whole_categories_in_the_original_and_are_words_once_repaired(catalogue):
    odd = tuple(range(1, 60, 2))
    assert found(catalogue, "original", "<c> fashion") == odd
    assert found(catalogue, "original", "<c> fashion shirts") == odd
    assert found(catalogue, "original", "<c> ") == (60,)
    assert found(catalogue, "original", "<q> query 1") == tuple(range(1, 60, 3))
    assert found(catalogue, "original", "<q>") == (60,)
    assert len(found(catalogue, "fixed", "<c> fashion shirt")) == 50
    assert found(catalogue, "fixed", "<c> fashion shirt") == found(catalogue, "original", " <c> fashion shirt")


def test_a_returned_purchase_is_a_copy():
    shop = tiny_shop([MUG], [goal(MUG, "Find me a mug", options=(("size", "5"),))])
    state = ShopState(0, "s", "done", row=0, options=(("size", "5"),))
    shop.purchase(state).clear()
    assert shop.purchase(state)["reward"] == 1.0
    assert shop.purchase(state._replace(options=()))["reward"] == pytest.approx(2 / 3)


@pytest.fixture
def settings_of(real_catalogue):
    return lambda **given: make_settings("default", {"catalogue": str(real_catalogue.path), **given})


def test_equal_settings_share_a_shop(settings_of):
    shop = open_shop(settings_of())
    assert open_shop(settings_of(max_turns=3, observation_mode="html", split="test")) is shop
    others = [open_shop(settings_of(**given)) for given in ({"human_goals": True}, {"show_attrs": True})]
    assert shop not in others
    assert open_shop(settings_of(), noun_fn=str.split) is not shop
    shop = open_shop(settings_of(rules="original", human_goals=True, limit_goals=3, show_attrs=True), str.split)
    assert (shop.repairs, shop.show_attrs, shop.parse) == (RULES["original"], True, parse)
    assert (len(shop.goals), shop.noun_fn("a b"), shop.noun_source) == (3, ["a", "b"], "injected")
    assert open_shop(settings_of()).parse is parse_kindly


def test_a_folder_without_a_catalogue_is_refused(tmp_path):
    with pytest.raises(InvalidCatalogue, match="items_shuffle"):
        open_shop(make_settings("default", {"catalogue": str(tmp_path)}))


@pytest.fixture(scope="module")
def goals(real_catalogue):
    return {name: make_goals(real_catalogue, repairs) for name, repairs in RULES.items()}


def session_settings(**given):
    return make_settings("default", given)


class Original:
    """Episodes one after the other, as the original begins them."""

    def __init__(self, goals, stream=None, **settings):
        self.goals, self.settings = goals["original"], session_settings(rules="original", **settings)
        self.stream = stream or Stream(self.goals.dice)

    def begin(self, **options):
        state = begin_as_original(self.goals, self.settings, {"stream": self.stream, **options})
        self.stream = Stream(state.dice, state.known)
        return state.session, state.goal


def test_episodes_come_in_the_originals_sequence(shared, goals):
    expected = json.loads((shared / "golden/webshop/rng_reset_sequence.json").read_text())["sessions"]
    original = Original(goals)
    # The first was begun by the constructor.
    assert [list(original.begin()) for _ in expected[1:]] == expected[1:]


def test_keys_belong_to_a_goal_and_known_sessions_draw_no_random_numbers(goals):
    original = Original(goals)
    last = len(goals["original"]) - 1
    assert original.begin(session=5) == ("5", 5)
    assert original.begin(session=-1) == ("-1", last)
    key, goal = original.begin(session="me")
    assert original.begin()[1] != goal
    assert original.begin(session="me") == (key, goal)
    # Keys that are words keep the goal of their first episode.
    assert original.begin(session="5") == ("5", 5)
    key, goal = original.begin(session="6")
    assert goal != 6
    assert (original.begin(session=6), original.begin(goal=6)) == (("6", goal), ("6", 6))
    original = Original(goals)
    original.begin(session="me")
    dice = original.stream.dice
    original.begin(session="me")
    original.begin(session=3)
    assert original.stream.dice == dice


def test_sessions_are_remembered_by_key_and_a_seed_decides_a_sequence(goals):
    original = Original(goals)
    for number in range(MAX_KNOWN + 9):
        original.begin(session=number)
    assert [key for key, _ in original.stream.known] == [str(number) for number in range(9, MAX_KNOWN + 9)]
    assert Original(goals, session_prefix="p_").begin(session=7) == ("p_7", 7)
    first, again, other = (Original(goals, stream_from(seed)) for seed in (3, np.int64(3), 4))
    sequences = [[original.begin() for _ in range(5)] for original in (first, again, other)]
    assert sequences[0] == sequences[1] != sequences[2]


def test_keys_mean_the_same_goal_in_every_process_once_repaired(goals):
    settings = session_settings()

    def goal_of(**options):
        return begin(goals["fixed"], settings, options, np.random.default_rng()).goal

    assert goal_of(session="me") == goal_of(session="me") == 2173
    assert len({goal_of(session=f"key {number}") for number in range(20)}) > 10
    assert (goal_of(session=5), goal_of(goal=5), goal_of(goal=-2)) == (5, 5, len(goals["fixed"]) - 2)


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_draws_stay_in_their_split(goals, split):
    settings = session_settings(split=split)
    inside = set(goals["fixed"].split(split).tolist())
    rng = np.random.default_rng(1)
    drawn = {begin(goals["fixed"], settings, {}, rng).goal for _ in range(50)}
    drawn |= {begin(goals["fixed"], settings, {"session": f"{number}!"}, rng).goal for number in range(50)}
    assert drawn <= inside
    assert len(drawn) > 20


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"goal": 10**6}, "wanted the number of a goal from -6910 to 6909, got 1000000"),
        ({"goal": -6911}, "got -6911"),
        ({"session": 10**6}, "got 1000000"),
        ({"goal": "5"}, "wanted the number of a goal, got '5'"),
        ({"goal": 1.5}, "wanted a number or the key of a session"),
        ({"goal": 1, "session": 1}, "got both"),
    ],
)
def test_what_is_no_goal_is_refused(goals, options, message):
    with pytest.raises(ConfigError, match=message):
        begin(goals["fixed"], session_settings(), options, np.random.default_rng())
    with pytest.raises(ConfigError, match=message):
        Original(goals).begin(**options)


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


def test_engines_find_rows_of_ids_for_any_query(engine, real_catalogue, golden):
    for query in ("", " ", "the", "qzxv"):
        assert engine.search(query) == []
        assert engine.rows(query) == ()
    for query in ("\ud83d", "\x00 red", "red " * 5000, '"+title:*~[', "\u200d\ufe0f", "\U0001f468\u200d\U0001f469"):
        assert len(engine.rows(query)) == len(engine.search(query)) <= 50
    for other in (copy.deepcopy(engine), pickle.loads(pickle.dumps(engine))):
        assert other.search("red shoes") == engine.search("red shoes")
    assert len(pickle.dumps(engine)) < 1000
    for row in golden("webshop/search.jsonl")[::20]:
        hits = engine.search(row["query"], 20)
        assert engine.rows(row["query"], 20) == tuple(real_catalogue.row_of(asin) for asin, _ in hits)
        assert engine.rows(row["query"], 5) == engine.rows(row["query"], 20)[:5]


def test_products_are_found_by_options_and_first_bullets_but_not_by_ids(tmp_path):
    items = [
        item(1, customization_options={"Color": [{"value": "Teal"}]}, small_description=["Velvet", "Corduroy"]),
        item(2, full_description="Denim, and a longer text than the other"),
    ]
    engine = open_index(import_catalogue(write_files(tmp_path / "in", items), tmp_path / "out"))
    assert [engine.rows(word) for word in ("teal", "velvet", "denim", "soft")] == [(0,), (0,), (1,), (0, 1)]
    assert [engine.rows(word) for word in ("corduroy", "b000000001", "fashion")] == [(), (), ()]


def test_where_the_original_fails_nothing_is_found(catalogue, goals):
    for query in ("<c>", "<a>", "<a> soft", "<c> no such category"):
        assert found(catalogue, "original", query) == ()
    # Random queries have dice where they are not repaired.
    rng = np.random.default_rng(1)
    assert begin(goals["fixed"], session_settings(), {}, rng).dice is None
    assert begin(goals["fixed"], session_settings(repairs=["page_state"]), {}, rng).dice is not None


def test_unknown_engines_and_damaged_indexes_are_reported(tmp_path, monkeypatch):
    store = import_catalogue(write_files(tmp_path / "in", [item(1)]), tmp_path / "out")
    assert open_index(tmp_path / "out") is open_index(store)
    with pytest.raises(ConfigError, match=r"wanted an engine of .*, got 'google'"):
        open_index(store, engine="google")
    monkeypatch.setattr("tsr_gym.optional.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"tsr-gym\[pyserini\]"):
        open_index(store, engine="pyserini")
    damaged = import_catalogue(write_files(tmp_path / "in", [item(2)]), tmp_path / "damaged")
    for path in (damaged.data / INDEX).iterdir():
        os.truncate(path, 3)
    with pytest.raises(InvalidCatalogue, match=r"the search index of .* is damaged"):
        open_index(damaged)


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
