import numpy as np
import pytest

from tsr_gym import InvalidCorpus
from tsr_gym_envs.lucene_bm25 import BM25Index
from tsr_gym_envs.lucene_bm25.index import find_term

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
