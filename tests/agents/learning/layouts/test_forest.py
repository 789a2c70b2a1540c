"""TokenForest: three rows written down by hand, and random ones against the sets of beginnings that they have."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.agents.learning.layouts.rows import BATCHES, batch_of
from tsr_gym.agents.episodes.trajectory import Group, Trajectory, Turn
from tsr_gym.agents.learning.batch import collate
from tsr_gym.agents.learning.layouts import grow_forest


def rows_batch(rows):
    """Return the batch of some rows of tokens, of which the last is said."""
    turns = [Turn(tuple(row[:-1]), tuple(row[-1:]), (0.0,), 0.0, True, 1) for row in rows]
    return collate([Group(0, tuple(Trajectory((turn,), False, 0.0, "naive") for turn in turns))])


HAND = [[5, 6, 8, 9], [5, 6, 7], [5, 6, 8, 4, 3], [5, 6, 7]]


def test_a_trie_by_hand():
    forest = grow_forest(rows_batch(HAND), share=True)
    # In the order of the trie: 5 6 7, then 5 6 8 4 3, then 5 6 8 9.
    assert forest.ids.tolist() == [5, 6, 7, 8, 4, 3, 9]
    assert forest.depth.tolist() == [0, 1, 2, 2, 3, 4, 3]
    assert forest.before.tolist() == [-1, 0, 1, 1, 3, 4, 3]
    assert forest.end.tolist() == [7, 7, 3, 7, 6, 6, 7]
    assert forest.place.tolist() == [[0, 1, 3, 6, -1], [0, 1, 2, -1, -1], [0, 1, 3, 4, 5], [0, 1, 2, -1, -1]]
    assert [part.tolist() for part in forest.line] == [
        forest.depth.tolist(),
        forest.before.tolist(),
        forest.end.tolist(),
    ]


def test_rows_one_after_the_other_by_hand():
    forest = grow_forest(rows_batch(HAND[:3]), share=False)
    assert forest.ids.tolist() == [5, 6, 8, 9, 5, 6, 7, 5, 6, 8, 4, 3]
    assert forest.depth.tolist() == [0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 3, 4]
    assert forest.before.tolist() == [-1, 0, 1, 2, -1, 4, 5, -1, 7, 8, 9, 10]
    assert forest.end.tolist() == [4] * 4 + [7] * 3 + [12] * 5


def test_a_row_that_is_the_beginning_of_another_has_no_tokens_of_its_own():
    forest = grow_forest(rows_batch([[1, 2, 3, 4], [1, 2]]), share=True)
    assert forest.ids.tolist() == [1, 2, 3, 4]
    assert forest.place.tolist() == [[0, 1, 2, 3], [0, 1, -1, -1]]
    assert forest.end.tolist() == [4, 4, 4, 4]


def check(rows, forest):
    """Compare a trie with the beginnings of its rows: each different one is a token."""
    place = [line[: len(row)] for row, line in zip(rows, forest.place.tolist(), strict=True)]
    token_of = {}
    for row, line in zip(rows, place, strict=True):
        for column, token in enumerate(line):
            assert token_of.setdefault(tuple(row[: column + 1]), token) == token
            assert forest.ids[token] == row[column]
            assert forest.depth[token] == column
            assert forest.before[token] == (line[column - 1] if column else -1)
    assert sorted(token_of.values()) == list(range(len(forest.ids)))
    for one, first in token_of.items():
        for other, second in token_of.items():
            is_above = other[: len(one)] == one
            assert is_above == (first <= second < forest.end[first])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(1, 2), min_size=2, max_size=7), min_size=1, max_size=8))
def test_a_trie_has_a_token_for_each_beginning_of_its_rows(rows):
    check(rows, grow_forest(rows_batch(rows), share=True))


@pytest.mark.parametrize("name", BATCHES)
def test_a_trie_of_episodes_has_a_token_for_each_of_their_beginnings(name):
    batch = batch_of(BATCHES[name]())
    rows = [ids[present].tolist() for ids, present in zip(batch.ids, batch.present, strict=True)]
    check(rows, grow_forest(batch, share=True))
    whole = grow_forest(batch, share=False)
    assert whole.ids.tolist() == [token for row in rows for token in row]
