"""Blocks: attention over a forest in one call, by a dense mask or by FlexAttention, which leaves out empty blocks."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

from tsr_gym.agents.learning.layouts.forest import Line, TokenForest, sees

# Tokens and keys of a block.
SIDE = 128
# It is compiled when it is first called.
_compiled: Callable[..., Any] = torch.compile(flex_attention, dynamic=True)


class ByMask:
    """Attention with a dense mask."""

    def __init__(self, forest: TokenForest) -> None:
        self.forest = forest
        self.masks: dict[int | None, Tensor] = {}

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float | None, window: int | None) -> Tensor:
        """Attend, see `Attention`."""
        if window not in self.masks:
            numbers = torch.arange(query.shape[2], device=query.device)
            self.masks[window] = sees(self.forest, window)(0, 0, numbers[:, None], numbers)
        key, value = _for_each_head(query, key), _for_each_head(query, value)
        return scaled_dot_product_attention(query, key, value, attn_mask=self.masks[window], scale=scale)


class ByBlocks:
    """FlexAttention, compiled on a GPU; it has no backward pass on CPU."""

    def __init__(self, forest: TokenForest) -> None:
        self.forest = forest
        self.masks: dict[int | None, BlockMask] = {None: block_mask(forest)}

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float | None, window: int | None) -> Tensor:
        """Attend, see `Attention`."""
        if window not in self.masks:
            self.masks[window] = block_mask(self.forest, window)
        # Under autocast only values come in low precision: keys and queries were turned by angles in float32.
        query, key = query.to(value.dtype), key.to(value.dtype)
        shared = key.shape[1] != query.shape[1]
        # Inside of what is compiled anyway it need not be compiled once more.
        flex: Callable[..., Any] = flex_attention
        if query.is_cuda and not torch.compiler.is_compiling():
            flex = _compiled
        found: Tensor = flex(query, key, value, block_mask=self.masks[window], scale=scale, enable_gqa=shared)
        return found


@torch.compiler.disable  # type: ignore[untyped-decorator]
def block_mask(forest: TokenForest, window: int | None = None) -> BlockMask:
    """Return the mask of which blocks of 128 tokens see some, or all, of which blocks of 128 keys.

    It is what `create_block_mask` returns for `sees`, without a look at every pair: of 32,000 tokens that would be a
    thousand million.

    Args:
        forest: Tokens.
        window: How many tokens back a token sees, itself included; None for all.
    """
    some, full = _blocks(forest.line, window)
    total = len(forest.line.end)
    made = BlockMask.from_kv_blocks(
        *_listed(some & ~full),
        *_listed(full),
        BLOCK_SIZE=SIDE,
        mask_mod=sees(forest, window),
        seq_lengths=(total, total),
    )
    moved: BlockMask = made.to(forest.ids.device)
    return moved


def _blocks(line: Line, window: int | None) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return masks of the blocks in which some token sees some key, and in which all see all, `[blocks, blocks]`."""
    total = len(line.end)
    number = np.arange(-(-total // SIDE))

    def least(values: NDArray[np.int64], missing: int) -> NDArray[np.int64]:
        filled = np.pad(values, (0, len(number) * SIDE - total), constant_values=missing)
        lowest: NDArray[np.int64] = filled.reshape(-1, SIDE).min(axis=1)
        return lowest

    before = number < number[:, None]
    # The first token of a later block sees a key first, its last one last.
    some = before & (-least(-line.end, 0) > number[:, None] * SIDE) | np.eye(len(number), dtype=bool)
    full = before & (least(line.end, 0) >= (number[:, None] + 1) * SIDE)
    if window is not None:
        lowest, highest = least(line.depth, 2**62), -least(-line.depth, 2**62)
        some &= lowest[:, None] - highest < window
        full &= highest[:, None] - lowest < window
    return some, full


def _listed(blocks: NDArray[np.bool_]) -> tuple[Tensor, Tensor]:
    """Return the count of each row's blocks, `[1, 1, rows]`, and all numbers, its own first, `[1, 1, rows, blocks]`."""
    order = np.argsort(~blocks, axis=1, kind="stable")
    counts = blocks.sum(axis=1)
    numbers = [torch.from_numpy(part.astype(np.int32))[None, None] for part in (counts, order)]
    return numbers[0], numbers[1]


def _for_each_head(query: Tensor, part: Tensor) -> Tensor:
    times = query.shape[1] // part.shape[1]
    return part if times == 1 else part.repeat_interleave(times, dim=1)
