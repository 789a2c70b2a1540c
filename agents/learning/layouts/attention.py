"""Attention over a forest of tokens, by three kernels: each token sees itself and the tokens before it in its rows.

It replaces a model's own attention inside `attending`, layer by layer, so that keys and values of a token are computed
once for all rows that share it, and their gradients add up.

- `ByRuns` cuts the line of tokens into stretches, one call of attention each. The line is in depth-first order, so that
  the tokens of a stretch see only tokens of the stretch and tokens that its first token sees. Few long stretches
  compute many pairs that the mask discards, many short ones take many calls; `cut_line` chooses the cheapest cuts.
- `ByMask` is one call with a dense mask, for tests and short rows.
- `ByBlocks` is one call of FlexAttention, which skips empty blocks; for GPUs.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from itertools import accumulate
from math import inf
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from tsr_gym.agents.learning.layouts.forest import Ids, Line, TokenForest, sees
from tsr_gym.errors import ConfigError

NAME = "tsr_gym_forest"

Kernel = Literal["runs", "mask", "flex"]

# Masks up to so many elements are kept as the floats that are added to scores, larger ones as booleans.
SMALL = 2**16
# A run of tokens may also be cut every so many tokens: a call computes whole rectangles, and a long run seen by itself
# is a triangle, half of which is discarded.
GRAIN = 64
# Tokens and keys of a block of FlexAttention.
SIDE = 128


@cache
def _compiled() -> Callable[..., Any]:
    """Return FlexAttention, to be compiled at its first call; the compiler's import takes a second."""
    compiled: Callable[..., Any] = torch.compile(flex_attention, dynamic=True)
    return compiled


class Attention(Protocol):
    """Attention over the tokens of one forest."""

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float | None, window: int | None) -> Tensor:
        """Return the attention of each token to the tokens that it sees, `[1, H, U, D]`.

        Args:
            query: `[1, H, U, D]`.
            key: `[1, K, U, D]`; each of the K heads serves H / K heads of the query.
            value: `[1, K, U, D]`.
            scale: Factor of the scores; None for ``D ** -0.5``.
            window: Number of tokens that a token sees, itself included; None for all.
        """
        ...


def attention_of(forest: TokenForest, kernel: Kernel | None = None) -> Attention:
    """Return the attention over a forest.

    Args:
        forest: The tokens and their order.
        kernel: ``"runs"``: a call for each run of tokens, or for several where that costs less. ``"mask"``: one call
            with a dense mask. ``"flex"``: one call of FlexAttention, which skips empty blocks; it has no backward pass
            on a CPU. None for flex on a GPU and runs elsewhere.
    """
    kernels: dict[Kernel, Callable[[TokenForest], Attention]] = {"runs": ByRuns, "mask": ByMask, "flex": ByBlocks}
    return kernels[kernel or ("flex" if forest.ids.is_cuda else "runs")](forest)


def _attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    forest_attention: Attention | None = None,
    **unused: Any,  # Transformers passes all arguments of a layer to its attention.
) -> tuple[Tensor, None]:
    """Return the attention over a forest, with the signature that transformers calls."""
    if forest_attention is None:
        raise ConfigError("the model does not pass the forest on to its attention: use the padded layout")
    if dropout or softcap is not None or s_aux is not None or position_bias is not None:
        raise ConfigError(
            "attention with dropout, capped scores, sinks or a position bias works only in the padded layout: use it"
        )
    attended = forest_attention(query, key, value, scale=scaling, window=sliding_window)
    return attended.transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, _attend)


@contextmanager
def attending(*models: Any) -> Iterator[None]:
    """Make Hugging Face models attend to the forest in their inputs; restore their own attention at the end.

    A backward pass that recomputes activations must run inside, too.

    Raises:
        ConfigError: A model's attention cannot be replaced.
    """
    with ExitStack() as stack:
        for model in models:
            own = model.config._attn_implementation
            if own == NAME:
                continue
            stack.callback(model.set_attn_implementation, own)
            model.set_attn_implementation(NAME)
            if model.config._attn_implementation != NAME:
                raise ConfigError(
                    f"{type(model).__name__} does not use the attention of transformers: use the padded layout"
                )
        yield


class Prices(NamedTuple):
    """The costs of a call of attention, forward and backward, in nanoseconds.

    Attributes:
        call: Fixed cost of a call.
        number: Cost per number of a key, which is copied together with its value.
        pair: Cost per pair of token and key, for each head.
        product: Cost per product of two numbers of a pair.
    """

    call: float
    number: float
    pair: float
    product: float


# Approximately those of a CPU. Only their proportions matter, and only for the choice of calls to join. The time of a
# whole pass is measured by benchmarks/learner_speed.py.
PRICES = Prices(call=150_000.0, number=3.0, pair=3.5, product=0.22)


class Stretch(NamedTuple):
    """A part of the line.

    Attributes:
        start: Its first token.
        stop: One past its last.
        keys: Numbers of all tokens that any of its tokens sees, in order; its own come last.
    """

    start: int
    stop: int
    keys: Ids


def cut_line(line: Line, *, heads: int, size: int, prices: Prices = PRICES) -> list[Stretch]:
    """Return the stretches of a line at least cost, or nearly."""
    cuts = _places(line)
    # The first token of a stretch sees as many tokens before the stretch as it is deep.
    above: list[int] = line.depth[cuts[:-1]].tolist()
    per_key, per_pair = prices.number * heads * size, heads * (prices.pair + prices.product * size)

    def price(first: int, stop: int) -> float:
        # A call copies the keys above its first token and its own, and computes every pair of a token and a key, also
        # those that the mask discards.
        tokens = cuts[stop] - cuts[first]
        return prices.call + (above[first] + tokens) * (per_key + tokens * per_pair)

    return [_stretch(line, cuts[first], cuts[stop]) for first, stop in _cheapest(len(above), price)]


def _places(line: Line) -> list[int]:
    """Return the places where the line may be cut: before each run, every `GRAIN` tokens within it, and at the ends."""
    total = len(line.depth)
    firsts = np.flatnonzero(line.before != np.arange(total) - 1)
    starts = np.union1d(firsts, [0]).tolist()
    parts = zip(starts, [*starts[1:], total], strict=True)
    return [cut for start, stop in parts for cut in range(start, stop, GRAIN)] + [total]


def _cheapest(count: int, price: Callable[[int, int], float]) -> list[tuple[int, int]]:
    """Return the bounds (first, stop) of the cheapest groups of neighbours, by dynamic programming.

    ``least[stop]`` is the least cost of everything before `stop`, and ``since[stop]`` where its last group begins. The
    inner loop ends at the first group that costs more than its members apart. Larger ones could be cheaper in theory;
    leaving them out keeps the search short.
    """
    apart = [0.0, *accumulate(price(first, first + 1) for first in range(count))]
    least, since = [0.0] + [inf] * count, [0] * (count + 1)
    for first in range(count):
        for stop in range(first + 1, count + 1):
            together = price(first, stop)
            if stop > first + 1 and together > apart[stop] - apart[first]:
                break
            if least[first] + together < least[stop]:
                least[stop], since[stop] = least[first] + together, first
    groups, stop = [], count
    while stop:
        groups.append((since[stop], stop))
        stop = since[stop]
    return groups[::-1]


def _stretch(line: Line, start: int, stop: int) -> Stretch:
    # Tokens before the stretch whose subtree reaches into it: those that its first token sees.
    above = np.flatnonzero(line.end[:start] > start)
    return Stretch(start, stop, np.concatenate([above, np.arange(start, stop)]))


class ByRuns:
    """Attention over a forest in several calls, which compute few pairs that the mask discards."""

    def __init__(self, forest: TokenForest) -> None:
        self.forest = forest
        self.calls: dict[tuple[int, int], _Calls] = {}
        self.masks: dict[tuple[Any, ...], Tensor] = {}

    # The loop over stretches depends on the forest, and a compiler would compile it anew for each.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def __call__(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float | None, window: int | None) -> Tensor:
        """Attend, see `Attention`."""
        heads, size = query.shape[1], query.shape[3]
        if (heads, size) not in self.calls:
            self.calls[heads, size] = _plan_calls(self.forest.line, heads=heads, size=size)
        calls = self.calls[heads, size]
        query, key = query.to(value.dtype), key.to(value.dtype)
        keys, values = (torch.split(part, calls.pieces, dim=2) for part in (key, value))
        attended = []
        for part, stretch, path in zip(torch.split(query, calls.lengths, dim=2), *calls[2:], strict=True):
            mask = self._mask(stretch, window, query.dtype)
            attended.append(_grouped(part, _joined(keys, path), _joined(values, path), mask, scale))
        return torch.cat(attended, dim=2)

    def _mask(self, stretch: Stretch, window: int | None, dtype: torch.dtype) -> Tensor:
        """Return the mask of the keys that the tokens of a stretch see, `[tokens, keys]`.

        Stretches that continue one row without a branch have masks that depend on their sizes alone, and share them.
        """
        tokens, keys = stretch.stop - stretch.start, len(stretch.keys)
        straight = keys == int(self.forest.line.depth[stretch.stop - 1]) + 1
        about = (tokens, keys if straight else None, None if straight else stretch.start, window, dtype)
        if about not in self.masks:
            device = self.forest.ids.device
            seeing = torch.arange(stretch.start, stretch.stop, device=device)[:, None]
            mask = sees(self.forest, window)(0, 0, seeing, torch.from_numpy(stretch.keys).to(device))
            # Attention converts booleans to floats in every call, which takes long compared with a small call.
            small = mask.numel() <= SMALL
            self.masks[about] = (
                torch.zeros(mask.shape, dtype=dtype, device=device).masked_fill(~mask, -inf) if small else mask
            )
        return self.masks[about]


class _Calls(NamedTuple):
    """The calls of attention over a line.

    Keys and values are split once into pieces, at every place where the keys of some call begin or end. A call then
    joins whole pieces, so that the backward pass adds a few slices instead of scattering single keys.

    Attributes:
        pieces: Lengths of the pieces, in the order of the line.
        lengths: Tokens of each call.
        stretches: The stretch of each call.
        paths: Numbers of the pieces that hold the keys of each call.
    """

    pieces: list[int]
    lengths: list[int]
    stretches: list[Stretch]
    paths: list[list[int]]


def _plan_calls(line: Line, *, heads: int, size: int) -> _Calls:
    stretches = cut_line(line, heads=heads, size=size)
    # Keys of a stretch are intervals of the line: gaps are where they begin, firsts and lasts their bounds.
    gaps = [np.flatnonzero(np.diff(stretch.keys, prepend=-2) != 1) for stretch in stretches]
    firsts = [stretch.keys[gap] for stretch, gap in zip(stretches, gaps, strict=True)]
    # The key before each following gap is the last of its interval; index -1 is the last key of all.
    lasts = [stretch.keys[np.append(gap[1:], 0) - 1] for stretch, gap in zip(stretches, gaps, strict=True)]
    starts = np.unique(
        np.concatenate([*firsts, *(last + 1 for last in lasts), [stretch.start for stretch in stretches]])
    )
    edges = starts[starts < len(line.depth)]
    paths = [np.unique(np.searchsorted(edges, stretch.keys, side="right") - 1).tolist() for stretch in stretches]
    lengths = [stretch.stop - stretch.start for stretch in stretches]
    return _Calls(np.diff(edges, append=len(line.depth)).tolist(), lengths, stretches, paths)


def _joined(parts: Sequence[Tensor], path: Sequence[int]) -> Tensor:
    return parts[path[0]] if len(path) == 1 else torch.cat([parts[piece] for piece in path], dim=2)


def _grouped(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float | None) -> Tensor:
    """Return the attention of grouped heads: heads that share keys become rows of a batch, so that no key is copied."""
    _, heads, tokens, size = query.shape
    times = heads // key.shape[1]
    if times == 1:
        return scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)
    key, value = (part.transpose(0, 1).expand(-1, times, -1, -1) for part in (key, value))
    grouped = query.reshape(-1, times, tokens, size)
    attended = scaled_dot_product_attention(grouped, key, value, attn_mask=mask, scale=scale)
    return attended.reshape(1, heads, tokens, -1)


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
        # Under autocast only values come in low precision: rotary embeddings leave keys and queries in float32.
        query, key = query.to(value.dtype), key.to(value.dtype)
        shared = key.shape[1] != query.shape[1]
        # A model that is compiled as a whole compiles this, too.
        flex: Callable[..., Any] = flex_attention
        if query.is_cuda and not torch.compiler.is_compiling():
            flex = _compiled()
        attended: Tensor = flex(query, key, value, block_mask=self.masks[window], scale=scale, enable_gqa=shared)
        return attended


@torch.compiler.disable  # type: ignore[untyped-decorator]
def block_mask(forest: TokenForest, window: int | None = None) -> BlockMask:
    """Return the mask of the blocks of 128 tokens that see some, or all, of a block of 128 keys.

    It equals the result of `create_block_mask` for `sees`, which would look at every pair: a thousand million for
    32,000 tokens.

    Args:
        forest: Tokens.
        window: Number of tokens that a token sees, itself included; None for all.
    """
    some, full = _blocks(forest.line, window)
    total = len(forest.line.end)
    mask = BlockMask.from_kv_blocks(
        *_listed(some & ~full),
        *_listed(full),
        BLOCK_SIZE=SIDE,
        mask_mod=sees(forest, window),
        seq_lengths=(total, total),
    )
    on_device: BlockMask = mask.to(forest.ids.device)
    return on_device


def _blocks(line: Line, window: int | None) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return masks of the blocks in which some token sees some key, and in which all see all, `[blocks, blocks]`."""
    total = len(line.end)
    number = np.arange(-(-total // SIDE))

    def least(values: NDArray[np.int64], missing: int) -> NDArray[np.int64]:
        filled = np.pad(values, (0, len(number) * SIDE - total), constant_values=missing)
        lowest: NDArray[np.int64] = filled.reshape(-1, SIDE).min(axis=1)
        return lowest

    before = number < number[:, None]
    # A key k of a block is seen by the tokens up to end[k]. Some token of a later block sees some key where the largest
    # end lies beyond the block's first token; all see all where the smallest end lies beyond its last.
    some = before & (-least(-line.end, 0) > number[:, None] * SIDE) | np.eye(len(number), dtype=bool)
    full = before & (least(line.end, 0) >= (number[:, None] + 1) * SIDE)
    if window is not None:
        lowest, highest = least(line.depth, 2**62), -least(-line.depth, 2**62)
        some &= lowest[:, None] - highest < window
        full &= highest[:, None] - lowest < window
    return some, full


def _listed(blocks: NDArray[np.bool_]) -> tuple[Tensor, Tensor]:
    """Return the number of True blocks of each row, `[1, 1, rows]`, and their indices first, `[1, 1, rows, blocks]`."""
    order = np.argsort(~blocks, axis=1, kind="stable")
    counts = blocks.sum(axis=1)
    numbers = [torch.from_numpy(part.astype(np.int32))[None, None] for part in (counts, order)]
    return numbers[0], numbers[1]


def _for_each_head(query: Tensor, part: Tensor) -> Tensor:
    times = query.shape[1] // part.shape[1]
    return part if times == 1 else part.repeat_interleave(times, dim=1)
