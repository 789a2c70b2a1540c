"""PrefixCache and SharedRows: equal samples with and without shared keys and values."""

from collections import deque

import numpy as np
import pytest
import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from tests.agents.policies.test_transformers_engine import check, transformers_engine
from tests.agents.tiny import random_qwen2
from tsr_gym.agents.policies import prefix_cache
from tsr_gym.agents.policies.prefix_cache import NOTHING, PrefixCache, RoomyLayer, SharedRows, places_of, roomy_cache

LAYERS, HEADS, WIDTH = 2, 2, 8


@pytest.fixture(scope="module")
def model(tokenizer):
    return random_qwen2(tokenizer)


def cache_of(model, rows, first=0):
    """Return a cache whose keys hold 1000 layer + 100 row + slot and whose values are the negatives of that."""
    cache = DynamicCache(config=model.config)
    slots = max(map(len, rows))
    for layer in range(LAYERS):
        marks = 1000.0 * layer + 100.0 * torch.arange(first, first + len(rows))[:, None] + torch.arange(slots)
        keys = marks[:, None, :, None].expand(-1, HEADS, -1, WIDTH).clone()
        cache.update(keys, -keys, layer)
    return cache, torch.tensor([[*row, *[False] * (slots - len(row))] for row in rows])


def marks(cache, layer):
    """Return the marks of a cache's keys, row by row, after a look at heads, widths and values."""
    keys, values = cache.layers[layer].keys, cache.layers[layer].values
    assert torch.equal(values, -keys)
    assert torch.equal(keys, keys[:, :1, :, :1].expand_as(keys))
    return keys[:, 0, :, 0].tolist()


Y, N = True, False


def test_the_longest_known_beginning_is_found_and_leaves_a_token_to_compute(model):
    known = PrefixCache(model, max_bytes=10**9)
    cache, filled = cache_of(model, [[Y] * 5])
    # The prompt 1 2 3 and the sampled tokens 4 5 6; the 6 was never fed to the model.
    known.keep(cache, filled, [((1, 2, 3), (4, 5, 6))], torch.arange(1))
    found = {
        (1, 2, 3, 4, 5, 6, 7): 5,
        (1, 2, 3, 4, 5, 6): 5,
        # As long as what is known: its last token must be computed again, so only the shorter beginning helps.
        (1, 2, 3, 4, 5): 2,
        (1, 2, 3, 4): 2,
        (1, 2, 3): 2,
        (1, 2, 9): 2,
        (1, 2): 0,
        (2, 2, 3): 0,
    }
    assert {prompt: known.find(prompt).length for prompt in found} == found
    assert known.find((2, 2, 3)) is NOTHING
    known.clear()
    assert known.find((1, 2, 3, 4)) is NOTHING


def test_gathered_rows_have_their_gaps_closed(model):
    known = PrefixCache(model, max_bytes=10**9)
    # Row 0 has gaps on the left and in the middle, as a shorter prompt and a turn that ended early leave them.
    cache, filled = cache_of(model, [[N, Y, Y, N, Y, Y], [Y, Y, Y, Y, Y, N]])
    known.keep(cache, filled, [((1, 2), (3, 4, 5)), ((6, 7, 8), (9, 10, 11))], torch.arange(2))
    found = [known.find(prompt) for prompt in [(6, 7, 8, 9, 10, 11, 12), (1, 2, 3, 4, 5), (5, 5)]]
    assert [one.length for one in found] == [5, 4, 0]
    gathered, slots = known.gather(found)
    assert slots.tolist() == [[Y] * 5, [Y, Y, Y, Y, N], [N] * 5]
    for layer in range(LAYERS):
        rows = marks(gathered, layer)
        assert rows[0] == [1000 * layer + 100 + slot for slot in (0, 1, 2, 3, 4)]
        assert rows[1][:4] == [1000 * layer + slot for slot in (1, 2, 4, 5)]


def test_rows_of_several_moments_can_be_gathered_together(model):
    known = PrefixCache(model, max_bytes=10**9)
    for first, prompt in ((0, (1, 1, 1)), (3, (2, 2, 2, 2))):
        cache, filled = cache_of(model, [[Y] * (len(prompt) + 1)], first)
        known.keep(cache, filled, [(prompt, (7, 8))], torch.arange(1))
    gathered, slots = known.gather([known.find((2, 2, 2, 2, 7, 8)), known.find((1, 1, 1, 7, 8))])
    assert slots.tolist() == [[Y] * 5, [Y, Y, Y, Y, N]]
    rows = marks(gathered, 0)
    assert rows[0] == [300.0, 301.0, 302.0, 303.0, 304.0]
    assert rows[1][:4] == [0.0, 1.0, 2.0, 3.0]


def test_the_newest_rows_win_and_the_oldest_go_where_memory_is_short(model):
    known = PrefixCache(model, max_bytes=10**9)
    for first in (0, 5):
        cache, filled = cache_of(model, [[Y] * 4], first)
        known.keep(cache, filled, [((1, 2, 3), (4, 5))], torch.arange(1))
    gathered, _ = known.gather([known.find((1, 2, 3, 4, 5))])
    assert marks(gathered, 0)[0] == [500.0, 501.0, 502.0, 503.0]
    # A row of three slots: two layers, keys and values, two heads, three slots, eight numbers of four bytes.
    row = 2 * 2 * HEADS * 3 * WIDTH * 4
    known = PrefixCache(model, max_bytes=2 * row)
    for number in range(3):
        cache, filled = cache_of(model, [[Y] * 3])
        known.keep(cache, filled, [((number, 2, 3), (4,))], torch.arange(1))
    assert [known.find((number, 2, 3, 4)).length for number in range(3)] == [0, 3, 3]
    known = PrefixCache(model, max_bytes=1)
    cache, filled = cache_of(model, [[Y] * 3])
    known.keep(cache, filled, [((1, 2, 3), (4,))], torch.arange(1))
    assert known.find((1, 2, 3, 4)).length == 3
    gathered, slots = PrefixCache(model, max_bytes=1).gather([NOTHING, NOTHING])
    assert (slots.shape, gathered.get_seq_length()) == ((2, 0), 0)


def linear(remembered, prompt):
    """Return the longest of some texts that a prompt begins with and goes beyond, by looking at each."""
    return max((len(text) for text in remembered if len(text) < len(prompt) and prompt[: len(text)] == text), default=0)


def test_many_remembered_texts_are_found_as_by_looking_at_each(model):
    rng = np.random.default_rng(1)
    row = 2 * 2 * HEADS * 12 * WIDTH * 4
    known = PrefixCache(model, max_bytes=30 * row)
    moments = deque(maxlen=30)
    for _ in range(60):
        # Two words only, so that beginnings are shared in every way.
        prompt, said = (tuple(rng.integers(2, size=rng.integers(1, 7)).tolist()) for _ in range(2))
        cache, filled = cache_of(model, [[Y] * 12])
        known.keep(cache, filled, [(prompt, said)], torch.arange(1))
        moments.append({prompt[:-1], prompt + said[:-1]})
        remembered = set().union(*moments)
        for _ in range(20):
            asked = tuple(rng.integers(2, size=rng.integers(1, 14)).tolist())
            assert known.find(asked).length == linear(remembered, asked)


def test_texts_of_the_same_hash_are_not_taken_for_each_other(model, monkeypatch):
    monkeypatch.setattr(prefix_cache, "prefix_hashes", lambda tokens: [7] * len(tokens))
    known = PrefixCache(model, max_bytes=10**9)
    cache, filled = cache_of(model, [[Y] * 4])
    known.keep(cache, filled, [((1, 2, 3), (4, 5))], torch.arange(1))
    assert known.find((2, 2, 3, 4, 5)) is NOTHING
    assert known.find((1, 2, 3, 4, 5)).length in (0, 2, 4)


def test_looking_up_does_not_look_at_what_is_remembered(model):
    class Counted(dict):
        looked = 0

        def get(self, key):
            self.looked += 1
            return super().get(key)

        def __iter__(self):
            raise AssertionError("everything that is remembered was walked over")

        keys = values = items = __iter__

    known = PrefixCache(model, max_bytes=10**9)
    cache, filled = cache_of(model, [[Y] * 4] * 50)
    known._entries = Counted()
    known.keep(cache, filled, [((number, 2, 3), (4, 5)) for number in range(50)], torch.arange(50))
    assert known.find((49, 2, 3, 4, 6)).length == 4
    known._entries.looked = 0
    assert known.find((60,) * 40) is NOTHING
    assert known._entries.looked == 39


@pytest.fixture(scope="module")
def sharing_model(tokenizer):
    return random_qwen2(tokenizer, context=160)


def prompt_of(length, first):
    return tuple(range(first, first + length))


def test_places_are_as_wide_as_few_stay_empty_and_short_prompts_are_not_shared():
    places = places_of([0, 1, 0, 1, 0, 1, 0, 1], slots=400)
    assert places.prompts.tolist() == [0, 1]
    assert places.samples.tolist() == [[0, 2, 4, 6], [1, 3, 5, 7]]
    # Rows of four would leave three of eight places empty, rows of two one of six.
    assert places_of([0, 0, 0, 0, 1], slots=400).samples.tolist() == [[0, 1], [2, 3], [4, -1]]
    assert places_of([0, 1, 2], slots=400).samples.tolist() == [[0], [1], [2]]
    assert places_of([0, 0, 0, 0], slots=31).samples.tolist() == [[0], [1], [2], [3]]
    assert places_of([0, 0, 0, 0], slots=32).samples.tolist() == [[0, 1], [2, 3]]
    assert places_of([0, 0, 0, 0], slots=0).samples.tolist() == [[0], [1], [2], [3]]


def test_a_sample_sees_the_prompt_and_its_own_slots():
    filled = torch.tensor([[False, True], [True, True]])
    rows = SharedRows(roomy_cache(1), torch.tensor([[0, 1], [2, -1]]), filled)
    rows.grow(torch.tensor([[True, True], [True, False]]))
    rows.grow(torch.tensor([[False, True], [True, False]]))
    first, second = [[0, 1, 1, 0, 0, 0], [0, 1, 0, 1, 0, 1]], [[1, 1, 1, 0, 1, 0], [1, 1, 0, 0, 0, 0]]
    assert rows.seen.int().tolist() == [first, second]
    assert rows.crowded()
    rows.spread()
    assert rows.samples.tolist() == [[0], [1], [2], [-1]]
    assert rows.seen[1].int().tolist() == [[0, 1, 0, 1, 0, 1]]


@pytest.mark.parametrize("counts", [[4, 4], [5, 3, 1], [8], [1, 1, 6]])
def test_samples_that_share_rows_are_those_of_a_full_forward_pass(sharing_model, counts):
    prompts = [prompt_of(60 - 3 * number, 7 + number) for number in range(len(counts))]
    seeds = [[20 * number + one for one in range(count)] for number, count in enumerate(counts)]
    check(transformers_engine(sharing_model), prompts, seeds)


def test_answers_that_outgrow_a_shared_row_go_on_in_rows_of_their_own(sharing_model):
    (row,) = check(transformers_engine(sharing_model, max_tokens=40), [prompt_of(36, 7)], [[1, 2, 3, 4]])
    # Two share a row of 36 slots, which they take after 18 steps.
    assert max(len(one.token_ids) for one in row) > 20


def test_what_was_said_side_by_side_is_continued_from(sharing_model):
    engine = transformers_engine(sharing_model)
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
