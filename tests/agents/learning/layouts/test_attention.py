"""Attention over a forest against attention over rows one by one, its stretches and its blocks."""

from itertools import combinations

import numpy as np
import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask

from tests.agents.learning.layouts.rows import BATCHES, batch_of, random_groups, random_model
from tests.agents.learning.layouts.test_forest import HAND, rows_batch
from tests.conftest import seeds
from tsr_gym import ConfigError
from tsr_gym.agents.learning.layouts import attending, attention_of, grow_forest, sees
from tsr_gym.agents.learning.layouts.attention import GRAIN, SIDE, Prices, block_mask, cut_line


def seen_in_rows(forest, window=None):
    """Return which tokens see which, `[U, U]`, read off the rows."""
    size = len(forest.ids)
    actual = torch.zeros(size, size, dtype=torch.bool)
    for line in forest.place.tolist():
        row = [token for token in line if token >= 0]
        for column, token in enumerate(row):
            first = 0 if window is None else max(0, column - window + 1)
            actual[token, row[first : column + 1]] = True
    return actual


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("window", [None, 1, 3])
@pytest.mark.parametrize("name", ["trees", "nested", "twins"])
def test_a_token_sees_itself_and_what_is_before_it_in_its_rows(name, window, share):
    forest = grow_forest(batch_of(BATCHES[name]()), share=share)
    numbers = torch.arange(len(forest.ids))
    mask = sees(forest, window)(0, 0, numbers[:, None], numbers)
    assert torch.equal(mask, seen_in_rows(forest, window))


def plain(forest, query, key, value, scale, window):
    """Return attention in the words of its formula."""
    times = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(times, dim=1), value.repeat_interleave(times, dim=1)
    scores = (query @ key.transpose(2, 3)) * (query.shape[-1] ** -0.5 if scale is None else scale)
    return scores.masked_fill(~seen_in_rows(forest, window), -torch.inf).softmax(dim=-1) @ value


def heads(size, *, requires_grad):
    torch.manual_seed(0)
    shapes = (1, 4, size, 8), (1, 2, size, 8), (1, 2, size, 8)
    return [torch.randn(shape, requires_grad=requires_grad) for shape in shapes]


# FlexAttention has no backward pass on a CPU, and does not even begin where one might be wanted.
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("kernel", ["runs", "mask", "flex"])
@pytest.mark.parametrize(("scale", "window"), [(None, None), (0.5, 4), (0.5, 200)])
@pytest.mark.parametrize("share", [False, True])
def test_each_way_to_attend_is_the_formula(kernel, scale, window, share):
    forest = grow_forest(batch_of(BATCHES["trees"]()), share=share)
    attention = attention_of(forest, kernel)
    actual, gradients = [], []
    for way in (plain, None):
        parts = heads(len(forest.ids), requires_grad=kernel != "flex")
        whole = way(forest, *parts, scale, window) if way else attention(*parts, scale=scale, window=window)
        actual.append(whole.detach())
        if kernel != "flex":
            (whole * torch.linspace(-1, 1, whole.numel()).reshape(whole.shape)).sum().backward()
            gradients.append([part.grad for part in parts])
    torch.testing.assert_close(actual[1], actual[0], atol=2e-6, rtol=1e-5)
    for left, other in zip(*gradients[::-1], strict=True) if gradients else ():
        torch.testing.assert_close(left, other, atol=5e-6, rtol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("window", [None, 4])
def test_on_a_gpu_flex_attention_and_its_gradients_are_those_of_runs(window):
    forest = grow_forest(batch_of(BATCHES["trees"]()).to("cuda"), share=True)
    actual = []
    for kernel in ("runs", "flex"):
        parts = [part.detach().cuda().requires_grad_() for part in heads(len(forest.ids), requires_grad=False)]
        whole = attention_of(forest, kernel)(*parts, scale=None, window=window)
        whole.square().sum().backward()
        actual.append([whole.detach(), *(part.grad for part in parts)])
    for left, other in zip(*actual, strict=True):
        torch.testing.assert_close(left, other, atol=1e-3, rtol=1e-3)


def test_a_model_has_its_own_attention_before_and_after():
    model = random_model("qwen2")
    own = model.config._attn_implementation
    ids = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        before = model(input_ids=ids).logits
        with pytest.raises(ConfigError, match="does not pass the forest on"), attending(model):
            model(input_ids=ids)
        assert model.config._attn_implementation == model.model.config._attn_implementation == own
        assert torch.equal(model(input_ids=ids).logits, before)


def test_attention_inside_attention_stays():
    model = random_model("qwen2")
    forest = grow_forest(rows_batch(HAND), share=True)
    given = {"input_ids": forest.ids[None], "position_ids": forest.depth[None], "use_cache": False}
    with torch.no_grad(), attending(model):
        with attending(model):
            left = model(**given, forest_attention=attention_of(forest, "runs")).logits
        other = model(**given, forest_attention=attention_of(forest, "mask")).logits
    torch.testing.assert_close(left, other, atol=1e-5, rtol=1e-5)


# Calls cost nothing, something, or everything.
PRICES = [Prices(0, 0, 1, 0), Prices(200, 3, 2, 1), Prices(1e9, 0, 1, 1)]


def cost(stretches, prices, heads=1, size=1):
    """Return the cost of some calls, as `Prices` defines it."""
    total = 0.0
    for start, stop, keys in stretches:
        pairs = (stop - start) * len(keys) * heads
        total += prices.call + prices.number * len(keys) * heads * size + pairs * (prices.pair + prices.product * size)
    return total


def test_calls_by_hand():
    # 5 6 7, then 8 4 3 below 5 6, then 9 below 5 6 8.
    line = grow_forest(rows_batch(HAND), share=True).line
    apart = cut_line(line, heads=1, size=1, prices=Prices(0, 0, 1, 0))
    calls = [(left.start, left.stop, left.keys.tolist()) for left in apart]
    assert calls == [(0, 3, [0, 1, 2]), (3, 6, [0, 1, 3, 4, 5]), (6, 7, [0, 1, 3, 6])]
    together = cut_line(line, heads=1, size=1, prices=Prices(1000, 0, 1, 0))
    assert [(left.start, left.stop, left.keys.tolist()) for left in together] == [(0, 7, list(range(7)))]


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("prices", PRICES)
@pytest.mark.parametrize("name", BATCHES)
def test_stretches_are_the_line_and_their_tokens_see_nothing_but_their_keys(name, prices, share):
    forest = grow_forest(batch_of(BATCHES[name]()), share=share)
    seen = seen_in_rows(forest)
    stretches = cut_line(forest.line, heads=1, size=1, prices=prices)
    assert [left.start for left in stretches] + [len(forest.ids)] == [0, *(left.stop for left in stretches)]
    for start, stop, keys in stretches:
        assert set(keys.tolist()) == set(seen[start:stop].any(dim=0).nonzero()[:, 0].tolist())
        assert (np.diff(keys) > 0).all()


@pytest.mark.parametrize("prices", PRICES)
@pytest.mark.parametrize("seed", seeds(2, 6))
def test_no_other_cuts_cost_less(seed, prices):
    forest = grow_forest(batch_of(random_groups(seed, trees=1, groups=1, turns=2)), share=True)
    size = len(forest.ids)
    seen = seen_in_rows(forest)
    firsts = [token for token in range(1, size) if int(forest.before[token]) != token - 1][:10]

    def stretches(cuts):
        for start, stop in zip([0, *cuts], [*cuts, size], strict=True):
            yield start, stop, seen[start:stop].any(dim=0).nonzero()[:, 0]

    actual = cost(cut_line(forest.line, heads=2, size=4, prices=prices), prices, heads=2, size=4)
    every = (cuts for number in range(len(firsts) + 1) for cuts in combinations(firsts, number))
    assert actual <= min(cost(stretches(cuts), prices, heads=2, size=4) for cuts in every) + 1e-6


def test_a_long_row_is_cut_because_half_of_its_square_is_discarded():
    line = grow_forest(rows_batch([list(torch.arange(1, 301).tolist())]), share=False).line
    stops = [left.stop for left in cut_line(line, heads=1, size=1, prices=Prices(0, 0, 1, 0))]
    assert stops == [*range(GRAIN, 300, GRAIN), 300]
    assert len(cut_line(line, heads=1, size=1, prices=Prices(1e9, 0, 1, 0))) == 1


def long_rows(seed, count=5, longest=500):
    """Return a batch of rows that part at any depth, long enough for several blocks."""
    draw = torch.Generator().manual_seed(seed)
    rows = [torch.randint(1, 40, (longest,), generator=draw).tolist()]
    for _ in range(count - 1):
        cut, length = (int(number) for number in torch.randint(2, longest, (2,), generator=draw))
        other = rows[int(torch.randint(len(rows), (1,), generator=draw))]
        rows.append(other[:cut] + torch.randint(1, 40, (length,), generator=draw).tolist())
    return rows_batch(rows)


def looked_at(mask, size):
    """Return which pairs a block mask lets a kernel look at, and which it does not even ask about, both `[U, U]`."""

    def pairs(counts, numbers):
        blocks = torch.zeros(counts.shape[-1], numbers.shape[-1], dtype=torch.bool)
        for row, count in enumerate(counts[0, 0].tolist()):
            blocks[row, numbers[0, 0, row, :count].long()] = True
        return blocks.repeat_interleave(SIDE, 0).repeat_interleave(SIDE, 1)[:size, :size]

    full = pairs(mask.full_kv_num_blocks, mask.full_kv_indices)
    return pairs(mask.kv_num_blocks, mask.kv_indices) | full, full


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("window", [None, 200])
@pytest.mark.parametrize("seed", range(2))
def test_blocks_are_those_that_hold_pairs(seed, window, share):
    forest = grow_forest(long_rows(seed), share=share)
    size = len(forest.ids)
    actual, full = looked_at(block_mask(forest, window), size)
    seen = seen_in_rows(forest, window)
    assert not (seen & ~actual).any()
    assert seen[full].all()
    expected = create_block_mask(sees(forest, window), None, None, size, size, device="cpu", BLOCK_SIZE=SIDE)
    if window is None:
        assert torch.equal(actual, looked_at(expected, size)[0])
        assert torch.equal(full, looked_at(expected, size)[1])
        # Most of it is left out or not asked about.
        assert (~actual | full).float().mean() > 0.5


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("window", [None, 200])
def test_several_blocks_of_flex_attention_are_the_dense_mask(window):
    forest = grow_forest(long_rows(4, count=4, longest=300), share=True)
    parts = heads(len(forest.ids), requires_grad=False)
    actual = [attention_of(forest, kernel)(*parts, scale=None, window=window) for kernel in ("mask", "flex", "runs")]
    for other in actual[1:]:
        torch.testing.assert_close(other, actual[0], atol=2e-6, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("kernel", ["runs", "flex"])
def test_under_autocast_queries_may_be_more_precise_than_values(kernel):
    forest = grow_forest(rows_batch([[1, 2, 3, 4, 5], [1, 2, 3, 9, 8, 7], [1, 5, 5]]), share=True)
    query, key, value = heads(len(forest.ids), requires_grad=False)
    with torch.autocast("cpu", torch.bfloat16):
        actual = attention_of(forest, kernel)(query, key, value.bfloat16(), scale=None, window=None)
    assert actual.dtype == torch.bfloat16
    expected = attention_of(forest, "mask")(query, key, value, scale=None, window=None)
    torch.testing.assert_close(actual.float(), expected, atol=3e-2, rtol=3e-2)
