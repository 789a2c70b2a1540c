import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nltk.stem.porter import PorterStemmer

from tsr_gym_envs.lucene_bm25 import analyse
from tsr_gym_envs.lucene_bm25.analysis import stem


def test_every_golden_query_has_lucenes_terms(golden):
    rows = golden("webshop/search.jsonl")
    assert len(rows) == 229
    assert [row["query"] for row in rows if analyse(row["query"]) != row["analyzed"]] == []


def test_every_golden_product_text_has_lucenes_terms(golden):
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


@given(st.text(max_size=60))
def test_any_text_has_terms_without_blanks(text):
    assert all(term and not any(sign in term for sign in " \n") for term in analyse(text))
