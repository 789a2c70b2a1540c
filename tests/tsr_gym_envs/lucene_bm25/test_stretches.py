from hashlib import blake2b

import pytest

from tsr_gym import InvalidCorpus
from tsr_gym_envs.lucene_bm25 import analyse
from tsr_gym_envs.lucene_bm25.runs import stretches

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
