"""The opened index: looking up terms, files on disk, hits and scores."""

import json
import os
import pickle

import numpy as np
import pytest

from tests.conftest import run_python
from tsr_gym import InvalidCorpus
from tsr_gym_envs.lucene_bm25 import BM25Index, Hit
from tsr_gym_envs.lucene_bm25.index import find_term
from tsr_gym_envs.lucene_bm25.layout import DTYPES, META

TERMS = ["a1", "a", "ab", "b", "\xe9", "\u4e2d", "\U0001f600", "zz", "zzz"]


@pytest.fixture
def arrays(tmp_path):
    return BM25Index.build([("0", " ".join([*TERMS, "a1"]))], tmp_path / "index")._arrays


def test_every_term_is_found_at_its_place_in_the_order(arrays):
    # `a` is a stop word.
    present = sorted(set(TERMS) - {"a"}, key=str.encode)
    assert [find_term(arrays, term) for term in present] == list(range(len(present)))
    for absent in ("a", "", "aa", "a11", "\u4e2d\u4e2d", "zzzz", "\U0010ffff"):
        assert find_term(arrays, absent) == -1


def test_a_damaged_table_is_noticed(arrays):
    with pytest.raises(InvalidCorpus, match="terms"):
        find_term(arrays._replace(term_ends=np.full_like(arrays.term_ends, 2**31)), "b")


CORPUS = [(f"id{number}", f"some words of passage {number} " + "filler " * (number % 7)) for number in range(300)]


@pytest.fixture
def folder(tmp_path):
    BM25Index.build(CORPUS, tmp_path / "index")
    return tmp_path / "index"


def change(folder, **values):
    (folder / META).write_text(json.dumps(json.loads((folder / META).read_text()) | values))


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": "x", "version": 1}', "null"])
def test_a_damaged_description_is_refused(folder, text):
    (folder / META).write_text(text)
    with pytest.raises(InvalidCorpus):
        BM25Index.open(folder)


@pytest.mark.parametrize(
    "values",
    [{"version": 99}, {"num_passages": 7}, {"num_terms": 2}, {"digest": "zz"}, {"files": {}}, {"k1": "x"}],
)
def test_a_description_that_does_not_fit_is_refused(folder, values):
    change(folder, **values)
    with pytest.raises(InvalidCorpus):
        BM25Index.open(folder)


@pytest.mark.parametrize("name", DTYPES)
def test_a_missing_truncated_or_longer_file_is_refused(folder, name):
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data + b"0")
    with pytest.raises(InvalidCorpus, match=name):
        BM25Index.open(folder)
    (folder / name).write_bytes(data[:-1])
    with pytest.raises(InvalidCorpus, match=name):
        BM25Index.open(folder)
    (folder / name).unlink()
    with pytest.raises(InvalidCorpus, match=name):
        BM25Index.open(folder)


@pytest.mark.parametrize("name", DTYPES)
def test_a_changed_file_is_compared_with_its_checksum_when_the_index_is_opened_next(folder, name):
    data = (folder / name).read_bytes()
    for place, verify in ((0, False), (len(data) // 2, True)):
        (folder / name).write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(InvalidCorpus, match=f"{name}: is damaged"):
            BM25Index.open(folder, verify=verify)
    (folder / name).write_bytes(data)
    index = BM25Index.open(folder, verify=True)
    assert len(index) == 300
    assert not any(array.flags.writeable for array in index._arrays)


@pytest.mark.parametrize(
    "corpus", [[], [("a", ""), ("b", "the of")], [("x\ud800", "broken \ud800 text"), ("y", "text")]]
)
def test_a_corpus_without_terms_or_with_half_a_character_can_be_searched(tmp_path, corpus):
    with pytest.raises(InvalidCorpus, match=f"{tmp_path}.*wanted a search index"):
        BM25Index.open(tmp_path)
    index = BM25Index.build(corpus, tmp_path / "index")
    assert len(index) == len(corpus)
    words, nothing = index.search(["text \ud800", ""], 3)
    assert ({hit.id for hit in words}, nothing) == ({name for name, text in corpus if "text" in text}, [])


def test_numbers_of_the_description_are_guarded_by_a_checksum_if_it_has_one(folder):
    for name, value in {"k1": 0.8, "b": 0.5, "num_filled": 299, "num_tokens": 7, "digest": "00" * 16}.items():
        sound = (folder / META).read_text()
        change(folder, **{name: value})
        with pytest.raises(InvalidCorpus, match="checksum"):
            BM25Index.open(folder)
        (folder / META).write_text(sound)
    meta = json.loads((folder / META).read_text())
    del meta["checksum"]
    (folder / META).write_text(json.dumps(meta))
    assert len(BM25Index.open(folder)) == 300


@pytest.mark.parametrize("name", DTYPES)
def test_searching_a_garbled_index_ends_in_hits_or_an_error(folder, name):
    rng = np.random.default_rng(0)
    stat = (folder / name).stat()
    queries = [f"words passage {number} filler" for number in range(0, 300, 20)]
    for _ in range(20):
        (folder / name).write_bytes(rng.bytes(stat.st_size))
        # Size and time of change are those of the verified file.
        os.utime(folder / name, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        index = BM25Index.open(folder)
        try:
            found = index.search(queries, 10)
        except InvalidCorpus:
            continue
        assert all(len(hits) <= 10 for hits in found)


SMALL = [
    ("b", "The quick brown fox jumps over the lazy dog"), ("a", "The quick brown fox jumps over the lazy dog"),
    ("empty", ""), ("stop", "the and of"), ("\u4e2d", "\u4e2d\u6587 caf\xe9 \U0001f600"), ("", "Foxes are quick"),
]  # fmt: skip


@pytest.fixture
def small(tmp_path):
    return BM25Index.build(SMALL, tmp_path / "index")


def test_scores_by_hand_and_hits_of_any_query_of_a_small_index(small):
    found = small.search(["lazy dogs"], 5)[0]
    assert [(hit.id, hit.number) for hit in found] == [("a", 1), ("b", 0)]
    assert np.float32(found[0].score) - np.float32(found[1].score) == pytest.approx(1e-6, rel=0.1)
    assert isinstance(found[0], Hit)
    # Four passages have terms, 7 + 7 + 4 + 2 of them; "caf\xe9" stands in one, of 4 terms.
    mean, idf = 20 / 4, np.log(1 + (4 - 1 + 0.5) / (1 + 0.5))
    score = idf * (1 - 1 / (1 + 1 / (0.9 * (0.6 + 0.4 * 4 / mean))))
    assert small.search(["caf\xe9"], 1)[0][0].score == pytest.approx(score, abs=6e-5)
    assert small.search(["", "the of", "xylophone", "  \n"], 3) == [[], [], [], []]
    assert small.search([], 3) == []
    assert small.search(["fox"], 0) == [[]]
    assert {hit.id for hit in small.search(["fox"], 100)[0]} == {"a", "b", ""}
    assert [hit.id for hit in small.search(["\u6587 \U0001f600"], 5)[0]] == ["\u4e2d"]
    assert len(small) == len(SMALL)
    once, thrice = (small.search([query], 1)[0][0].score for query in ("lazy", "lazy lazy lazy"))
    assert thrice == pytest.approx(3 * once, abs=2e-4)


def test_processes_with_other_hash_seeds_and_a_pickle_find_the_same(small):
    hits = small.search(["quick fox", "caf\xe9"], 3)
    again = pickle.loads(pickle.dumps(small))
    assert (again.digest, again.search(["quick fox", "caf\xe9"], 3)) == (small.digest, hits)
    code = (
        "from tsr_gym_envs.lucene_bm25 import BM25Index\n"
        f"index = BM25Index.open({str(small.path)!r})\n"
        "print(index.digest, index.search(['quick fox', 'caf\xe9'], 3))"
    )
    assert run_python(code, hash_seed="1").strip() == f"{small.digest} {hits}"


def test_wrong_arguments_are_refused(small, tmp_path):
    with pytest.raises(ValueError, match="k of at least 0"):
        small.search(["fox"], -1)
    with pytest.raises(TypeError, match="list of queries"):
        small.search("fox", 3)
    for k1, b in ((-1, 0.4), (0.9, 1.1), (float("nan"), 0.4), (float("inf"), 0.4)):
        with pytest.raises(ValueError, match="wanted k1"):
            BM25Index.build(SMALL, tmp_path / "other", k1=k1, b=b)


def product_document(product):
    """Return the text that the shop's search engine indexes of a product of the original's file."""
    bullets = product["small_description"]
    bullets = bullets if isinstance(bullets, list) else [bullets]
    options = {
        name.lower(): [content["value"].strip().replace("/", " | ").lower() for content in contents]
        for name, contents in (product["customization_options"] or {}).items()
        if contents is not None
    }
    text = ", and ".join(f"{name}: {', '.join(values)}" for name, values in options.items())
    return " ".join([product["name"], product["full_description"] or "", bullets[0] if bullets else "", text]).lower()


def test_the_shops_searches_are_lucenes_to_the_last_digit(shared, golden, tmp_path):
    products = json.loads((shared / "data/webshop/items_shuffle_1000.json").read_text(encoding="utf-8"))
    documents = {product["asin"]: product_document(product) for product in products}
    assert all(documents[row["id"]] == row["contents"] for row in golden("webshop/analyzer_docs.jsonl"))
    index = BM25Index.build(documents.items(), tmp_path / "index")
    rows = golden("webshop/search.jsonl")
    for row, hits in zip(rows, index.search([row["query"] for row in rows], 50), strict=True):
        assert [hit.id for hit in hits] == row["asins"], row["query"]
        assert [hit.score for hit in hits] == row["scores"], row["query"]


def test_the_questions_passages_are_pyserinis_to_the_last_digit(shared, golden, tmp_path):
    lines = (shared / "data/retrieval/mini_corpus.jsonl").read_text(encoding="utf-8").splitlines()
    passages = ((row["id"], row["contents"]) for row in map(json.loads, lines))
    index = BM25Index.build(passages, tmp_path / "index")
    rows = golden("retrieval/pyserini_hits.jsonl")
    for row, hits in zip(rows, index.search([row["query"] for row in rows], 10), strict=True):
        # The golden scores were written with six digits.
        assert [[hit.id, round(hit.score, 6)] for hit in hits] == row["hits"], row["query"]
