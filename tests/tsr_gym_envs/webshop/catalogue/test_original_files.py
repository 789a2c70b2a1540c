"""The original's files and its random numbers."""

import json
import random
import string
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tsr_gym_envs.webshop.shops import ANNOTATION, ENTRY, ITEM, item, real_products, write_files
from tsr_gym import InvalidCatalogue
from tsr_gym_envs.webshop.catalogue import original_files
from tsr_gym_envs.webshop.catalogue.original_files import (
    Annotation,
    Entry,
    Instruction,
    find_files,
    read_annotations,
    read_attributes,
    read_entries,
    read_items,
    read_products,
)
from tsr_gym_envs.webshop.catalogue.original_random import (
    NO_TIER,
    draw_name,
    draw_order,
    draw_price,
    draw_rows,
    draw_tier,
    generator_of,
    limit_of,
    limit_text,
    stored_price,
    stored_tier,
    tiers_above,
)
from tsr_gym_envs.webshop.catalogue.product import document_of

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture(params=[1, 2, 7, 1 << 20])
def chunk(request, monkeypatch):
    """Read so many characters at a time."""
    monkeypatch.setattr(original_files, "_CHUNK", request.param)
    return request.param


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("json") / "file.json"


@given(values=st.lists(VALUES, max_size=6), indent=st.sampled_from([None, 0, 3]), ascii_only=st.booleans())
@pytest.mark.parametrize("size", [1, 5, 1 << 20])
def test_the_items_of_a_list_are_those_of_json(path, values, indent, ascii_only, size):
    path.write_bytes(json.dumps(values, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "replace"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(original_files, "_CHUNK", size)
        assert list(read_items(path)) == json.loads(path.read_bytes())


@given(values=st.dictionaries(st.text(max_size=8), VALUES, max_size=6))
def test_the_entries_of_an_object_are_those_of_json(path, values):
    path.write_text(json.dumps(values), encoding="utf-8")
    assert dict(read_entries(path)) == values


def test_every_cut_of_a_file_is_refused_with_its_name(path, chunk):
    whole = json.dumps([{"a": [1, 2.5, "x,]}"]}, {"b": None}])
    for length in range(len(whole)):
        path.write_text(whole[:length], encoding="utf-8")
        with pytest.raises(InvalidCatalogue, match=r"file\.json: .*"):
            list(read_items(path))
    path.write_text(json.dumps({"a": 1, "b": [2]})[:-1], encoding="utf-8")
    with pytest.raises(InvalidCatalogue, match="ends too early, wanted ','"):
        list(read_entries(path))


def test_items_before_the_damage_are_still_read(path, chunk):
    path.write_text('[1, {"a": 2}, {"a": oops}, 4]', encoding="utf-8")
    read = []
    with pytest.raises(InvalidCatalogue, match=r"damaged, or the file ends too early: .* \(at character 14\)"):
        read.extend(read_items(path))
    assert read == [1, {"a": 2}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "ends too early, wanted '\\['"), ('{"a": 1}', "wanted '\\[', got '{"), ("[1 2]", "wanted ',', got '2"),
        ("[1] 2", "wanted the end of the file, got '2'"), ("[1,]", "damaged"), ("[" * 100_000, "damaged"),
    ],
)  # fmt: skip
def test_what_is_no_list_is_refused(path, text, message):
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidCatalogue, match=message):
        list(read_items(path))


def test_keys_are_texts_and_other_bytes_are_refused(path, tmp_path):
    path.write_text("{1: 2}", encoding="utf-8")
    with pytest.raises(InvalidCatalogue, match="wanted a key in quotes, got 1"):
        list(read_entries(path))
    path.write_bytes(b'["a", "\xff"]')
    with pytest.raises(InvalidCatalogue, match="not UTF-8"):
        list(read_items(path))
    with pytest.raises(InvalidCatalogue, match=r"cannot read .*gone\.json"):
        list(read_items(tmp_path / "gone.json"))


def test_progress_counts_bytes_and_a_value_without_end_is_not_read_to_the_end_of_the_file(path, chunk, monkeypatch):
    path.write_text(json.dumps(["\u2603" * 50] * 40, ensure_ascii=False), encoding="utf-8")
    seen = []
    list(read_items(path, lambda done, size: seen.append((done, size))))
    size = path.stat().st_size
    assert (seen[-1], seen) == ((size, size), sorted(seen))
    monkeypatch.setattr(original_files, "_CHUNK", 100)
    monkeypatch.setattr(original_files, "MAX_VALUE", 1000)
    path.write_text('[1, "' + "x" * 1_000_000, encoding="utf-8")
    seen = []
    with pytest.raises(InvalidCatalogue):
        list(read_items(path, lambda done, size: seen.append(done)))
    assert max(seen) < 100_000


@pytest.fixture
def loaded(tmp_path):
    """Write items and return the products that are read from them."""

    def load(*items, **keywords):
        return list(read_products(write_files(tmp_path, list(items)) / "items_shuffle.json", **keywords))

    return load


def test_the_real_products_and_texts_are_those_of_an_independent_reader(shared, golden):
    expected = real_products(shared)
    products = list(read_products(shared / "data" / "webshop" / "items_shuffle_1000.json"))
    assert [product.asin for product in products] == list(expected)
    assert [product.row for product in products] == list(range(1000))
    for product in products:
        wanted, ours = expected[product.asin], product.as_original()
        for field in ("Title", "Description", "BulletPoints", "options", "query", "category", "product_category"):
            assert ours[field] == wanted[field], (product.asin, field)
        assert product.image == wanted["images"][0]
    path = shared / "data" / "webshop" / "items_shuffle_1000.json"
    products = {product.asin: product for product in read_products(path)}
    for row in golden("webshop/analyzer_docs.jsonl"):
        assert document_of(products[row["id"]]) == row["contents"]


def test_a_record_becomes_a_product(loaded):
    (product,) = loaded(item())
    assert (product.title, product.query) == ("Soft Shirt", "men's shirts")
    assert product.options == (("size", ("s", "m | l")),)
    assert product.bullets == ("Cotton ", "")
    assert (product.price_text, product.prices) == ("$12.99", (12.99,))
    assert document_of(product) == "soft shirt a shirt. cotton  size: s, m | l"


def test_products_that_the_original_skips_are_skipped(loaded):
    items = [item(1), item(asin="nan"), item(2), item(asin="B0123456789"), item(1, name="Again"), item(3)]
    read = loaded(*items)
    titles = [(product.row, product.asin[-1], product.title) for product in read]
    assert titles == [(row, str(row + 1), "Soft Shirt") for row in range(3)]
    # The first four of the list, two of which are skipped.
    assert [product.asin[-1] for product in loaded(*items, num_products=4)] == ["1", "2"]


@pytest.mark.parametrize(
    ("pricing", "text", "prices"),
    [
        ("$12.99", "$12.99", (12.99,)), ("$8", "$8.0", (8.0,)), ("$10.71$18.34", "$10.71 to $18.34", (10.71, 18.34)),
        ("$10.71 - $1,018.34", "$10.71 to $1018.34", (10.71, 1018.34)), ("from $5", "$5.0", (5.0,)),
        ("$1$2$3", "$1.0 to $2.0", (1.0, 2.0)), ("", "$100.0", (100.0,)), (None, "$100.0", (100.0,)),
    ],
)  # fmt: skip
def test_prices_are_read_as_the_original_reads_them(loaded, pricing, text, prices):
    (product,) = loaded(item(pricing=pricing))
    assert (product.price_text, product.prices) == (text, prices)


@pytest.mark.parametrize(
    ("options", "groups"),
    [
        ("", ()),
        (None, ()),
        ({}, ()),
        ({"Color": None}, ()),
        ({"Color": []}, (("color", ()),)),
        ({"Size": [{"value": " A/B "}, {"value": "a / b"}]}, (("size", ("a | b", "a  |  b")),)),
        # One name in two spellings: the later values, at the place of the first.
        (
            {"Size": [{"value": "1"}], "x": [{"value": "y"}], "size": [{"value": "2"}]},
            (("size", ("2",)), ("x", ("y",))),
        ),
    ],
)
def test_options_are_read_as_the_original_reads_them(loaded, options, groups):
    assert loaded(item(customization_options=options))[0].options == groups


def test_odd_products_keep_their_texts_and_half_a_character_is_replaced(loaded):
    empty = {"full_description": "", "images": [], "product_category": ""}
    odd = item(name='<b>"5\' & more"</b> \U0001f600 \ufffd', small_description="one bullet", **empty)
    (product,) = loaded(odd)
    assert product.title == odd["name"]
    assert (product.description, product.bullets, product.image) == ("", ("one bullet",), "")
    # Written as an escape, which is valid JSON and no text that could be shown.
    assert loaded(item(name="a\ud83d b"))[0].title == "a\ufffd b"


TEXTS = ["name", "full_description", "small_description", "images", "product_category", "category", "query"]


@pytest.mark.parametrize("field", [*TEXTS, "customization_options"])
def test_a_missing_field_is_named_with_its_product_and_file(loaded, field):
    record = item(7)
    del record[field]
    message = rf"items_shuffle\.json, product B000000007: the field '{field}' is missing"
    with pytest.raises(InvalidCatalogue, match=message):
        loaded(item(1), record)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", None), ("full_description", 5), ("small_description", [1]), ("small_description", None),
        ("images", "x.jpg"), ("images", [None]), ("category", ["fashion"]), ("query", {}), ("pricing", "free"),
        ("pricing", "$"), ("pricing", "$1.2.3"), ("pricing", 12.99), ("pricing", "$" + "9" * 400),
        ("customization_options", ["size"]), ("customization_options", {"size": "s"}),
        ("customization_options", {"size": ["s"]}), ("customization_options", {"size": [{"image": None}]}),
    ],
)  # fmt: skip
def test_a_damaged_field_is_named_with_its_product(loaded, field, value):
    with pytest.raises(InvalidCatalogue, match=f"product B000000007: wanted .* '{field}', got"):
        loaded(item(7, **{field: value}))


@pytest.mark.parametrize("record", ["text", None, {"name": "no id"}, {**ITEM, "asin": 5}])
def test_a_record_without_an_id_is_named_by_its_number(tmp_path, record):
    (tmp_path / "items_shuffle.json").write_text(json.dumps([ITEM, record]), encoding="utf-8")
    with pytest.raises(InvalidCatalogue, match=r"items_shuffle\.json, item 1: "):
        list(read_products(tmp_path / "items_shuffle.json"))


def test_entries_and_annotations_hold_attributes(tmp_path):
    entries = {"A": ENTRY, "B": {"attributes": []}, "C": {"attributes": ["x"], "instruction": None}, "D": {}}
    write_files(tmp_path, [], entries)
    assert list(read_attributes(tmp_path / "items_ins_v2.json")) == [
        ("A", Entry(("soft",), Instruction("Find me soft shirts", ("soft",)))),
        ("B", Entry((), None)),
        ("C", Entry(("x",), None)),
        ("D", Entry(("DUMMY_ATTR",), None)),
    ]
    empty = {**ANNOTATION, "instruction_attributes": []}
    write_files(tmp_path, [], {}, {"A": [empty, ANNOTATION], "B": [empty]})
    assert list(read_annotations(tmp_path / "items_human_ins.json")) == [
        ("A", (Annotation("i want a soft shirt.", ("soft",), ("s",)),)),
        ("B", ()),
    ]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (5, "wanted an object, got 5"),
        ({"attributes": "soft"}, "wanted a list as 'attributes'"),
        ({"attributes": [None]}, "wanted text as 'attributes', got None"),
        ({**ENTRY, "instruction": 5}, "wanted text as 'instruction'"),
        ({**ENTRY, "instruction_attributes": []}, "wanted at least one attribute as 'instruction_attributes'"),
        ({"attributes": [], "instruction": "x"}, "the field 'instruction_attributes' is missing"),
    ],
)
def test_a_damaged_entry_is_named_with_its_product(tmp_path, entry, message):
    write_files(tmp_path, [], {"B1": entry})
    with pytest.raises(InvalidCatalogue, match=rf"items_ins_v2\.json, product B1: {message}"):
        list(read_attributes(tmp_path / "items_ins_v2.json"))


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        ({}, "product B1: wanted a list as 'annotations'"),
        ([5], "product B1, annotation 0: wanted an object, got 5"),
        ([ANNOTATION, {**ANNOTATION, "instruction_options": None}], "annotation 1: .* 'instruction_options'"),
    ],
)
def test_a_damaged_annotation_is_named_with_its_product(tmp_path, annotation, message):
    write_files(tmp_path, [], {}, {"B1": annotation})
    with pytest.raises(InvalidCatalogue, match=message):
        list(read_annotations(tmp_path / "items_human_ins.json"))


def test_the_whole_set_is_preferred_and_missing_or_ambiguous_files_are_reported(tmp_path):
    for wanted in (r"there is no .*gone", r"wanted a file items_shuffle\*\.json in .*, got \[\]"):
        with pytest.raises(InvalidCatalogue, match=wanted):
            find_files(tmp_path / "gone" if "gone" in wanted else tmp_path)
    for name, wanted in (("1", r"wanted a file items_ins_v2\*\.json"), ("2", r"wanted one file .* name the files")):
        (tmp_path / f"items_shuffle_{name}.json").touch()
        with pytest.raises(InvalidCatalogue, match=wanted):
            find_files(tmp_path)
    for name in ("items_shuffle", "items_shuffle_1000", "items_ins_v2", "items_ins_v2_1000"):
        (tmp_path / f"{name}.json").touch()
    files = find_files(tmp_path)
    assert (files.products.name, files.instructions.name) == ("items_shuffle.json", "items_ins_v2.json")
    assert files.annotations is None
    small = find_files([tmp_path / "items_shuffle_1000.json", tmp_path / "items_ins_v2_1000.json"])
    assert (small.products.name, small.instructions.name) == ("items_shuffle_1000.json", "items_ins_v2_1000.json")


@pytest.mark.parametrize("place", ["page", "customization_options", "pricing", "name"])
def test_a_number_that_is_too_long_to_read_is_named(tmp_path, place):
    path = write_files(tmp_path, [item(0), {**item(1), place: "LONG"}]) / "items_shuffle.json"
    path.write_text(path.read_text().replace('"LONG"', "1" * 5000))
    with pytest.raises(InvalidCatalogue, match=r"items_shuffle\.json: .*5000 digits.*\(at character"):
        list(read_products(path))


@pytest.fixture
def global_random():
    """Python's global generator, put back afterwards."""
    state = random.getstate()
    yield random
    random.setstate(state)


@pytest.mark.parametrize("count", [0, 1, 2, 13, 6910])
def test_goals_are_shuffled_as_a_list_is(global_random, count):
    expected = list(range(count))
    global_random.seed(233)
    global_random.shuffle(expected)
    order, dice = draw_order(count)
    assert order.tolist() == expected
    assert dice == global_random.getstate()


def test_the_order_of_the_real_goals_is_the_golden_one(shared):
    row = json.loads((shared / "golden" / "webshop" / "rng_reset_sequence.json").read_text())
    assert draw_order(6910)[0][:50].tolist() == row["perm_head"]
    assert sorted(draw_rows(generator_of(1), 7)) == list(range(7))


def test_names_and_rows_are_drawn_as_the_original_draws_them(global_random):
    global_random.seed(7)
    ours = generator_of(7)
    products = list(range(1000))
    for _ in range(5):
        assert draw_name(ours) == "".join(global_random.choices(string.ascii_lowercase, k=10))
        assert draw_rows(ours, 1000) == tuple(global_random.sample(products, k=50))
    assert ours.getstate() == global_random.getstate()


def test_a_state_continues_where_it_was_taken_and_the_global_generator_is_left_alone(global_random):
    before = global_random.getstate()
    generator = generator_of(3)
    generator.random()
    state = generator.getstate()
    expected = [generator.random() for _ in range(3)]
    again = generator_of(state)
    assert [again.random() for _ in range(3)] == expected
    assert global_random.getstate() == before


ASINS = [f"B{number:09d}" for number in range(3000)]


def test_tiers_and_limits_of_prices_are_the_originals(golden):
    for row in golden("webshop/price_tiers.jsonl"):
        assert [limit_of(tier) for tier in tiers_above(row["price"])] == row["candidates"]
        assert (stored_tier(row["price"], "B1") != NO_TIER) == row["has_upper"]
    everything = [10.0 * tier for tier in range(1, 100)]
    draw = random.Random(1)
    for price in [*(draw.uniform(0, 1100) for _ in range(5000)), *everything, 0.0, 29.999999999999996]:
        assert [limit_of(tier) for tier in tiers_above(price)] == [tier for tier in everything if tier > price][:4]
    assert limit_text(6) == ", and price lower than 60.00 dollars"
    assert (limit_text(NO_TIER), limit_of(NO_TIER)) == ("", 1_000_000)


def test_prices_and_limits_are_drawn_as_the_original_draws_them():
    ours, theirs = generator_of(5), random.Random(5)
    for price in (3.5, 55.5, 975.0, 980.0, 2000.0, 12.0):
        assert draw_price(price, 2 * price, ours) == theirs.uniform(price, 2 * price)
        candidates = [limit for limit in (10.0 * tier for tier in range(1, 100)) if limit > price][:4]
        if len(candidates) >= 2:
            assert limit_of(draw_tier(price, ours)) == sorted(theirs.sample(candidates, 2))[1]
        else:
            assert draw_tier(price, ours) == NO_TIER
    assert ours.getstate() == theirs.getstate()


def test_stored_prices_and_limits_are_spread_as_in_the_original():
    prices = [stored_price(asin, (10.0, 20.0)) for asin in ASINS]
    assert all(10 <= price <= 20 and round(price, 2) == price for price in prices)
    # Within four standard errors of a uniform draw.
    assert sum(prices) / len(prices) == pytest.approx(15, abs=4 * 10 / 12**0.5 / len(prices) ** 0.5)
    assert max(b - a for a, b in pairwise(sorted(prices))) < 0.1
    assert stored_price("B1", (12.345,)) == 12.345
    drawn = Counter(stored_tier(55.5, asin) for asin in ASINS)
    # The larger of two among four: never the first, then 1, 2 and 3 of 6 pairs.
    assert sorted(drawn) == [7, 8, 9]
    for tier, share in ((7, 1 / 6), (8, 2 / 6), (9, 3 / 6)):
        assert drawn[tier] / len(ASINS) == pytest.approx(share, abs=4 * (share * (1 - share) / len(ASINS)) ** 0.5)
    assert all(limit_of(stored_tier(price, "B1", 3)) > price for price in (1.0, 10.0, 960.0, 980.0, 5000.0))
    assert len({tuple(stored_tier(55.5, asin, number) for asin in ASINS[:50]) for number in range(3)}) == 3
