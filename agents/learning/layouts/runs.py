"""Runs: attention over a forest in as many calls as cost least; each key is computed once.

The line of tokens is cut into stretches. What the tokens of a stretch see stands in the stretch itself or is seen by
its first token, because the line is in depth-first order. Few long stretches compute many pairs in vain, many short
ones take many calls.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from math import inf
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from tsr_gym.agents.learning.layouts.forest import Ids, Line, TokenForest, sees

# Masks of so many elements are kept in the form in which they are added to scores.
SMALL = 2**16
# Where a run of tokens may be cut as well: a call computes whole rectangles, and half of a square is in vain.
GRAIN = 64


class Prices(NamedTuple):
    """The costs of a call of attention, there and back, in nanoseconds.

    Attributes:
        call: Itself.
        number: Each number of a key, which is copied together with its value.
        pair: Each token that meets a key, for each head.
        product: Each product of two numbers where they meet.
    """

    call: float
    number: float
    pair: float
    product: float


# Roughly those of a CPU. Only their proportions matter, and only for which calls are joined; what a whole pass comes to
# is measured by benchmarks/learner_speed.py.
PRICES = Prices(call=150_000.0, number=3.0, pair=3.5, product=0.22)


class Stretch(NamedTuple):
    """A part of the line.

    Attributes:
        start: Its first token.
        stop: One past its last.
        keys: Numbers of all tokens that any of its tokens sees, in order; itself comes last.
    """

    start: int
    stop: int
    keys: Ids


def cut_line(line: Line, *, heads: int, size: int, prices: Prices = PRICES) -> list[Stretch]:
    """Return the stretches of a line that cost least, or nearly."""
    cuts = _places(line)
    above: list[int] = line.depth[cuts[:-1]].tolist()
    per_key, per_pair = prices.number * heads * size, heads * (prices.pair + prices.product * size)

    def price(one: int, other: int) -> float:
        tokens = cuts[other] - cuts[one]
        return prices.call + (above[one] + tokens) * (per_key + tokens * per_pair)

    chosen = _cheapest(len(above), price)
    return [_stretch(line, cuts[one], cuts[other]) for one, other in chosen]


def _places(line: Line) -> list[int]:
    """Return the places where the line may be cut, its ends included: before each run, and every few tokens within."""
    total = len(line.depth)
    firsts = np.flatnonzero(line.before != np.arange(total) - 1)
    starts = np.union1d(firsts, [0]).tolist()
    parts = zip(starts, [*starts[1:], total], strict=True)
    return [cut for start, stop in parts for cut in range(start, stop, GRAIN)] + [total]


def _cheapest(count: int, price: Callable[[int, int], float]) -> list[tuple[int, int]]:
    """Return the bounds of the cheapest groups of neighbours; no group costs more than its members apart."""
    apart = [0.0, *accumulate(price(one, one + 1) for one in range(count))]
    least, since = [0.0] + [inf] * count, [0] * (count + 1)
    for one in range(count):
        for other in range(one + 1, count + 1):
            together = price(one, other)
            if other > one + 1 and together > apart[other] - apart[one]:
                break
            if least[one] + together < least[other]:
                least[other], since[other] = least[one] + together, one
    groups, other = [], count
    while other:
        groups.append((since[other], other))
        other = since[other]
    return groups[::-1]


def _stretch(line: Line, start: int, stop: int) -> Stretch:
    above = np.flatnonzero(line.end[:start] > start)
    return Stretch(start, stop, np.concatenate([above, np.arange(start, stop)]))


class ByRuns:
    """Attention in several calls over a forest, without much that is computed in vain."""

    def __init__(self, forest: TokenForest) -> None:
        self.forest = forest
        self.calls: dict[tuple[int, int], _Calls] = {}
        self.masks: dict[tuple[Any, ...], Tensor] = {}

    # A forest is read in Python, which a compiler would compile anew for each.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def __call__(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float | None, window: int | None) -> Tensor:
        """Attend, see `Attention`."""
        heads, size = query.shape[1], query.shape[3]
        if (heads, size) not in self.calls:
            self.calls[heads, size] = _plan_calls(self.forest.line, heads=heads, size=size)
        calls = self.calls[heads, size]
        query, key = query.to(value.dtype), key.to(value.dtype)
        keys, values = (torch.split(part, calls.pieces, dim=2) for part in (key, value))
        found = []
        for asked, stretch, path in zip(torch.split(query, calls.lengths, dim=2), *calls[2:], strict=True):
            mask = self._mask(stretch, window, query.dtype)
            found.append(_grouped(asked, _joined(keys, path), _joined(values, path), mask, scale))
        return torch.cat(found, dim=2)

    def _mask(self, stretch: Stretch, window: int | None, dtype: torch.dtype) -> Tensor:
        """Return the mask of the keys that the tokens of a stretch see; the same for all rows that go straight on."""
        tokens, keys = stretch.stop - stretch.start, len(stretch.keys)
        straight = keys == int(self.forest.line.depth[stretch.stop - 1]) + 1
        about = (tokens, keys if straight else None, None if straight else stretch.start, window, dtype)
        if about not in self.masks:
            device = self.forest.ids.device
            seeing = torch.arange(stretch.start, stretch.stop, device=device)[:, None]
            mask = sees(self.forest, window)(0, 0, seeing, torch.from_numpy(stretch.keys).to(device))
            # Attention would make this of it in every call, which takes long beside a small one.
            small = mask.numel() <= SMALL
            self.masks[about] = (
                torch.zeros(mask.shape, dtype=dtype, device=device).masked_fill(~mask, -inf) if small else mask
            )
        return self.masks[about]


class _Calls(NamedTuple):
    """Calls of attention: pieces of the line between all its cuts, and for each call, its tokens and its keys."""

    pieces: list[int]
    lengths: list[int]
    stretches: list[Stretch]
    paths: list[list[int]]


def _plan_calls(line: Line, *, heads: int, size: int) -> _Calls:
    stretches = cut_line(line, heads=heads, size=size)
    gaps = [np.flatnonzero(np.diff(stretch.keys, prepend=-2) != 1) for stretch in stretches]
    firsts = [stretch.keys[gap] for stretch, gap in zip(stretches, gaps, strict=True)]
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
    """Attend; heads that share keys are rows of a batch, for which nothing is copied."""
    _, heads, tokens, size = query.shape
    times = heads // key.shape[1]
    if times == 1:
        return scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)
    key, value = (part.transpose(0, 1).expand(-1, times, -1, -1) for part in (key, value))
    asked = query.reshape(-1, times, tokens, size)
    found = scaled_dot_product_attention(asked, key, value, attn_mask=mask, scale=scale)
    return found.reshape(1, heads, tokens, -1)
