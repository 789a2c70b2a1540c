"""Nouns of titles: where they come from, and how good the guess is."""

import sys
from collections import Counter
from types import ModuleType, SimpleNamespace

import pytest

from tests.tsr_gym_envs.webshop.small_files import real_products
from tsr_gym_envs.webshop.catalogue import store
from tsr_gym_envs.webshop.catalogue.store import guess_nouns, installed_model, open_nouns, tag_nouns
from tsr_gym_envs.webshop.reward import rate_kind

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


def test_guesses_are_tokens_as_spacy_cuts_them():
    guessed = guess_nouns('Women\'s T-Shirt,Black/White "XL" (2-Pack), 5\'2"x7\'4" w/Hood_')
    assert " ".join(guessed) == "women t shirt black white xl w hood"
    assert guess_nouns("") == guess_nouns("100 % of 3.5 x 12") == ()


def test_repetitions_stay_because_the_original_counts_them():
    assert guess_nouns("Mug and Mug") == ("mug", "mug")


def test_the_callers_own_nouns_come_first():
    find, source = open_nouns(lambda title: [title.upper()])
    assert (find("mug"), source) == (["MUG"], "injected")


def test_without_spacy_the_guess_is_named(monkeypatch):
    monkeypatch.setattr(store, "find_spec", lambda name: None)
    find, source = open_nouns()
    assert (find("Steel Mugs for Tea"), source) == (("steel", "mugs", "tea"), "heuristic")


def test_spacy_without_a_model_is_not_enough(monkeypatch):
    monkeypatch.setattr(store, "find_spec", lambda name: name if name == "spacy" else None)
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
    monkeypatch.setattr(store, "find_spec", lambda name: name if name in ("spacy", "en_core_web_lg") else None)
    store._load.cache_clear()
    find, source = open_nouns()
    assert source == "spacy:en_core_web_lg"
    assert loaded == []  # Loading takes a second, which an episode without a purchase need not pay.
    assert find("Acme blue mug Tea") == ("acme", "mug", "tea")
    assert loaded == [["parser", "ner", "lemmatizer"]]
    assert list(tag_nouns(["mug", "blue"], "en_core_web_lg")) == [("mug",), ()]
    store._load.cache_clear()


def test_nouns_that_the_catalogue_stores_come_before_any_model(monkeypatch):
    stored = SimpleNamespace(meta=SimpleNamespace(nouns="some_model"), title_nouns={"Steel mug": ("mug",)}.get)
    find, source = open_nouns(catalogue=stored)
    assert (find("Steel mug"), find("Glass jug"), source) == (("mug",), ("glass", "jug"), "catalogue")
    without = SimpleNamespace(meta=SimpleNamespace(nouns=None))
    monkeypatch.setattr(store, "find_spec", lambda name: None)
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
