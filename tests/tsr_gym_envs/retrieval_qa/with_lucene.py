"""Our BM25 compared with Lucene itself through the Anserini jar; `make test-lucene` runs it with Pyserini.

Terms, order and scores are compared on the real passages and questions, and on made-up texts and corpora.
"""

import json
import pickle
from unicodedata import ucd_3_2_0

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import run_python
from tests.tsr_gym_envs.retrieval_qa.fakes import ROWS, write_rows
from tsr_gym import InvalidCorpus, RetrievalFailed
from tsr_gym_envs.lucene_bm25 import BM25Index, analyse
from tsr_gym_envs.lucene_java import java
from tsr_gym_envs.retrieval_qa.bm25_retriever import BM25Retriever, PyseriniRetriever, build_lucene_index
from tsr_gym_envs.retrieval_qa.corpus import open_corpus
from tsr_gym_envs.retrieval_qa.opensearch_retriever import FILTERS, TOKENIZER

K = 10
# Pieces in which the rules for words, possessives, stop words and stems meet.
TRICKY = """
    the The a is IT's owner's owners' o'clock O’Neil’s rock'n'roll U.S.A. i.e. wi-fi 3.5mm 1,000,000 10:30 foo_bar C++
    C# user@example.org www.example.org naïve Straße İstanbul ﬁne ½ ² Ⅷ 東京都 ひらがな カタカナ 한국어 ไทย עברית
    العربية हिन्दी 👩‍👩‍👧 🇩🇪 é é possibly topology assembly relational conditional biology generalizations
    oscillators flying dying ties caresses agreed plastered sky skies revved
"""
STEMS = (*"bcdfghjklmnpqrstvwxyzaeiou", "ab", "ol", "sky", "tr")
SUFFIXES = """
    ational tional enci anci izer bli abli alli entli eli ousli ization ation ator alism iveness fulness ousness aliti
    iviti biliti logi logy icate ative alize iciti ical ful ness al ance ence er ic able ible ant ement ment ent ion ou
    ism ate iti ous ive ize ed eed ing s es ies sses y ly bly
"""
MADE_UP = st.builds(
    "".join, st.tuples(*(st.sampled_from(STEMS) for _ in range(3)), *(st.sampled_from(["", *SUFFIXES.split()]),) * 2)
)
# Lucene 9 splits by Unicode 12.1, where later characters belong to no word; these are in every version since 3.2.
OLD = st.characters(codec="utf-8").filter(lambda character: ucd_3_2_0.category(character) != "Cn")
PIECES = st.one_of(
    st.sampled_from(TRICKY.split()),
    MADE_UP,
    st.text(OLD, min_size=1, max_size=8),
    st.text("abdeilnorsty'’.-_ ", min_size=1, max_size=14),
)
TEXTS = st.builds(str.join, st.sampled_from([" ", "", ", ", "\n"]), st.lists(PIECES, max_size=12))


def lucene_terms(text):
    """Return the terms of a text by Anserini's own analyser."""
    return listed(java().named("io.anserini.analysis.AnalyzerUtils").analyze(text))


def listed(terms):
    """Return a list of Java's in one call instead of one for each term; no term holds a comma and a space."""
    text = terms.toString()[1:-1]
    return text.split(", ") if text else []


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TSR_GYM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def passages(shared):
    return open_corpus(shared / "data" / "retrieval" / "mini_corpus.jsonl")


@pytest.fixture(scope="module")
def lucene(passages, tmp_path_factory):
    folder = build_lucene_index(passages, tmp_path_factory.mktemp("lucene") / "index")
    return PyseriniRetriever(folder, passages.text)


def test_terms_are_lucenes_on_every_real_passage(passages):
    num_terms, different = 0, []
    for row in passages.rows():
        wanted, found = lucene_terms(row.contents), analyse(row.contents)
        num_terms += len(wanted)
        if found != wanted:
            different.append((row.id, sorted(set(found) ^ set(wanted))))
    assert num_terms == 1_166_411
    assert different == []


@settings(max_examples=5000)
@given(TEXTS)
def test_terms_are_lucenes_on_made_up_texts(text):
    assert analyse(text) == lucene_terms(text)


def test_pyserinis_recorded_results_are_what_lucene_gives_here(lucene, golden):
    rows = golden("retrieval/pyserini_hits.jsonl")
    for row, passages in zip(rows, lucene.retrieve([row["query"] for row in rows], K), strict=True):
        assert [passage.id for passage in passages] == [name for name, _ in row["hits"]]
        assert [passage.score for passage in passages] == pytest.approx([score for _, score in row["hits"]], abs=1e-6)


def test_order_and_scores_are_lucenes_on_every_real_question(lucene, passages, golden):
    queries = [row["query"] for row in golden("retrieval/pyserini_hits.jsonl")]
    assert BM25Retriever(passages.text).retrieve(queries, K) == lucene.retrieve(queries, K)


def test_order_and_scores_are_lucenes_on_made_up_corpora(tmp_path):
    rng = np.random.default_rng(0)
    words = np.array([f"{a}{b}{c}" for a in "bdfklmn" for b in "aeiou" for c in ("r", "nt", "lly", "ss", "king")])
    for trial in range(20):
        count = int(rng.integers(1, 400))
        # A few frequent words and many rare ones; lengths on both sides of where Lucene begins to round them.
        texts = [
            " ".join(words[np.minimum(rng.zipf(1.3, int(rng.integers(0, 300))) - 1, len(words) - 1)])
            for _ in range(count)
        ]
        rows = [{"id": f"p{number}", "contents": text} for number, text in enumerate(texts)]
        corpus = open_corpus(write_rows(tmp_path / f"{trial}.jsonl", rows))
        lucene = PyseriniRetriever(build_lucene_index(corpus, tmp_path / f"lucene{trial}"), corpus.text)
        ours = BM25Index.build(corpus.rows(), tmp_path / f"ours{trial}")
        queries = [" ".join(rng.choice(words, int(rng.integers(1, 9)))) for _ in range(50)]
        for query, mine, wanted in zip(queries, ours.search(queries, K), lucene.retrieve(queries, K), strict=True):
            assert [hit[:2] for hit in mine] == [(passage.id, passage.score) for passage in wanted], (trial, query)


def test_opensearch_is_told_the_steps_of_anserinis_analyser(passages):
    spi = {
        "possessive_english": "englishPossessive",
        "lowercase": "lowercase",
        "stop": "stop",
        "porter_stem": "porterStem",
    }
    builder = java().named("org.apache.lucene.analysis.custom.CustomAnalyzer").builder()
    nothing = java().named("java.util.HashMap")
    builder = builder.withTokenizer(TOKENIZER, nothing())
    for step in FILTERS.values():
        builder = builder.addTokenFilter(spi[step.get("language", step["type"])], nothing())
    # Lucene's stop filter takes the English words by default; that is what OpenSearch calls _english_.
    assert FILTERS["stop_words"]["stopwords"] == "_english_"
    chain, analyze = builder.build(), java().named("io.anserini.analysis.AnalyzerUtils").analyze
    for number in range(0, len(passages), 10):
        contents = passages.row(number).contents
        assert listed(analyze(chain, contents)) == lucene_terms(contents)


def test_an_index_that_stores_its_text_needs_no_corpus(tmp_path):
    arguments = ["-input", "", "-collection", "JsonCollection", "-index", str(tmp_path / "index"), "-storeRaw"]
    indexer = java().named("io.anserini.index.SimpleIndexer")(arguments)
    for row in ROWS:
        assert indexer.addRawDocument(json.dumps(row))
    indexer.close()
    (found,) = PyseriniRetriever(tmp_path / "index").retrieve(["pines"], 3)
    assert [passage[:3] for passage in found] == [("wood", "Wood", "A wood of pines.")]


def test_an_index_without_its_text_says_what_it_needs(tmp_path):
    corpus = open_corpus(write_rows(tmp_path / "corpus.jsonl"))
    folder = build_lucene_index(corpus, tmp_path / "index")
    with pytest.raises(RetrievalFailed, match="stores no text of 'wood'; name the corpus"):
        PyseriniRetriever(folder).retrieve(["pines"], 3)
    other = write_rows(tmp_path / "other.jsonl", ROWS[:1])
    with pytest.raises(RetrievalFailed, match=r"holds 'wood', .* does not"):
        PyseriniRetriever(folder, other).retrieve(["pines"], 3)


def test_what_is_no_lucene_index_is_refused(tmp_path):
    for place in ("nowhere", "."):
        with pytest.raises(InvalidCorpus, match="wanted a Lucene index"):
            PyseriniRetriever(tmp_path / place)


@pytest.mark.parametrize("query", ["", "the", "\x00", "\ud800", "sea " * 5000, " ".join(map(str, range(3000)))])
def test_no_query_is_an_error(lucene, query):
    assert len(lucene.retrieve([query], 3)) == 1


def test_the_digest_stands_for_the_index_and_its_settings(tmp_path):
    path = write_rows(tmp_path / "corpus.jsonl")
    folder = build_lucene_index(open_corpus(path), tmp_path / "index")
    one = PyseriniRetriever(folder, path)
    assert pickle.loads(pickle.dumps(one)).digest == one.digest
    assert PyseriniRetriever(folder, path, k1=1.2, b=0.75).digest != one.digest
    assert PyseriniRetriever(folder).digest != one.digest


def test_torch_and_pyserinis_modules_are_not_imported(tmp_path):
    path = write_rows(tmp_path / "corpus.jsonl")
    build_lucene_index(open_corpus(path), tmp_path / "index")
    code = (
        "import sys\n"
        "from tsr_gym_envs.retrieval_qa.bm25_retriever import PyseriniRetriever\n"
        f"found = PyseriniRetriever({str(tmp_path / 'index')!r}, {str(path)!r}).retrieve(['pines'], 1)\n"
        "print(found[0][0].id, sorted({'torch', 'transformers', 'pyserini'} & set(sys.modules)))"
    )
    assert run_python(code).splitlines()[-1] == "wood []"
