"""Forests of tokens against the rows that they hold, and the plans of rows against forests."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.agents.learning.layouts.rows import BATCHES, batch_of, random_groups
from tsr_gym.agents.episodes.trajectory import Group, Trajectory, Turn
from tsr_gym.agents.learning.batch import collate
from tsr_gym.agents.learning.layouts import grow_forest, plan_rows
from tsr_gym.agents.learning.layouts.forest import RUN_COST


def rows_batch(rows):
    """Return the batch of some rows of tokens, of which the last is sampled."""
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
    parts = (forest.depth, forest.before, forest.end)
    assert [part.tolist() for part in forest.line] == [part.tolist() for part in parts]


def test_rows_one_after_the_other_and_a_row_that_is_the_beginning_of_another():
    forest = grow_forest(rows_batch(HAND[:3]), share=False)
    assert forest.ids.tolist() == [5, 6, 8, 9, 5, 6, 7, 5, 6, 8, 4, 3]
    assert forest.depth.tolist() == [0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 3, 4]
    assert forest.before.tolist() == [-1, 0, 1, 2, -1, 4, 5, -1, 7, 8, 9, 10]
    assert forest.end.tolist() == [4] * 4 + [7] * 3 + [12] * 5
    forest = grow_forest(rows_batch([[1, 2, 3, 4], [1, 2]]), share=True)
    assert (forest.ids.tolist(), forest.end.tolist()) == ([1, 2, 3, 4], [4, 4, 4, 4])
    assert forest.place.tolist() == [[0, 1, 2, 3], [0, 1, -1, -1]]


def check(rows, forest):
    """Compare a trie with the beginnings of its rows: each different one is a token."""
    place = [line[: len(row)] for row, line in zip(rows, forest.place.tolist(), strict=True)]
    token_of = {}
    for row, line in zip(rows, place, strict=True):
        for column, token in enumerate(line):
            assert token_of.setdefault(tuple(row[: column + 1]), token) == token
            assert (forest.ids[token], forest.depth[token]) == (row[column], column)
            assert forest.before[token] == (line[column - 1] if column else -1)
    assert sorted(token_of.values()) == list(range(len(forest.ids)))
    for prefix, first in token_of.items():
        for other, second in token_of.items():
            is_above = other[: len(prefix)] == prefix
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
    assert grow_forest(batch, share=False).ids.tolist() == [token for row in rows for token in row]


# 10 and 8 tokens that part behind the sixth; 10 others; 4.
ROWS = [[1, 1, 1, 1, 1, 1, 2, 2, 2, 2], [3] * 10, [1, 1, 1, 1, 1, 1, 4, 4], [5] * 4]


def parts(plan):
    return [part.tolist() for part in plan.parts]


def test_padded_micro_batches_have_similar_rows_and_packed_ones_as_many_tokens_as_the_longest():
    plan = plan_rows(rows_batch(ROWS), layout="padded", microbatch=2)
    assert parts(plan) == [[3, 2], [0, 1]]
    assert (plan.layout, plan.tokens, plan.cost) == ("padded", 16 + 20, 36)
    plan = plan_rows(rows_batch(ROWS), layout="packed", microbatch=2)
    # 4 + 8 tokens and 10 more would be 22, and there may be 20.
    assert (parts(plan), plan.tokens, plan.runs) == ([[3, 2], [0, 1]], 32, 4)
    assert parts(plan_rows(rows_batch(ROWS), layout="packed", microbatch=3)) == [[3, 2, 0], [1]]


def test_shared_micro_batches_count_what_is_shared_once():
    plan = plan_rows(rows_batch(ROWS), layout="shared", microbatch=2)
    # In the order of the trie: 0, then two more tokens for 2; 10 and 4 others.
    assert (parts(plan), plan.tokens, plan.runs) == ([[0, 2], [1, 3]], 26, 4)
    # As many as three rows of 10: all but the last four tokens fit in 22.
    assert parts(plan_rows(rows_batch(ROWS), layout="shared", microbatch=3)) == [[0, 2, 1, 3]]
    # What is apart is computed twice.
    alone = plan_rows(rows_batch(ROWS), layout="shared", microbatch=1)
    assert (parts(alone), alone.tokens) == ([[0], [2], [1], [3]], 32)


@pytest.mark.parametrize("layout", ["padded", "packed", "shared"])
@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize("microbatch", [1, 3, 100])
def test_every_row_is_in_one_micro_batch_and_tokens_are_those_of_the_forests(name, layout, microbatch):
    batch = batch_of(BATCHES[name]())
    plan = plan_rows(batch, layout=layout, microbatch=microbatch)
    assert sorted(torch.cat(plan.parts).tolist()) == list(range(len(batch.ids)))
    made = [batch.rows(part) for part in plan.parts]
    forests = [grow_forest(part, share=layout == "shared").ids for part in made]
    sizes = [part.ids.numel() for part in made] if layout == "padded" else list(map(len, forests))
    assert plan.tokens == sum(sizes)
    assert max(sizes) <= microbatch * batch.ids.shape[1]


@pytest.mark.parametrize("layout", ["padded", "packed", "shared"])
def test_rows_of_a_trajectory_can_be_kept_together(layout):
    # Six rows of two trajectories.
    batch = batch_of(BATCHES["windows"]())
    plan = plan_rows(batch, layout=layout, microbatch=1, whole=True)
    assert [sorted(batch.trajectory[part].tolist()) for part in plan.parts] in ([[0] * 3, [1] * 3], [[1] * 3, [0] * 3])
    assert len(plan_rows(batch, layout=layout, microbatch=100, whole=True).parts) == 1


def test_the_cheapest_layout_is_chosen():
    def layout_of(rows):
        return plan_rows(rows_batch(rows), layout="auto", microbatch=8).layout

    ends = [[number] * 20 for number in range(2, 6)]
    # 4 rows of 120 tokens, of which they share 100.
    assert layout_of([[1] * 100 + end for end in ends]) == "shared"
    # They share nothing, and half of the padded rows is padding.
    assert layout_of([[number] * (20 + 60 * number) for number in range(1, 5)]) == "packed"
    # They share nothing, and are as long as each other.
    assert layout_of([[number] * 120 for number in range(1, 5)]) == "padded"
    # What could be saved is less than what calls of attention cost.
    assert layout_of([[1] * 4 + end for end in ends]) == "padded"


@pytest.mark.parametrize("seed", range(5))
def test_no_layout_is_cheaper_than_the_chosen_one(seed):
    batch = batch_of(random_groups(seed))
    costs = [plan_rows(batch, layout=layout, microbatch=4).cost for layout in ("padded", "packed", "shared", "auto")]
    assert costs[3] == min(costs[:3])
    plan = plan_rows(batch, layout="shared", microbatch=4)
    assert plan.cost == plan.tokens + RUN_COST * len(batch.ids)
