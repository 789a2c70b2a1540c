"""The best passages, compared with a scoring of every passage."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tsr_gym_envs.lucene_bm25.oracles import NaiveBM25
from tsr_gym_envs.lucene_bm25 import BM25Index
from tsr_gym_envs.lucene_bm25.top import id_before, offer, rank

IDS = ["b", "a", "aa", "ab", "", "\u4e2d", "z", "10", "9", "\U0001f600"]
NAMES = [name.encode() for name in IDS]
ENDS, DATA = np.cumsum([0, *map(len, NAMES)]), np.frombuffer(b"".join(NAMES), np.uint8)


def test_ids_are_compared_byte_by_byte():
    for one in range(len(IDS)):
        for other in range(len(IDS)):
            assert id_before(ENDS, DATA, one, other) == (NAMES[one] < NAMES[other])


@given(st.permutations(range(len(IDS))), st.lists(st.integers(0, 3), min_size=10, max_size=10), st.integers(1, 12))
def test_the_heap_keeps_the_best_in_any_order_of_arrival(order, scores, most):
    passages, kept, size = np.zeros(most, np.int64), np.zeros(most, np.float32), 0
    for passage in order:
        size = offer(ENDS, DATA, passages, kept, size, passage, np.float32(scores[passage]))
    rank(ENDS, DATA, passages, kept, size)
    wanted = sorted(range(len(IDS)), key=lambda passage: (-scores[passage], NAMES[passage]))[:most]
    assert passages[:size].tolist() == wanted
    assert kept[:size].tolist() == [scores[passage] for passage in wanted]


# Sizes that cover several windows and, for the most frequent words, many blocks.
NUM = 9000


def corpus(seed, num=NUM, vocabulary=60):
    """Return passages of few words, so that many scores are equal, with ids in no order."""
    rng = np.random.default_rng(seed)
    names = rng.permutation(num)
    lengths = rng.integers(0, 9, num)
    ranks = (vocabulary * rng.random((num, 9)) ** 3).astype(int)
    texts = [" ".join(f"w{rank}" for rank in row[:length]) for row, length in zip(ranks, lengths, strict=True)]
    return [(str(name), text) for name, text in zip(names, texts, strict=True)]


@pytest.fixture(scope="module", params=[0, 1])
def both(request, tmp_path_factory):
    passages = corpus(request.param)
    path = tmp_path_factory.mktemp("index") / "bm25"
    return BM25Index.build(passages, path), NaiveBM25(passages)


QUERY = st.lists(st.integers(0, 62).map("w{}".format), min_size=1, max_size=12).map(" ".join)


@settings(max_examples=40)
@given(query=QUERY, k=st.sampled_from([1, 2, 3, 10, 50, 400]))
def test_hits_are_those_of_scoring_every_passage_with_ties_in_order(both, query, k):
    index, naive = both
    assert [tuple(hit) for hit in index.search([query], k)[0]] == naive.search(query, k)


def test_all_hits_are_found_also_in_batches(both):
    index, naive = both
    query = "w0 w59"
    assert [tuple(hit) for hit in index.search([query], 10**9)[0]] == naive.search(query, NUM)
    index, _ = both
    queries = [f"w{number} w{2 * number} w1" for number in range(30)] + ["", "unknown", "the"]
    assert index.search(queries, 7) == [index.search([query], 7)[0] for query in queries]


@pytest.mark.parametrize(("k1", "b"), [(0.0, 0.4), (1.2, 0.75), (0.9, 0.0), (5.0, 1.0), (1e9, 0.5)])
def test_other_settings_hold_to_the_formula(tmp_path, k1, b):
    passages = corpus(3, num=700)
    index, naive = BM25Index.build(passages, tmp_path / "index", k1=k1, b=b), NaiveBM25(passages, k1, b)
    for query in ("w0 w1 w2 w30", "w5", "w50 w50 w0"):
        assert [tuple(hit) for hit in index.search([query], 20)[0]] == naive.search(query, 20)


def test_rare_words_far_apart_are_found(tmp_path):
    # One rare word stands in three distant passages of the same block, a frequent one in all.
    passages = [(str(number), "common " * (1 + number % 3)) for number in range(70_000)]
    for number in (5, 33_000, 69_999):
        passages[number] = (str(number), "common rare")
    index = BM25Index.build(passages, tmp_path / "index")
    assert {hit.number for hit in index.search(["rare common"], 3)[0]} == {5, 33_000, 69_999}
    assert {hit.number for hit in index.search(["rare"], 10)[0]} == {5, 33_000, 69_999}


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(5))
def test_hits_are_exact_on_larger_corpora(tmp_path, seed):
    passages = corpus(seed, num=60_000, vocabulary=3000)
    index, naive = BM25Index.build(passages, tmp_path / "index"), NaiveBM25(passages)
    rng = np.random.default_rng(seed)
    for _ in range(60):
        query = " ".join(f"w{int(rank)}" for rank in 3000 * rng.random(rng.integers(1, 30)) ** 3)
        k = int(rng.choice([1, 3, 50]))
        assert [tuple(hit) for hit in index.search([query], k)[0]] == naive.search(query, k)
