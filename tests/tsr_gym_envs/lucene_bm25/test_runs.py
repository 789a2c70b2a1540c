from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tsr_gym_envs.lucene_bm25.runs import unsqueeze, write_run

PASSAGES = st.lists(st.lists(st.sampled_from([-1, 0, 1, 2, 3, 4]) | st.just(0), max_size=200), max_size=20)


@given(PASSAGES)
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
