"""Blocks: those that FlexAttention looks at are those that PyTorch finds by a look at every pair."""

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask

from tests.agents.learning.layouts.test_attention import heads, seen_in_rows
from tests.agents.learning.layouts.test_forest import rows_batch
from tsr_gym.agents.learning.layouts import attention_of, grow_forest, sees
from tsr_gym.agents.learning.layouts.blocks import SIDE, block_mask


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
    found, full = looked_at(block_mask(forest, window), size)
    seen = seen_in_rows(forest, window)
    assert not (seen & ~found).any()
    assert seen[full].all()
    wanted = create_block_mask(sees(forest, window), None, None, size, size, device="cpu", BLOCK_SIZE=SIDE)
    if window is None:
        assert torch.equal(found, looked_at(wanted, size)[0])
        assert torch.equal(full, looked_at(wanted, size)[1])
        # Most of it is left out or not asked about.
        assert (~found | full).float().mean() > 0.5


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("window", [None, 200])
def test_several_blocks_of_flex_attention_are_the_dense_mask(window):
    forest = grow_forest(long_rows(4, count=4, longest=300), share=True)
    parts = heads(len(forest.ids), requires_grad=False)
    found = [attention_of(forest, kernel)(*parts, scale=None, window=window) for kernel in ("mask", "flex", "runs")]
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], atol=2e-6, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("kernel", ["runs", "flex"])
def test_under_autocast_queries_may_be_more_precise_than_values(kernel):
    forest = grow_forest(batch_of_words(), share=True)
    query, key, value = heads(len(forest.ids), requires_grad=False)
    with torch.autocast("cpu", torch.bfloat16):
        found = attention_of(forest, kernel)(query, key, value.bfloat16(), scale=None, window=None)
    assert found.dtype == torch.bfloat16
    wanted = attention_of(forest, "mask")(query, key, value, scale=None, window=None)
    torch.testing.assert_close(found.float(), wanted, atol=3e-2, rtol=3e-2)


def batch_of_words():
    return rows_batch([[1, 2, 3, 4, 5], [1, 2, 3, 9, 8, 7], [1, 5, 5]])
