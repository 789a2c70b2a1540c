import numpy as np
import pytest

from tsr_gym import InvalidCorpus
from tsr_gym_envs.lucene_bm25 import BM25Index, build
from tsr_gym_envs.lucene_bm25.build import build_index
from tsr_gym_envs.lucene_bm25.layout import DTYPES, META, read_meta


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
