"""Blocks of postings, and the building of an index from runs."""

from collections import Counter
from hashlib import blake2b

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tsr_gym_envs.lucene_bm25.oracles import byte4
from tsr_gym import InvalidCorpus
from tsr_gym_envs.lucene_bm25 import BM25Index, analyse, build
from tsr_gym_envs.lucene_bm25.build import build_index, first_repeated, stretches, unsqueeze, write_run
from tsr_gym_envs.lucene_bm25.layout import (
    BOUND,
    COUNT_WIDTH,
    DTYPES,
    LAST,
    LENGTHS,
    META,
    SIZE,
    START,
    WIDTH,
    inverse_norms,
    length_bytes,
    pack,
    read_meta,
    take,
    unpack,
)


def test_lengths_and_norms_are_lucenes():
    # SmallFloat.byte4ToInt for these bytes, from Lucene.
    assert LENGTHS[[0, 23, 24, 39, 40, 41, 47, 48, 255]].tolist() == [0, 23, 24, 39, 40, 42, 54, 56, 2013265944]
    assert np.all(np.diff(LENGTHS) > 0)
    lengths = np.array([*range(3000), 10**6 + 7, 2**31 - 1])
    assert LENGTHS[length_bytes(lengths)].tolist() == [byte4(int(length)) for length in lengths]
    f32 = np.float32
    norms = inverse_norms(0.9, 0.4, 71.3)
    assert norms.dtype == np.float32
    by_hand = f32(1) / (f32(0.9) * ((f32(1) - f32(0.4)) + f32(0.4) * f32(30) / f32(71.3)))
    assert norms[30] == by_hand
    assert np.isinf(inverse_norms(0, 0.4, 10)).all()


NUM = 100_000
LENGTH_BYTES = np.random.default_rng(0).integers(1, 60, NUM).astype(np.uint8)
INVERSE = inverse_norms(0.9, 0.4, 30)

TERM = st.dictionaries(
    st.integers(0, NUM - 1) | st.integers(0, 300), st.integers(1, 5) | st.integers(1, 2**20), min_size=1, max_size=300
)


def packed(terms):
    postings = [sorted(term.items()) for term in terms]
    passages, counts = (np.array([pair[part] for term in postings for pair in term], np.uint32) for part in (0, 1))
    ends = np.cumsum([0, *map(len, postings)])
    num_blocks = sum(-(-len(term) // SIZE) for term in postings)
    words, blocks = np.zeros(2 * passages.size + num_blocks + 2, np.uint32), np.zeros((num_blocks, 5), np.uint32)
    used = pack(passages, counts, ends, LENGTH_BYTES, INVERSE, 7, words[: words.size - 1], blocks)
    return postings, words, blocks, used


@given(st.lists(TERM, min_size=1, max_size=4))
def test_what_was_packed_is_unpacked_and_a_bound_is_never_below_a_score(terms):
    postings, words, blocks, used = packed(terms)
    number, weight = 0, np.float32(3.7)
    for term in postings:
        before = -1
        for first in range(0, len(term), SIZE):
            wanted, block = term[first : first + SIZE], blocks[number].tolist()
            out, size = np.zeros(SIZE + 3, np.uint32), len(wanted)
            start = block[START] - 7
            args = (start, size, block[WIDTH], block[COUNT_WIDTH], before, block[LAST])
            assert unpack(words, *args, out, 3)
            assert out[3 : 3 + size].tolist() == [passage for passage, _ in wanted]
            bit = 32 * start + (size - 1) * block[WIDTH]
            counts = [1 + take(words, bit + place * block[COUNT_WIDTH], block[COUNT_WIDTH]) for place in range(size)]
            assert counts == [count for _, count in wanted]
            for passage, count in wanted:
                score = weight - weight / (np.float32(1) + np.float32(count) * INVERSE[LENGTH_BYTES[passage]])
                assert float(score) <= float(weight) * (block[BOUND] + 1) / 256
            before, number = block[LAST], number + 1
    assert number == len(blocks)
    assert used <= words.size - 2


def test_a_term_of_one_passage_takes_no_words_and_a_damaged_block_is_noticed():
    _, _, blocks, used = packed([{41: 1}])
    assert (used, blocks[0, LAST]) == (0, 41)
    _, words, blocks, _ = packed([{number * 3: 1 + number % 4 for number in range(SIZE)}])
    width, count_width, last = (int(blocks[0, column]) for column in (WIDTH, COUNT_WIDTH, LAST))
    out = np.zeros(SIZE, np.uint32)
    assert unpack(words, 0, SIZE, width, count_width, -1, last, out, 0)
    assert not unpack(words, 0, SIZE, width, count_width, -1, 100, out, 0)
    assert not unpack(words, 0, SIZE, 33, count_width, -1, last, out, 0)
    assert not unpack(words, words.size, SIZE, width, count_width, -1, last, out, 0)


def table(ids):
    names = [name.encode() for name in ids]
    return np.cumsum([0, *map(len, names)]), np.frombuffer(b"".join(names), np.uint8)


@pytest.mark.parametrize("at_a_time", [3, 1000])
def test_a_repeated_id_is_found_wherever_it_stands(at_a_time):
    ids = [f"id-{number}" for number in range(500)]
    assert first_repeated(*table(ids), at_a_time) is None
    assert first_repeated(*table([*ids, "id-123"]), at_a_time) == (123, 500)
    # Prefixes and empty ids differ.
    for ids, repeated in ((["", "a", "aa", "aaa"], None), (["a", "", "b", ""], (1, 3)), ([], None)):
        assert first_repeated(*table(ids)) == repeated


def test_equal_ids_and_what_is_no_text_are_refused_and_nothing_is_left(tmp_path):
    with pytest.raises(InvalidCorpus, match="passages 3 and 50 have the same id 'id3'"):
        BM25Index.build([*passages(50), ("id3", "again")], tmp_path / "index")
    for bad in (("a", None), (7, "text"), (b"a", "text")):
        with pytest.raises(InvalidCorpus, match="passage 1: wanted an id and a text"):
            BM25Index.build([("a", "b"), bad], tmp_path / "index")
    assert list(tmp_path.iterdir()) == []


TOKENS = st.lists(st.lists(st.sampled_from([-1, 0, 1, 2, 3, 4]) | st.just(0), max_size=200), max_size=20)


@given(TOKENS)
def test_a_run_holds_the_postings_of_its_passages(tmp_path_factory, passages):
    terms = ["delta", "a", "\u4e2d", "\U0001f600", "z"]
    tokens = np.array([token for passage in passages for token in passage], np.int32)
    ends = np.cumsum([len(passage) for passage in passages], dtype=np.int64)
    run, lengths = write_run(tmp_path_factory.mktemp("run") / "0", 1000, tokens, ends, terms)
    assert lengths.tolist() == [sum(token >= 0 for token in passage) for passage in passages]
    order = sorted(range(5), key=lambda number: terms[number].encode())
    assert run.terms.read_text(encoding="utf-8").splitlines() == [terms[number] for number in order]
    wanted = [
        (1000 + number, Counter(passage)[term])
        for term in order
        for number, passage in enumerate(passages)
        if term in passage
    ]
    size = int(run.counts.sum())
    found, counts = np.zeros(size, np.uint32), np.zeros(size, np.uint32)
    filled = np.cumsum(np.concatenate(([0], run.counts[:-1]))).astype(np.int64)
    data = np.fromfile(run.postings, np.uint8)
    assert data.size == run.ends[-1]
    unsqueeze(data, run.counts, run.first, np.arange(5), filled, found, counts)
    assert list(zip(found.tolist(), counts.tolist(), strict=True)) == wanted


PASSAGES = [
    (f"p{number}", f"the {'word ' * (number % 4)} Passage number {number}, caf\xe9 {number}") for number in range(25)
]


@pytest.mark.parametrize("max_words", [1, 20, 10**6])
def test_stretches_together_hold_all_terms_in_order(max_words):
    found, ids = [], []
    for stretch in stretches(PASSAGES, blake2b(), max_words=max_words):
        assert stretch.first == len(ids)
        ids += [name.decode() for name in stretch.ids]
        start = 0
        for end in stretch.ends:
            found.append([stretch.terms[token] for token in stretch.tokens[start:end] if token >= 0])
            start = end
    assert ids == [name for name, _ in PASSAGES]
    assert found == [analyse(text) for _, text in PASSAGES]


def digest_of(passages):
    digest = blake2b()
    list(stretches(passages, digest))
    return digest.hexdigest()


def test_the_digest_distinguishes_what_differs_and_progress_is_reported():
    kinds = [[("a", "b")], [("ab", "")], [("", "ab")], [("a", "b"), ("", "")], [("b", "a")], []]
    assert len({digest_of(kind) for kind in kinds}) == len(kinds)
    assert digest_of(iter(PASSAGES)) == digest_of(PASSAGES)
    told = []
    list(stretches(PASSAGES, blake2b(), told.append))
    assert told == [25]


def passages(num, seed=0):
    rng = np.random.default_rng(seed)
    vocabulary = [f"w{number}" for number in range(300)] + ["caf\xe9", "\u4e2d\u6587", "the"]
    ranks = (len(vocabulary) * rng.random((num, 40)) ** 3).astype(int)
    return [(f"id{number}", " ".join(vocabulary[rank] for rank in row)) for number, row in enumerate(ranks)]


def test_an_index_does_not_depend_on_how_much_was_in_memory(tmp_path, monkeypatch):
    corpus = passages(400)
    build_index(corpus, tmp_path / "whole", k1=0.9, b=0.4)
    monkeypatch.setattr(build, "AT_A_TIME", 50)
    build_index(corpus, tmp_path / "pieces", k1=0.9, b=0.4, max_words=500)
    assert read_meta(tmp_path / "whole") == read_meta(tmp_path / "pieces")


def test_the_same_corpus_gives_the_same_bytes_and_another_one_another_digest(tmp_path):
    first = BM25Index.build(passages(50), tmp_path / "a")
    again = BM25Index.build(iter(passages(50)), tmp_path / "b")
    other = BM25Index.build(passages(50, seed=1), tmp_path / "c")
    settings = BM25Index.build(passages(50), tmp_path / "d", b=0.75)
    assert first.digest == again.digest
    assert len({first.digest, other.digest, settings.digest}) == 3
    for path in (tmp_path / "a" / name for name in (META, *DTYPES)):
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def interrupted(corpus):
    yield from corpus
    raise KeyboardInterrupt


def test_an_interrupted_build_leaves_nothing_or_the_old_index(tmp_path):
    index = tmp_path / "deep" / "index"
    with pytest.raises(KeyboardInterrupt):
        BM25Index.build(interrupted(passages(30)), index)
    assert list(index.parent.iterdir()) == []
    old = BM25Index.build(passages(30), index)
    with pytest.raises(KeyboardInterrupt):
        BM25Index.build(interrupted(passages(40)), index)
    assert BM25Index.open(index, verify=True).digest == old.digest
    assert [path.name for path in index.parent.iterdir()] == ["index"]


def test_an_index_is_replaced_whole_and_what_is_no_index_never(tmp_path):
    old = BM25Index.build(passages(30), tmp_path / "index")
    new = BM25Index.build(passages(40), tmp_path / "index")
    assert (len(old), len(new), len(BM25Index.open(tmp_path / "index"))) == (30, 40, 40)
    assert old.search(["w1"], 5)[0]
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_what_is_no_index_is_never_replaced(tmp_path):
    (tmp_path / "index").mkdir()
    assert len(BM25Index.build(passages(3), tmp_path / "index")) == 3
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").touch()
    with pytest.raises(InvalidCorpus, match="something else"):
        BM25Index.build(passages(3), tmp_path / "other")
    assert (tmp_path / "other" / "thesis.txt").exists()
