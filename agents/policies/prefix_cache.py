"""PrefixCache: keys and values of what was said before, found again by the tokens they stand for."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import DynamicCache

Tokens = tuple[int, ...]


class Rows(NamedTuple):
    """Sequences with their keys and values.

    Attributes:
        layers: Per layer, keys and values `[R, H, S, D]`.
        filled: `[R, S]`, True where a slot holds one of the row's tokens; the others are gaps.
    """

    layers: list[tuple[Tensor, Tensor]]
    filled: Tensor

    @property
    def num_bytes(self) -> int:
        """Memory of keys and values."""
        return sum(part.numel() * part.element_size() for layer in self.layers for part in layer)


class Known(NamedTuple):
    """A beginning whose keys and values are there: the first `length` tokens of a row; without rows, nothing is."""

    rows: Rows | None
    row: int
    length: int


NOTHING = Known(None, 0, 0)


class PrefixCache:
    """Remember rows by their tokens, the newest first, within a limit of memory.

    Args:
        model: Whose keys and values they are.
        max_bytes: Most memory; the oldest rows go first.
    """

    def __init__(self, model: Any, *, max_bytes: int) -> None:
        self.config = model.config
        self.device = next(model.parameters()).device
        self.max_bytes = max_bytes
        self._kept: list[Rows] = []
        self._known: dict[Tokens, Known] = {}

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()
        self._known.clear()

    def find(self, prompt: Tokens) -> Known:
        """Return the longest known beginning of a prompt that leaves at least its last token to compute."""
        for length in sorted({len(tokens) for tokens in self._known}, reverse=True):
            if length < len(prompt) and prompt[:length] in self._known:
                return self._known[prompt[:length]]
        return NOTHING

    def keep(self, cache: Any, filled: Tensor, spoken: Sequence[tuple[Tokens, Tokens]]) -> None:
        """Remember the rows of a cache.

        Args:
            cache: A `DynamicCache` of R rows.
            filled: `[R, S]`, True where a slot holds one of the row's tokens.
            spoken: Per row, its prompt and what was said after it; the last token said was never computed.
        """
        rows = Rows([(layer.keys, layer.values) for layer in cache.layers], filled)
        self._kept.append(rows)
        for number, (prompt, said) in enumerate(spoken):
            for tokens in (prompt[:-1], prompt + said[:-1]):
                self._known[tokens] = Known(rows, number, len(tokens))
        while len(self._kept) > 1 and sum(kept.num_bytes for kept in self._kept) > self.max_bytes:
            dropped = self._kept.pop(0)
            self._known = {tokens: known for tokens, known in self._known.items() if known.rows is not dropped}

    def gather(self, found: Sequence[Known]) -> tuple[Any, Tensor]:
        """Return a new cache with one row per known beginning, gaps closed, and which of its slots are filled."""
        longest = max(known.length for known in found)
        lengths = torch.tensor([known.length for known in found], device=self.device)
        filled = torch.arange(longest, device=self.device) < lengths[:, None]
        cache = DynamicCache(config=self.config)
        for number in range(len(cache.layers) if longest else 0):
            cache.update(*self._layer(number, found, longest), number)
        return cache, filled

    def _layer(self, number: int, found: Sequence[Known], longest: int) -> tuple[Tensor, Tensor]:
        template = next(known.rows for known in found if known.rows is not None).layers[number][0]
        heads, width = template.shape[1], template.shape[3]
        both = (
            template.new_zeros(len(found), heads, longest, width),
            template.new_zeros(len(found), heads, longest, width),
        )
        sources = {id(known.rows): known.rows for known in found if known.rows is not None}
        for source in sources.values():
            targets = [index for index, known in enumerate(found) if known.rows is source]
            rows = torch.tensor([found[index].row for index in targets], device=self.device)
            slots = (~source.filled[rows]).to(torch.int8).argsort(dim=1, stable=True)[:, :longest]
            order = slots[:, None, :, None].expand(-1, heads, -1, width)
            for part, into in zip(source.layers[number], both, strict=True):
                into[torch.tensor(targets, device=self.device), :, : slots.shape[1]] = part[rows].gather(2, order)
        return both
