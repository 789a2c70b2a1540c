"""Building an index: stretches, runs, repeated ids, the merge, and interruptions."""

from collections import Counter
from hashlib import blake2b

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsr_gym import InvalidCorpus
from tsr_gym_envs.lucene_bm25 import BM25Index, analyse, build
from tsr_gym_envs.lucene_bm25.build import build_index, first_repeated, stretches, unsqueeze, write_run
from tsr_gym_envs.lucene_bm25.layout import DTYPES, META, read_meta


def table(ids):
    names = [name.encode() for name in ids]
    return np.cumsum([0, *map(len, names)]), np.frombuffer(b"".join(names), np.uint8)


@pytest.mark.parametrize("at_a_time", [3, 1000])
def test_a_repeated_id_is_found_wherever_it_stands(at_a_time):
    ids = [f"id-{number}" for number in range(500)]
    assert first_repeated(*table(ids), at_a_time) is None
    assert first_repeated(*table([*ids, "id-123"]), at_a_time) == (123, 500)


def test_prefixes_and_empty_ids_differ():
    assert first_repeated(*table(["", "a", "aa", "aaa"])) is None
    assert first_repeated(*table(["a", "", "b", ""])) == (1, 3)
    assert first_repeated(*table([])) is None


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


def test_the_digest_tells_apart_what_differs():
    kinds = [[("a", "b")], [("ab", "")], [("", "ab")], [("a", "b"), ("", "")], [("b", "a")], []]
    assert len({digest_of(kind) for kind in kinds}) == len(kinds)
    assert digest_of(iter(PASSAGES)) == digest_of(PASSAGES)


def test_progress_is_told_until_the_end():
    told = []
    list(stretches(PASSAGES, blake2b(), told.append))
    assert told == [25]


@pytest.mark.parametrize("bad", [("a", None), (7, "text"), (b"a", "text")])
def test_ids_and_texts_are_strings(bad):
    with pytest.raises(InvalidCorpus, match="passage 1: wanted an id and a text"):
        list(stretches([("a", "b"), bad], blake2b()))


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


def test_equal_ids_are_refused_by_name_and_nothing_is_left(tmp_path):
    with pytest.raises(InvalidCorpus, match="passages 3 and 50 have the same id 'id3'"):
        BM25Index.build([*passages(50), ("id3", "again")], tmp_path / "index")
    assert list(tmp_path.iterdir()) == []


def interrupted(corpus):
    yield from corpus
    raise KeyboardInterrupt


def test_an_interrupted_build_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        BM25Index.build(interrupted(passages(30)), tmp_path / "deep" / "index")
    assert list((tmp_path / "deep").iterdir()) == []


def test_an_interrupted_build_leaves_the_old_index(tmp_path):
    old = BM25Index.build(passages(30), tmp_path / "index")
    with pytest.raises(KeyboardInterrupt):
        BM25Index.build(interrupted(passages(40)), tmp_path / "index")
    assert BM25Index.open(tmp_path / "index", verify=True).digest == old.digest
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_a_new_index_takes_the_place_of_an_old_one_which_stays_usable_where_it_is_open(tmp_path):
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
