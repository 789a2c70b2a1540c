"""SharedRows: samples of a prompt in one row, against the sampler that computes everything again for each of them."""

import pytest
import torch
from transformers.cache_utils import DynamicLayer

from tests.agents.policies.test_transformers_engine import check, engine_of
from tests.agents.tiny import random_qwen2
from tsr_gym.agents.policies.prefix_cache import RoomyLayer, SharedRows, places_of, roomy_cache


@pytest.fixture(scope="module")
def model(tokenizer):
    return random_qwen2(tokenizer, context=160)


def prompt_of(length, first):
    return tuple(range(first, first + length))


def test_places_are_as_wide_as_few_stay_empty():
    places = places_of([0, 1, 0, 1, 0, 1, 0, 1], slots=400)
    assert places.prompts.tolist() == [0, 1]
    assert places.samples.tolist() == [[0, 2, 4, 6], [1, 3, 5, 7]]
    # Rows of four would leave three of eight places empty, rows of two one of six.
    assert places_of([0, 0, 0, 0, 1], slots=400).samples.tolist() == [[0, 1], [2, 3], [4, -1]]
    assert places_of([0, 1, 2], slots=400).samples.tolist() == [[0], [1], [2]]


def test_short_prompts_are_not_worth_sharing():
    assert places_of([0, 0, 0, 0], slots=31).samples.tolist() == [[0], [1], [2], [3]]
    assert places_of([0, 0, 0, 0], slots=32).samples.tolist() == [[0, 1], [2, 3]]
    assert places_of([0, 0, 0, 0], slots=0).samples.tolist() == [[0], [1], [2], [3]]


def test_a_sample_sees_the_prompt_and_its_own_slots():
    filled = torch.tensor([[False, True], [True, True]])
    rows = SharedRows(roomy_cache(1), torch.tensor([[0, 1], [2, -1]]), filled)
    rows.grow(torch.tensor([[True, True], [True, False]]))
    rows.grow(torch.tensor([[False, True], [True, False]]))
    assert rows.seen.int().tolist() == [
        [[0, 1, 1, 0, 0, 0], [0, 1, 0, 1, 0, 1]],
        [[1, 1, 1, 0, 1, 0], [1, 1, 0, 0, 0, 0]],
    ]
    assert rows.crowded()
    rows.spread()
    assert rows.samples.tolist() == [[0], [1], [2], [-1]]
    assert rows.seen[1].int().tolist() == [[0, 1, 0, 1, 0, 1]]


@pytest.mark.parametrize("counts", [[4, 4], [5, 3, 1], [8], [1, 1, 6]])
def test_samples_that_share_rows_are_those_of_a_full_forward_pass(model, counts):
    prompts = [prompt_of(60 - 3 * number, 7 + number) for number in range(len(counts))]
    seeds = [[20 * number + one for one in range(count)] for number, count in enumerate(counts)]
    check(engine_of(model), prompts, seeds)


def test_answers_that_outgrow_a_shared_row_go_on_in_rows_of_their_own(model):
    engine = engine_of(model, max_tokens=40)
    (row,) = check(engine, [prompt_of(36, 7)], [[1, 2, 3, 4]])
    # Two share a row of 36 slots, which they take after 18 steps.
    assert max(len(one.token_ids) for one in row) > 20


def test_what_was_said_side_by_side_is_continued_from(model):
    engine = engine_of(model)
    prompts = [prompt_of(50, 7), prompt_of(50, 30)]
    answers = check(engine, prompts, [[1, 2, 3], [4, 5, 6]])
    longer = [(*prompt, *one.token_ids, 9, 8, 7) for prompt, row in zip(prompts, answers, strict=True) for one in row]
    again = check(engine, longer, [[number, number + 100, number + 200] for number in range(len(longer))])
    for prompt, row in zip(longer, again, strict=True):
        assert row[0].num_cached == len(prompt) - 4


def test_room_changes_no_key_and_no_value():
    torch.manual_seed(0)
    plain, roomy = DynamicLayer(), RoomyLayer()
    rows = 6
    for step, columns in enumerate((5, 1, 1, 2, 40, 1, 1, 1)):
        keys, values = torch.randn(rows, 2, columns, 4), torch.randn(rows, 2, columns, 4)
        for wanted, got in zip(plain.update(keys, values), roomy.update(keys.clone(), values.clone()), strict=True):
            assert torch.equal(wanted, got)
        if step in (2, 5):
            rows -= 2
            chosen = torch.randperm(rows + 2)[:rows]
            plain.batch_select_indices(chosen)
            roomy.batch_select_indices(chosen)
    assert roomy.get_seq_length() == plain.get_seq_length() == 52
