"""Words as Lucene's tokenizer finds them, and terms as Anserini's analyser makes them."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nltk.stem.porter import PorterStemmer
from uniseg import wordbreak

from tsr_gym_envs.lucene_bm25 import analyse
from tsr_gym_envs.lucene_bm25 import analysis as words
from tsr_gym_envs.lucene_bm25.analysis import MAX_UNITS, split_words, stem

# What Lucene 9.9's StandardTokenizer makes of these.
KNOWN = {
    "3.5mm 1,000 x.y.z l'oreal a_b question:q": ["3.5mm", "1,000", "x.y.z", "l'oreal", "a_b", "question:q"],
    "b-purple 12/13 wi-fi": ["b", "purple", "12", "13", "wi", "fi"],
    "_ __ a_ _1 ._.": ["a_", "_1"],
    "1.a a.1 1:2 1;2 a,b": ["1", "a", "a", "1", "1", "2", "1;2", "a", "b"],
    "don\u2019t a\uff1ab \u2018so\u2019": ["don\u2019t", "a\uff1ab", "so"],
    "\u4e2d\u6587 \u3072\u3089 \u30ab\u30bf\u30ab\u30ca \uac00\ub098": [
        "\u4e2d", "\u6587", "\u3072", "\u3089", "\u30ab\u30bf\u30ab\u30ca", "\uac00\ub098",
    ],
    "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22": ["\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22"],
    "\u2764\ufe0f \u2764 \u2605 \u266f \xae \u2122 \u2713": [
        "\u2764\ufe0f", "\u2764", "\u2605", "\u266f", "\xae", "\u2122",
    ],
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\U0001f44d\U0001f3fd": [
        "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f44d\U0001f3fd",
    ],
    "1\ufe0f\u20e3 #\ufe0f\u20e3 \U0001f1e9\U0001f1ea\U0001f1eb": [
        "1\ufe0f\u20e3", "#\ufe0f\u20e3", "\U0001f1e9\U0001f1ea",
    ],
    '\u05d0"\u05d0 \u05d0\u05d0"\u05d0 \u05d0\'': ['\u05d0"\u05d0', '\u05d0\u05d0"\u05d0', "\u05d0'"],
    "caf\xe9 e\u0301a na\xefve \xb8 a\u02e5": ["caf\xe9", "e\u0301a", "na\xefve", "a"],
    "": [],
    " \n\t": [],
}  # fmt: skip


@pytest.mark.parametrize("text", KNOWN)
def test_words_are_those_of_lucene(text):
    assert split_words(text) == KNOWN[text]


ODD = (
    "aZ09_..::'',,;;\u2019\u2018\u0301\u200d\ufe0f\u20e3\xe9\u0130\u03a3\u05d0\u30ab\u4e2d\u3072\u0e01\u2764\xa9 \n-#*"
)
TEXTS = st.text(st.sampled_from(ODD) | st.characters(exclude_categories=["Cs"]), max_size=40)

# Letters, digits, marks and signs for which Lucene has no special rule.
PLAIN = st.text(
    st.sampled_from("aZ\xe9\u0436\u03b1\uac0009\u0663_.,;:'\u2019\xb7\u0301\u0308\u200d\xad \n-!(\u30ab\u30fc"),
    max_size=40,
)


@given(PLAIN)
def test_words_are_those_of_another_reading_of_the_standard(text):
    segments = [part for part in wordbreak.words(text) if any(unicodedata.category(sign)[0] in "LN" for sign in part)]
    assert split_words(text) == segments


@pytest.mark.parametrize(("unit", "units"), [("a", 1), ("\u0436", 1), ("\U00010428", 2)])
def test_a_long_word_is_cut_where_lucenes_scanner_stops(unit, units):
    most = MAX_UNITS // units
    assert split_words(unit * most) == [unit * most]
    assert split_words(unit * (2 * most + 3)) == [unit * most, unit * most, unit * 3]
    # A joiner at the cut is no part of a word.
    assert split_words("a" * 254 + ".b") == ["a" * 254, "b"]
    assert split_words("a" * 253 + ".b") == ["a" * 253 + ".b"]


@given(st.text(st.characters(max_codepoint=127), max_size=60), TEXTS)
def test_short_cuts_and_cuts_at_blanks_change_no_word(plain, text):
    for given_text in (plain, text):
        assert split_words(given_text) == words._WORD.findall(given_text)
        assert all(term and not any(sign in term for sign in " \n") for term in analyse(given_text))


@pytest.mark.parametrize(
    "unit", ["a.", "1,", "_", "\xe9'", '\u05d0"', "\u2764\u200d", "\u30ab_", "\u200d", "\u0301", "#\u200d"]
)
def test_endless_words_take_no_endless_time(unit):
    pieces = split_words(unit * 20_000)
    assert all(len(piece) <= MAX_UNITS for piece in pieces)


def test_every_golden_query_and_product_text_has_lucenes_terms(golden):
    rows = golden("webshop/search.jsonl")
    assert len(rows) == 229
    assert [row["query"] for row in rows if analyse(row["query"]) != row["analyzed"]] == []
    rows = golden("webshop/analyzer_docs.jsonl")
    assert len(rows) > 30
    assert [row["id"] for row in rows if analyse(row["contents"]) != row["tokens"]] == []


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("The dog's dogs' DOG\u2019S dog\uff07s 's", ["dog", "dog", "dog", "dog", "s"]),
        ("possibly topology assembly geology", ["possibl", "topolog", "assembl", "geologi"]),
        ("revving trekking hopping falling", ["rev", "trek", "hop", "fall"]),
        ("is as by xs ies", ["xs", "i"]),
        # Java lowers letter by letter.
        ("\u039f\u0394\u039f\u03a3 \u0130STANBUL", ["\u03bf\u03b4\u03bf\u03c3", "istanbul"]),
        ("\U00010400\U00010400s", ["\U00010428\U00010428"]),
        ("", []),
    ],
)
def test_terms_are_those_of_anserini(text, terms):
    assert analyse(text) == terms


SUFFIX_LIST = """
s es ies ed ing y ly bly logy logies blies bli logi ation ational eed ness ful ic ical ment e ll er ance al ate blied
blying ably ously ization ings eds ive ity ician
"""
SUFFIXES = SUFFIX_LIST.split()


def porter():
    """Another implementation of what Porter's programs do."""
    return PorterStemmer(mode=PorterStemmer.MARTIN_EXTENSIONS).stem


@given(
    st.text("aeioybdcgklmstvxz1\xe9", max_size=6),
    st.lists(st.sampled_from(SUFFIXES), min_size=1, max_size=3).map("".join),
)
def test_made_up_words_are_stemmed_as_porters_programs_do(start, end):
    assert stem(start + end) == porter()(start + end)


def test_real_words_are_stemmed_as_porters_programs_do(shared):
    lines = (shared / "data" / "retrieval" / "mini_corpus.jsonl").read_text(encoding="utf-8").splitlines()[::7]
    seen = {word for line in lines for word in json.loads(line)["contents"].lower().split()}
    theirs = porter()
    assert len(seen) > 20_000
    assert [word for word in seen if stem(word) != theirs(word)] == []
