"""Plans: which rows go together, counted by hand; what is cheapest is chosen."""

import pytest
import torch

from tests.agents.learning.layouts.rows import BATCHES, batch_of, random_groups
from tests.agents.learning.layouts.test_forest import rows_batch
from tsr_gym.agents.learning.layouts import grow_forest, plan_rows
from tsr_gym.agents.learning.layouts.plan import RUN_COST

# 10 and 8 tokens that part behind the sixth; 10 others; 4.
ROWS = [[1, 1, 1, 1, 1, 1, 2, 2, 2, 2], [3] * 10, [1, 1, 1, 1, 1, 1, 4, 4], [5] * 4]


def parts(plan):
    return [part.tolist() for part in plan.parts]


def test_padded_micro_batches_have_rows_of_similar_length():
    plan = plan_rows(rows_batch(ROWS), layout="padded", microbatch=2)
    assert parts(plan) == [[3, 2], [0, 1]]
    assert (plan.layout, plan.tokens, plan.cost) == ("padded", 16 + 20, 36)


def test_packed_micro_batches_have_as_many_tokens_as_the_longest_rows():
    plan = plan_rows(rows_batch(ROWS), layout="packed", microbatch=2)
    # 4 + 8 tokens and 10 more would be 22, and there may be 20.
    assert parts(plan) == [[3, 2], [0, 1]]
    assert (plan.tokens, plan.runs) == (32, 4)
    assert parts(plan_rows(rows_batch(ROWS), layout="packed", microbatch=3)) == [[3, 2, 0], [1]]


def test_shared_micro_batches_count_what_is_shared_once():
    plan = plan_rows(rows_batch(ROWS), layout="shared", microbatch=2)
    # In the order of the trie: 0, then two more tokens for 2; 10 and 4 others.
    assert parts(plan) == [[0, 2], [1, 3]]
    assert (plan.tokens, plan.runs) == (26, 4)
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
    sizes = [
        part.ids.numel() if layout == "padded" else len(grow_forest(part, share=layout == "shared").ids)
        for part in made
    ]
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
    def chosen(rows):
        return plan_rows(rows_batch(rows), layout="auto", microbatch=8).layout

    ends = [[number] * 20 for number in range(2, 6)]
    # 4 rows of 120 tokens, of which they share 100.
    assert chosen([[1] * 100 + end for end in ends]) == "shared"
    # They share nothing, and half of the padded rows is padding.
    assert chosen([[number] * (20 + 60 * number) for number in range(1, 5)]) == "packed"
    # They share nothing, and are as long as each other.
    assert chosen([[number] * 120 for number in range(1, 5)]) == "padded"
    # What could be saved is less than what calls of attention cost.
    assert chosen([[1] * 4 + end for end in ends]) == "padded"


@pytest.mark.parametrize("seed", range(5))
def test_no_layout_is_cheaper_than_the_chosen_one(seed):
    batch = batch_of(random_groups(seed))
    costs = [plan_rows(batch, layout=layout, microbatch=4).cost for layout in ("padded", "packed", "shared", "auto")]
    assert costs[3] == min(costs[:3])
    plan = plan_rows(batch, layout="shared", microbatch=4)
    assert plan.cost == plan.tokens + RUN_COST * len(batch.ids)
