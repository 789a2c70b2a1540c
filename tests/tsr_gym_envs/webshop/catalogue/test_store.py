"""The catalogue on disk, and the nouns of its titles."""

import copy
import json
import multiprocessing
import os
import pickle
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from tests.tsr_gym_envs.webshop.shops import item, real_products, write_files
from tsr_gym import InvalidCatalogue
from tsr_gym_envs.webshop.catalogue.opening import import_catalogue
from tsr_gym_envs.webshop.catalogue.store import _load, guess_nouns, installed_model, open_nouns, open_store, tag_nouns
from tsr_gym_envs.webshop.reward import rate_kind

FIND_SPEC = "tsr_gym_envs.webshop.catalogue.store.find_spec"


@pytest.fixture
def store(tmp_path):
    """A store of five products; tests may damage it."""
    items = [item(number, category="garden" if number % 2 else "beauty") for number in range(1, 6)]
    return import_catalogue(write_files(tmp_path / "in", items), tmp_path / "out")


def test_the_real_products_are_found_by_number_and_by_id(real_catalogue, shared):
    expected = real_products(shared)
    assert len(real_catalogue) == real_catalogue.num_products == 1000
    for row, (asin, wanted) in enumerate(expected.items()):
        product = real_catalogue.product(row)
        assert (product.row, product.asin, product.title) == (row, asin, wanted["Title"])
        assert list(product.attributes) == wanted["Attributes"]
        assert real_catalogue.row_of(asin) == row
    assert real_catalogue.row_of("B0NOTHERE0") is None
    assert real_catalogue.row_of("") is None
    # Half a character, as a careless agent may write it.
    assert real_catalogue.row_of("\ud83d") is None
    assert real_catalogue.rows_with("query", "\ud83d") == ()


def test_products_are_found_by_category_and_by_query(real_catalogue, shared):
    expected = list(real_products(shared).values())
    for field in ("category", "query"):
        for value in {product[field] for product in expected}:
            rows = tuple(row for row, product in enumerate(expected) if product[field] == value)
            assert real_catalogue.rows_with(field, value) == rows
        assert real_catalogue.rows_with(field, "nothing") == ()
    with pytest.raises(ValueError, match="wanted the field category or query, got 'row'"):
        real_catalogue.rows_with("row", "1")


def test_a_store_is_shared_in_a_process_and_cannot_be_written(store):
    for row in (-1, 5, 10**12):
        with pytest.raises(IndexError, match=f"wanted a product from 0 to 4, got {row}"):
            store.product(row)
    row = np.int32(3)
    assert store.product(row) == store.product(3)
    assert (store.instruction(row), store.annotations(row)) == (store.instruction(3), ())
    assert type(store.product(np.int64(4)).row) is int
    for array in (store.price_ends, store.stored_prices, store.splits):
        assert not array.flags.writeable
    assert open_store(store.path) is store
    assert copy.deepcopy(store) is store
    assert pickle.loads(pickle.dumps(store)) is store
    assert len(pickle.dumps(store)) < 1000
    meta = json.loads((store.path / "store.json").read_text())
    (store.path / "store.json").write_text(json.dumps({**meta, "format": 99}))
    with pytest.raises(InvalidCatalogue, match=r"wanted format 1 in .*, got 99: import the catalogue again"):
        open_store(store.path)


def _read(store, rows, out):
    out.put([store.product(row).asin for row in rows])


def test_a_forked_process_reads_on(real_catalogue):
    rows = range(0, 1000, 7)
    expected = [real_catalogue.product(row).asin for row in rows]
    real_catalogue._product.cache_clear()
    fork = multiprocessing.get_context("fork")
    out = fork.Queue()
    children = [fork.Process(target=_read, args=(real_catalogue, rows, out)) for _ in range(3)]
    for child in children:
        child.start()
    assert all(out.get(timeout=60) == expected for _ in children)
    for child in children:
        child.join()
    real_catalogue._product.cache_clear()
    assert [real_catalogue.product(row).asin for row in rows] == expected


def test_threads_read_at_the_same_time(real_catalogue):
    expected = [real_catalogue.product(row).asin for row in range(1000)]
    # Threads that share a connection disturb each other in some rounds only.
    for _ in range(5):
        real_catalogue._product.cache_clear()
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(lambda row: real_catalogue.product(row).asin, [*range(1000)] * 3)) == expected * 3
    assert len(set(expected)) == 1000


def test_a_store_that_was_replaced_is_seen_when_it_is_opened_again(tmp_path):
    out = tmp_path / "out"
    old = import_catalogue(write_files(tmp_path / "a", [item(1, name="Old")]), out)
    import_catalogue(write_files(tmp_path / "b", [item(1, name="New")]), out)
    assert open_store(out).product(0).title == "New"
    assert old.digest != open_store(out).digest


def _damaged(name, change):
    def damage(store):
        path = (store.path if name == "store.json" else store.data) / name
        change(path)

    return damage


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_damaged("store.json", lambda path: path.unlink()), "no catalogue in .*tsr webshop import"),
        (_damaged("store.json", lambda path: path.write_text("{")), r"store\.json is damaged"),
        (_damaged("store.json", lambda path: path.write_text('{"format": 1}')), r"store\.json is damaged"),
        (_damaged("store.json", lambda path: path.write_text("[]")), r"store\.json is damaged"),
        (_damaged("products.sqlite", lambda path: path.unlink()), r"bytes in .*products\.sqlite, got no such file"),
        (_damaged("products.sqlite", lambda path: os.truncate(path, 5000)), "got 5000 bytes: import"),
        (_damaged("stored_prices.npy", lambda path: os.truncate(path, 130)), r"stored_prices\.npy, got 130 bytes"),
        (_damaged("splits.npy", lambda path: path.write_bytes(b"x" * path.stat().st_size)), r"splits\.npy is missing"),
        # A bracket without its end is another kind of error where Numpy reads it.
        (
            _damaged("splits.npy", lambda path: path.write_bytes(path.read_bytes().replace(b"}", b" ", 1))),
            r"splits\.npy is missing or",
        ),
    ],
)
def test_a_damaged_store_is_refused_when_it_is_opened(tmp_path, damage, message):
    store = import_catalogue(write_files(tmp_path / "in", [item(1)]), tmp_path / "made")
    # Under another name, because this process has the store open.
    store.path.rename(tmp_path / "moved")
    damage(open_store(tmp_path / "moved"))
    (tmp_path / "moved").rename(tmp_path / "again")
    with pytest.raises(InvalidCatalogue, match=message):
        open_store(tmp_path / "again")


def test_damage_inside_the_file_is_reported_with_the_product(store):
    path = store.data / "products.sqlite"
    whole = path.read_bytes()
    assert whole.count(b'["Soft Shirt"') == 5
    path.write_bytes(whole.replace(b'["Soft Shirt"', b'["Soft Shirt['))
    with pytest.raises(InvalidCatalogue, match=r"product B000000002 is damaged: .* import the catalogue again"):
        store.product(1)
    path.write_bytes(b"\xff" * len(whole))
    with pytest.raises(InvalidCatalogue, match=r"products\.sqlite is damaged"):
        store.row_of("B000000003")


POWER_CORD = "Saireed UL Listed 2 Prong Power Cord for JBL Bar 3.1 Bar 2.1 Channel 4K Ultra HD Soundbar"
OTHER_CORD = (
    "BRST AC Power Cord Outlet Socket Cable Plug Lead for Panasonic SC-HT830V DVD/VCR Combo Home Theater System"
)
KNOB = "Rusticware 921ORB Kitchen and Bath Cabinet Knob"
TWEEZERS = "Minkissy 2pcs Stainless Steel Eyebrow Tweezers Blackhead Acne Remover Portable Makeup Tweezers (Silver)"


@pytest.mark.parametrize(
    ("wanted", "bought", "title_score"),
    # What spaCy's large model makes of these titles.
    [
        (f"{POWER_CORD} Home Theater System Subwoofer", OTHER_CORD, 0.3),
        (POWER_CORD, OTHER_CORD, 0.15),
        (KNOB, TWEEZERS, 0),
    ],
)
def test_guesses_give_the_title_scores_of_the_large_model(wanted, bought, title_score):
    nouns_of_title = guess_nouns(wanted)
    assert len(set(nouns_of_title) & set(guess_nouns(bought))) / len(nouns_of_title) == pytest.approx(
        title_score, abs=0.01
    )


def test_nouns_are_guessed_as_spacy_cuts_tokens_and_the_guess_is_named(monkeypatch):
    guessed = guess_nouns('Women\'s T-Shirt,Black/White "XL" (2-Pack), 5\'2"x7\'4" w/Hood_')
    assert " ".join(guessed) == "women t shirt black white xl w hood"
    assert guess_nouns("") == guess_nouns("100 % of 3.5 x 12") == ()
    assert guess_nouns("Mug and Mug") == ("mug", "mug")
    find, source = open_nouns(lambda title: [title.upper()])
    assert (find("mug"), source) == (["MUG"], "injected")
    monkeypatch.setattr(FIND_SPEC, lambda name: None)
    find, source = open_nouns()
    assert (find("Steel Mugs for Tea"), source) == (("steel", "mugs", "tea"), "heuristic")
    monkeypatch.setattr(
        "tsr_gym_envs.webshop.catalogue.store.find_spec", lambda name: name if name == "spacy" else None
    )
    assert installed_model() is None
    assert open_nouns()[1] == "heuristic"


def fake_model(loaded):
    """A model that tags capitals as proper nouns and "mug" as a noun."""

    def pipe(titles):
        for title in titles:
            words = title.split()
            tags = ["PROPN" if word.istitle() else "NOUN" if word == "mug" else "ADJ" for word in words]
            yield [SimpleNamespace(text=word, pos_=tag) for word, tag in zip(words, tags, strict=True)]

    def load(exclude):
        loaded.append(exclude)
        return SimpleNamespace(pipe=pipe)

    module = ModuleType("en_core_web_lg")
    module.load = load
    return module


def test_with_spacy_and_a_model_nouns_and_proper_nouns_count(monkeypatch):
    loaded = []
    monkeypatch.setitem(sys.modules, "en_core_web_lg", fake_model(loaded))
    monkeypatch.setattr(
        "tsr_gym_envs.webshop.catalogue.store.find_spec",
        lambda name: name if name in ("spacy", "en_core_web_lg") else None,
    )
    _load.cache_clear()
    find, source = open_nouns()
    assert (source, loaded) == ("spacy:en_core_web_lg", [])
    assert find("Acme blue mug Tea") == ("acme", "mug", "tea")
    assert loaded == [["parser", "ner", "lemmatizer"]]
    assert list(tag_nouns(["mug", "blue"], "en_core_web_lg")) == [("mug",), ()]
    _load.cache_clear()


def test_nouns_that_the_catalogue_stores_come_before_any_model(monkeypatch):
    stored = SimpleNamespace(meta=SimpleNamespace(nouns="some_model"), title_nouns={"Steel mug": ("mug",)}.get)
    find, source = open_nouns(catalogue=stored)
    assert (find("Steel mug"), find("Glass jug"), source) == (("mug",), ("glass", "jug"), "catalogue")
    without = SimpleNamespace(meta=SimpleNamespace(nouns=None))
    monkeypatch.setattr(FIND_SPEC, lambda name: None)
    assert open_nouns(catalogue=without)[1] == "heuristic"


@pytest.mark.deep
def test_the_real_small_model_agrees_with_the_guess_on_most_words_and_kinds(shared, golden):
    pytest.importorskip("spacy")
    model = installed_model()
    if model is None:
        pytest.skip("no spaCy model is installed")
    products = real_products(shared)
    titles = [product["name"] for product in products.values()]
    tagged = dict(zip(titles, tag_nouns(titles, model), strict=True))
    guessed = {title: guess_nouns(title) for title in titles}
    both = sum((Counter(guessed[title]) & Counter(tagged[title])).total() for title in titles)
    assert both / sum(map(len, guessed.values())) > 0.94
    assert both / sum(map(len, tagged.values())) > 0.96

    def r_type(first, second, noun_fn):
        return rate_kind(products[first], products[second], noun_fn.__getitem__, symmetric=True).r_type

    hits = [row["asins"][:11] for row in golden("webshop/search.jsonl")]
    pairs = {
        pair for best, *others in filter(None, hits) for other in others for pair in ((best, other), (other, best))
    }
    agreed = sum(r_type(*pair, guessed) == r_type(*pair, tagged) for pair in pairs)
    assert agreed / len(pairs) > 0.92
