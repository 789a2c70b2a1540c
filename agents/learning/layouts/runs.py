"""Runs: attention over a forest in as many calls as cost least, see `stretches`; each key is computed once."""

from collections.abc import Sequence
from math import inf
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from tsr_gym.agents.learning.layouts.forest import Line, TokenForest, sees
from tsr_gym.agents.learning.layouts.stretches import Stretch, cut_line

# Masks of so many elements are kept in the form in which they are added to scores.
SMALL = 2**16


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
