"""The generator: its draws, its words, and the products that it writes."""

import json
import re
from collections import Counter
from itertools import combinations, islice
from math import prod
from string import Formatter

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import run_python
from tsr_gym_envs.webshop.catalogue.opening import import_catalogue
from tsr_gym_envs.webshop.generator import generate, write_catalogue
from tsr_gym_envs.webshop.generator.products import shown_options
from tsr_gym_envs.webshop.generator.sketch import fitting_styles
from tsr_gym_envs.webshop.generator.vocabulary import (
    BLOCK,
    CATEGORIES,
    HALF,
    LETTERS,
    ROLES,
    Draws,
    _keys,
    _mixed,
    asin_of,
    vocabulary,
)
from tsr_gym_envs.webshop.oracle import as_query
from tsr_gym_envs.webshop.shoppers import FirstHitShopper, OracleShopper, RuleShopper, play
from tsr_gym_envs.webshop.state import BUTTONS


def test_draws_depend_on_what_they_are_for_and_streams_continue():
    first = [Draws("product", 0, 7).below(10**9) for _ in range(2)]
    others = [Draws("product", 0, 8), Draws("product", 1, 7), Draws("brand", 0, 7)]
    assert first[0] == first[1]
    assert first[0] not in [draws.below(10**9) for draws in others]
    draws = Draws("long")
    assert len({draws.below(10**12) for _ in range(3 * BLOCK)}) == 3 * BLOCK


def test_samples_hold_no_value_twice_and_early_values_are_more_frequent_where_asked_for():
    draws, counts = Draws("sample"), Counter()
    for _ in range(4000):
        drawn = draws.sample(range(5), 2)
        assert len(set(drawn)) == 2
        counts.update(drawn)
    assert all(abs(count / 1600 - 1) < 0.1 for count in counts.values())
    assert sorted(draws.sample("abc", 7)) == ["a", "b", "c"]
    draws = Draws("early")
    counts = Counter(value for _ in range(4000) for value in draws.sample_early(range(4), 1))
    # The square of a unit is below 1/4 half of the time.
    assert abs(counts[0] / 2000 - 1) < 0.1
    assert counts[0] > counts[1] > counts[2] > counts[3]
    assert sorted(draws.sample_early("abc", 7)) == ["a", "b", "c"]


def test_weighted_draws_and_quantiles_have_their_shares():
    draws = Draws("weighted")
    counts = Counter(draws.weighted((0.1, 0.1, 0.7, 1.0)) for _ in range(5000))
    assert counts[1] == 0
    assert [round(counts[number] / 5000, 1) for number in (0, 2, 3)] == [0.1, 0.6, 0.3]
    draws = Draws("quantile")
    values = [draws.quantile((0, 10, 100)) for _ in range(8000)]
    assert np.quantile(values, [0.25, 0.5, 0.75]) == pytest.approx([5, 10, 55], rel=0.1)
    assert 0 <= min(values) <= max(values) <= 100


def row_of(seed, asin):
    """Return the row of an id, by undoing the rounds one by one."""
    left, right = (int(part, 36) for part in (asin[2:6], asin[6:]))
    for key in reversed(_keys(seed)):
        left, right = (right - _mixed(left ^ key)) % HALF, left
    return left * HALF + right


@given(st.integers(0, 50), st.integers(0, HALF**2 - 1))
def test_every_row_can_be_read_from_its_id_so_no_two_share_one(seed, row):
    asin = asin_of(seed, row)
    assert re.fullmatch("B0[0-9A-Z]{8}", asin)
    assert row_of(seed, asin) == row


def test_ids_of_neighbors_and_of_other_seeds_look_unrelated():
    assert LETTERS == "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    asins = [asin_of(0, row) for row in range(3000)]
    for place in range(2, 10):
        assert len({asin[place] for asin in asins}) == 36
    assert not {asin_of(1, row) for row in range(3000)} & set(asins)


WORDS = {"this", "This", "it", "them", "is", "has", "s", "noun", "Brand", "material", "code"}
KINDS = [
    (family, kind) for category in vocabulary().categories for family in category.families for kind in family.kinds
]


def names(template):
    return {name for _, name, _, _ in Formatter().parse(template) if name is not None}


def test_categories_have_their_shares_and_kinds_their_queries():
    shares = {category.name: category.share for category in vocabulary().categories}
    assert tuple(shares) == CATEGORIES
    assert shares == {"beauty": 238, "electronics": 229, "garden": 216, "fashion": 200, "grocery": 117}
    queries = [kind.query for _, kind in KINDS]
    assert len(set(queries)) == len(queries) > 250
    assert all(len(category.families) >= 5 for category in vocabulary().categories)
    assert all(sum(len(family.kinds) for family in category.families) >= 30 for category in vocabulary().categories)


def test_attributes_occur_in_sentences_that_contain_their_words():
    attributes = {attribute for _, kind in KINDS for attribute in kind.attributes}
    assert {attribute.role for attribute in attributes} == set(ROLES)
    for attribute in attributes:
        assert len(attribute.says) >= 2
        words = set(attribute.phrase.split(" "))
        for text in attribute.says:
            words = set(text.lower().replace(".", " ").replace(",", " ").replace(":", " ").replace(";", " ").split())
            assert words & words or attribute.phrase[:5] in text.lower(), (attribute.phrase, text)
        assert attribute.words in attribute.rivals or not attribute.rivals


def test_every_sentence_of_a_kind_can_be_filled_in_and_it_has_enough_of_each():
    for family, kind in KINDS:
        defined = WORDS | {name for name, _, _ in family.numbers}
        says = [text for attribute in kind.attributes for text in attribute.says]
        values = [value for _, source in kind.options for value in source.values]
        for template in [*kind.details, *family.intro, *family.says, *says, *values, *vocabulary().closing]:
            assert names(template) <= defined, template
        assert len(kind.nouns) >= 2
        assert all(len(fitting_styles(kind, noun)) >= 2 for noun in kind.nouns)
        assert len(kind.attributes) >= 6
        assert all(" " in text and text.endswith((".", "?", "!")) for text in (*family.intro, *family.says))
        # Headwords are what bullets may begin with.
        assert all(": " in text for text in family.says)


def test_option_values_differ_and_can_be_clicked_and_instructions_begin_in_thirty_ways():
    for _, kind in KINDS:
        values = [value.lower() for _, source in kind.options for value in source.values]
        assert len(set(values)) == len(values), kind.query
        for name, source in kind.options:
            (values,) = shown_options({name: list(source.values)}).values()
            assert len(set(values)) == len(values)
            assert not set(values) & set(BUTTONS)
            assert not any(letter in value for value in values for letter in "[]\n")
    assert len(set(vocabulary().openers)) >= 30
    for request in vocabulary().requests:
        assert {"thing", "that", "options"} <= names(request) <= {"thing", "that", "options", "it"}


FIELDS = {
    "name": str, "full_description": str, "pricing": str, "images": list, "product_category": str,
    "average_rating": float | str, "small_description": list | str, "customization_options": dict | str, "asin": str,
    "category": str, "query": str, "page": int,
}  # fmt: skip
RIVALS = {
    attribute.phrase: {words.removeprefix("a ").removeprefix("an ") for words in attribute.rivals} - {attribute.phrase}
    for category in vocabulary().categories
    if category.name == "fashion"
    for family in category.families
    for kind in family.kinds
    for attribute in kind.attributes
}


@pytest.fixture(scope="module")
def records():
    return list(generate(2000, 0))


@pytest.fixture(scope="module")
def options(records):
    """What the pages show, of each product."""
    return [shown_options(raw(record.item["customization_options"] or {})) for record in records]


def raw(groups):
    """Return the values of each option group of an item."""
    return {name: contents and [content["value"] for content in contents] for name, contents in groups.items()}


def share(records):
    records = list(records)
    return sum(map(bool, records)) / len(records)


def test_items_have_the_fields_of_the_original(records):
    for record in records:
        assert set(record.item) == set(FIELDS)
        assert all(isinstance(record.item[name], field_type) for name, field_type in FIELDS.items())
        assert re.fullmatch(r"(\$\d+\.\d\d){0,2}", record.item["pricing"])
        assert record.item["product_category"].count("›") in (0, 2, 3)
    assert len({record.item["asin"] for record in records}) == len(records)


def test_nothing_is_left_of_a_template_and_fewer_products_are_the_first_of_more(records):
    for record in records:
        assert not re.search("[{}]", json.dumps([record.item["name"], record.item["full_description"]]))
        assert not re.search("[{}]", json.dumps(record.item["small_description"]))
        assert not re.search("[{}]", record.entry.get("instruction", ""))
    assert list(generate(30, 0)) == records[:30]
    assert next(islice(generate(10**9, 0), 7, None)) == records[7]
    assert list(generate(30, 1)) != records[:30]


def test_products_do_not_depend_on_the_hashes_of_a_process(records):
    code = (
        "import json; from tsr_gym_envs.webshop.generator import generate\n"
        "print(json.dumps([list(record) for record in generate(40, 0)]))"
    )
    here = [list(record) for record in records[:40]]
    assert json.loads(run_python(code, hash_seed="1")) == json.loads(json.dumps(here))


def test_titles_name_a_noun_of_their_kind_and_products_come_in_lines_of_near_duplicates(records):
    nouns = {kind.query: kind.nouns for _, kind in KINDS}
    for record in records:
        assert any(noun in record.item["name"] for noun in nouns[record.item["query"]])
        assert 10 < len(record.item["name"]) <= 220
    heads = Counter((record.item["query"], record.item["name"].split(" ")[0]) for record in records)
    in_lines = sum(count for count in heads.values() if count > 1)
    assert 0.3 < in_lines / len(records) < 0.7


def test_shares_are_near_those_of_the_real_small_set(records, options):
    items = [record.item for record in records]
    near = pytest.approx
    assert share(item["pricing"] == "" for item in items) == near(0.089, abs=0.02)
    assert share(item["pricing"].count("$") == 2 for item in items) == near(0.093, abs=0.02)
    assert share(item["full_description"] == "" for item in items) == near(0.301, abs=0.04)
    described = [item["small_description"] for item in items if item["small_description"] != ""]
    assert share("" in description for description in described) == near(0.07, abs=0.02)
    assert share(item["product_category"] == "" for item in items) == near(0.022, abs=0.01)
    assert share(isinstance(item["small_description"], str) for item in items) == near(0.016, abs=0.01)
    assert share(record.entry["attributes"] == [] for record in records) == near(0.185, abs=0.04)
    groups = Counter(map(len, options))
    assert [groups[count] / len(items) for count in (0, 1, 2, 3)] == near([0.577, 0.245, 0.165, 0.013], abs=0.04)
    assert share("instruction" in record.entry for record in records) == near(0.415, abs=0.05)
    categories = Counter(item["category"] for item in items)
    assert categories["beauty"] / len(items) == near(0.238, abs=0.04)
    assert categories["grocery"] / len(items) == near(0.117, abs=0.03)
    assert len({item["query"] for item in items[:1000]}) == near(246, abs=15)


def test_values_are_at_most_fifty_differ_and_some_are_awkward(options):
    assert all(len(values) >= 2 for groups in options for values in groups.values())
    assert max(sum(map(len, groups.values())) for groups in options) <= 50
    assert 100 < max(prod(map(len, groups.values())) for groups in options) <= 150
    for groups in options:
        values = [value for group in groups.values() for value in group]
        assert len(set(values)) == len(values)
    values = [value for groups in options for group in groups.values() for value in group]
    for mark, least, most in (('"', 0.005, 0.06), (" | ", 0.008, 0.06), ("&", 0.0005, 0.02), ("  ", 0.0002, 0.01)):
        assert least < share(mark in value for value in values) < most, mark
    assert any(not value.isascii() for value in values)


def test_an_instruction_asks_for_the_query_and_some_attributes_of_its_product(records):
    for record in records:
        if "instruction" not in record.entry:
            continue
        text, expected = record.entry["instruction"], record.entry["instruction_attributes"]
        assert text.startswith(tuple(opener + " " for opener in vocabulary().openers))
        assert record.item["query"] in text
        assert 2 <= len(expected) == len(set(expected))
        assert set(expected) <= set(record.entry["attributes"])
        assert all(attribute in text for attribute in expected)
        assert not re.search(r"  |,,| ,|\band and\b|\.$", text)


def test_a_product_is_not_two_things_that_rule_each_other_out(records):
    num_rivals = 0
    for record in records:
        for first, second in combinations(record.entry["attributes"], 2):
            if record.item["category"] == "fashion":
                num_rivals += first in RIVALS
                assert second not in RIVALS.get(first, ())
    assert num_rivals > 100


def test_people_ask_for_attributes_and_options_that_the_product_has(records, options):
    notes = [
        (note, record, groups) for record, groups in zip(records, options, strict=True) for note in record.annotations
    ]
    assert 0.05 < len({note["asin"] for note, _, _ in notes}) / len(records) < 0.2
    for note, record, groups in notes:
        assert note["asin"] == record.item["asin"]
        assert note["attributes"] == record.entry["attributes"][: len(note["attributes"])]
        assert set(note["instruction_attributes"]) <= set(note["attributes"])
        assert note["instruction"] == note["instruction"].lower()
        assert all(attribute in note["instruction"] for attribute in note["instruction_attributes"])
        for option, value in zip(note["options"], note["instruction_options"], strict=True):
            name, _, same = option.partition(": ")
            assert value == same
            assert value in groups[name]
            assert value in note["instruction"]


def test_the_three_files_hold_the_records_and_are_replaced(tmp_path):
    paths = write_catalogue(tmp_path / "new" / "folder", 120, 3)
    records = list(generate(120, 3))
    items, entries, notes = (json.loads(path.read_text(encoding="utf-8")) for path in paths)
    assert [path.name for path in paths] == ["items_shuffle.json", "items_ins_v2.json", "items_human_ins.json"]
    assert items == [record.item for record in records]
    assert entries == {record.item["asin"]: record.entry for record in records}
    assert notes == {record.item["asin"]: record.annotations for record in records if record.annotations}
    write_catalogue(tmp_path, 50, 0)
    items, _, _ = write_catalogue(tmp_path, 0, 0)
    assert json.loads(items.read_text(encoding="utf-8")) == []
    assert all(
        json.loads((tmp_path / name).read_text()) == {} for name in ("items_ins_v2.json", "items_human_ins.json")
    )
    calls = []
    write_catalogue(tmp_path, 2500, 0, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(1000, 2500), (2000, 2500)]


def test_the_importer_reads_every_product(tmp_path):
    write_catalogue(tmp_path / "files", 300, 5)
    catalogue = import_catalogue(tmp_path / "files", tmp_path / "store", with_nouns=False)
    records = list(generate(300, 5))
    assert len(catalogue) == 300
    for row, record in enumerate(records):
        product = catalogue.product(row)
        assert (product.asin, product.title) == (record.item["asin"], record.item["name"])
        assert product.attributes == tuple(record.entry["attributes"])
        assert (catalogue.instruction(row) is not None) == ("instruction" in record.entry)
        assert len(catalogue.annotations(row)) == len(record.annotations)


def open_shop(tmp_path, seed, num_products=1000):
    write_catalogue(tmp_path / "files", num_products, seed)
    store = import_catalogue(tmp_path / "files", tmp_path / "store", with_nouns=False)
    return gym.make("tsr/WebShop-v0", catalogue=str(store.path), max_turns=15).unwrapped


def success(env, shopper, goals):
    return float(np.mean([played.success for played in play(env, shopper, goals)]))


def in_top_ten(env, goals):
    queries = {goal: as_query(env.shop.goals.goal(goal).instruction_text).lower() for goal in goals}
    return float(np.mean([env.shop.goals.row(goal) in env.shop.engine.rows(queries[goal])[:10] for goal in goals]))


def check_bounds(env, goals):
    assert 0.80 <= in_top_ten(env, goals) <= 0.95
    assert 0.30 <= success(env, RuleShopper(), goals) <= 0.60
    assert success(env, FirstHitShopper(), goals) <= 0.10
    assert success(env, OracleShopper(), goals) >= 0.97


def test_the_embedded_catalogue_is_neither_easy_nor_hopeless(tmp_path):
    env = open_shop(tmp_path, seed=0)
    rng = np.random.default_rng(0)
    assert 4500 < len(env.goals) < 8000
    check_bounds(env, rng.permutation(len(env.goals))[:250].tolist())


def test_every_product_that_is_asked_for_can_be_found_and_bought_for_the_full_reward(tmp_path):
    env = open_shop(tmp_path, seed=1, num_products=300)
    goals = {env.shop.goals.row(goal): goal for goal in range(len(env.goals))}
    assert len(goals) > 80
    assert success(env, OracleShopper(), goals.values()) == 1


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(5))
def test_catalogues_of_other_seeds_are_as_hard(seed, tmp_path):
    env = open_shop(tmp_path, seed)
    rng = np.random.default_rng(0)
    check_bounds(env, rng.permutation(len(env.goals))[:1000].tolist())
    # Draws by weight are nearly draws of products; goals without options are more frequent among them.
    drawn = [env.shop.goals.draw(share) for share in rng.random(1000)]
    assert 0.80 <= in_top_ten(env, drawn) <= 0.95
    assert 0.30 <= success(env, RuleShopper(), drawn) <= 0.60
    # On the real small set it is 0.16.
    assert success(env, FirstHitShopper(), drawn) <= 0.12
    assert success(env, OracleShopper(), drawn) >= 0.97
