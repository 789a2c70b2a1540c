"""The embedded retriever, whole passages with Lucene's scores; and the dense one where its libraries are missing."""

import json
import pickle
from threading import Thread

import pytest

from tests.conftest import run_python
from tsr_gym import InvalidCorpus, MissingExtra
from tsr_gym_envs.retrieval_qa.bm25_retriever import BM25Retriever
from tsr_gym_envs.retrieval_qa.contract import Passage
from tsr_gym_envs.retrieval_qa.corpus import build_index
from tsr_gym_envs.retrieval_qa.dense_retriever import DenseRetriever, build_dense_index

ROWS = [
    {"id": "sky", "contents": '"Sky"\nThe sky is blue.'},
    {"id": "sea", "contents": '"Sea"\nThe sea is blue, and the sea is deep.'},
    {"id": "wood", "title": "Wood", "text": "A wood of pines."},
]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TSR_GYM_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def test_passages_come_whole_and_best_first(path):
    found = BM25Retriever(path).retrieve(["deep seas", "blue", "pine woods", "nothing at all", "the is a"], 3)
    # Fewer where fewer match: one passage is about pines, none about nothing.
    assert [[passage.id for passage in passages] for passages in found] == [["sea"], ["sky", "sea"], ["wood"], [], []]
    assert found[2][0][:3] == ("wood", "Wood", "A wood of pines.")
    assert found[1][0].score > found[1][1].score > 0
    assert BM25Retriever(path).retrieve([], 3) == []
    assert len(BM25Retriever(path).retrieve(["blue"], 1)[0]) == 1


def test_order_and_scores_on_the_real_corpus_are_pyserinis(shared, golden):
    retriever = BM25Retriever(shared / "data" / "retrieval" / "mini_corpus.jsonl")
    rows = golden("retrieval/pyserini_hits.jsonl")[::10]
    for row, passages in zip(rows, retriever.retrieve([row["query"] for row in rows], 10), strict=True):
        assert [passage.id for passage in passages] == [name for name, _ in row["hits"]]
        assert [passage.score for passage in passages] == pytest.approx([score for _, score in row["hits"]], abs=1e-6)
        assert all(isinstance(passage, Passage) and passage.title for passage in passages)


def test_a_file_and_a_folder_made_of_it_are_the_same_retriever(path, tmp_path):
    one, two = BM25Retriever(path), BM25Retriever(build_index(path, tmp_path / "index"))
    assert one.digest == two.digest
    assert one.retrieve(["blue sea"], 3) == two.retrieve(["blue sea"], 3)


def test_the_digest_knows_what_no_term_shows(path, tmp_path):
    before = BM25Retriever(path).digest
    path.write_text(path.read_text().replace("blue.", "blue!"))
    assert BM25Retriever(path).digest != before


def test_text_and_index_that_do_not_belong_together_are_refused(path, tmp_path):
    folder = build_index(path, tmp_path / "index")
    path.write_text(json.dumps(ROWS[0]))
    other = build_index(path, tmp_path / "other")
    (folder / "bm25").rename(tmp_path / "bm25")
    with pytest.raises(InvalidCorpus):
        BM25Retriever(folder)
    (other / "bm25").rename(folder / "bm25")
    with pytest.raises(InvalidCorpus, match="3 passages but an index of 1"):
        BM25Retriever(folder)


def test_another_process_and_a_copy_find_the_same(path):
    retriever = BM25Retriever(path)
    wanted = retriever.retrieve(["blue sea"], 3)
    assert pickle.loads(pickle.dumps(retriever)).retrieve(["blue sea"], 3) == wanted
    code = (
        "from tsr_gym_envs.retrieval_qa.bm25_retriever import BM25Retriever\n"
        f"retriever = BM25Retriever({str(path)!r})\n"
        "print(retriever.digest, retriever.retrieve(['blue sea'], 3))"
    )
    assert run_python(code, hash_seed="1") == f"{retriever.digest} {wanted}\n"


def test_threads_do_not_get_into_each_others_way(shared, golden):
    retriever = BM25Retriever(shared / "data" / "retrieval" / "mini_corpus.jsonl")
    queries = [row["query"] for row in golden("retrieval/pyserini_hits.jsonl")[:120]]
    wanted = retriever.retrieve(queries, 5)
    found = {}

    def search(start):
        for number in range(start, len(queries), 8):
            found[number] = retriever.retrieve([queries[number]], 5)[0]

    threads = [Thread(target=search, args=(start,)) for start in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[number] for number in range(len(queries))] == wanted


@pytest.mark.parametrize("query", ["\ud800", "\x00", "sky\udfff", "🙂" * 500, "sea " * 5000, "'" * 1000])
def test_no_query_is_an_error(path, query):
    assert len(BM25Retriever(path).retrieve([query], 3)) == 1


@pytest.mark.parametrize("missing", ["sentence_transformers", "faiss"])
def test_what_is_missing_is_named_with_its_extra(tmp_path, monkeypatch, missing):
    monkeypatch.setattr("tsr_gym.optional.find_spec", lambda name: None if name == missing else object())
    for use in (lambda: DenseRetriever(tmp_path), lambda: build_dense_index(tmp_path, tmp_path, "encoder")):
        with pytest.raises(MissingExtra, match=rf"{missing}.*tsr-gym\[dense\]"):
            use()
