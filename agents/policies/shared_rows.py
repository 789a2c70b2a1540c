"""SharedRows: samples of one prompt in one row of a cache, so that what they have in common is read once for all.

A row holds the keys and values of a prompt and of the samples that stand side by side in it. Every step adds a slot for
each of them, and a sample sees the prompt's slots and its own.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import Cache
from transformers.cache_utils import DynamicLayer

# Steps for which a layer makes room at once.
STEPS = 16
# Every sample of a row is computed against the slots of all of them, so these may be as many as the prompt's, after
# which each sample gets a row of its own; a row is so wide that this comes after so many steps.
SHORT = 16
# Most places that may stay empty, in parts of the samples.
MOST_EMPTY = 0.25


class RoomyLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """Keys and values `[R, H, S, D]` with room for the next tokens: a step copies none of those before it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._room: tuple[Tensor, Tensor] | None = None
        self._last: Tensor | None = None

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Return all keys and values, the new ones last."""
        if self.keys is None or self.values is None or self.get_seq_length() == 0:
            return super().update(key_states, value_states, *args, **kwargs)
        start, count = self.keys.shape[2], key_states.shape[2]
        # Whoever selects rows leaves other tensors than those that lie in the room.
        if self._room is None or self.keys is not self._last or start + count > self._room[0].shape[2]:
            more = min(count * STEPS, start + count)
            self._room = _with_room(self.keys, more), _with_room(self.values, more)
        for room, new in zip(self._room, (key_states, value_states), strict=True):
            room[:, :, start : start + count] = new
        self.keys, self.values = (room[:, :, : start + count] for room in self._room)
        self._last = self.keys
        return self.keys, self.values


def _with_room(known: Tensor, more: int) -> Tensor:
    rows, heads, slots, width = known.shape
    room = known.new_empty(rows, heads, slots + more, width)
    room[:, :, :slots] = known
    return room


def roomy_cache(layers: int) -> Any:
    """Return an empty cache of so many layers of full attention."""
    return Cache(layers=[RoomyLayer() for _ in range(layers)])


class Places(NamedTuple):
    """Which samples stand where.

    Attributes:
        prompts: The prompt of each row, by its number `[R]`.
        samples: The samples in each row `[R, W]`, -1 where none stands.
    """

    prompts: Tensor
    samples: Tensor


def places_of(prompts: Sequence[int], *, slots: int) -> Places:
    """Return rows for samples, as wide as short answers allow and as leaves few places empty.

    Args:
        prompts: The prompt of each sample, by its number.
        slots: Slots of a row that the prompts take; 0 for a row for every sample.

    >>> places_of([0, 0, 1, 1, 1], slots=100).samples.tolist()
    [[0, 1, -1], [2, 3, 4]]
    """
    width = _width(list(Counter(prompts).values()), slots // SHORT)
    rows: list[tuple[int, list[int]]] = []
    open_row: dict[int, list[int]] = {}
    for sample, prompt in enumerate(prompts):
        if len(open_row.get(prompt, ())) % width == 0:
            open_row[prompt] = []
            rows.append((prompt, open_row[prompt]))
        open_row[prompt].append(sample)
    samples = [row + [-1] * (width - len(row)) for _, row in rows]
    return Places(torch.tensor([prompt for prompt, _ in rows]), torch.tensor(samples))


def _width(counts: Sequence[int], most: int) -> int:
    """Return the widest row of at most so many samples with which few places stay empty."""
    total = sum(counts)
    return next(
        width
        for width in range(max(1, min(most, max(counts))), 0, -1)
        if sum(-(-count // width) for count in counts) * width <= (1 + MOST_EMPTY) * total
    )


class SharedRows:
    """The rows of samples that are still being written.

    Args:
        cache: Keys and values of R rows, as the prompts left them.
        samples: Which samples stand where `[R, W]`, -1 where none does.
        filled: Slots of the cache that hold a token `[R, S]`.
    """

    def __init__(self, cache: Any, samples: Tensor, filled: Tensor) -> None:
        self.cache = cache
        self.samples = samples
        self.seen = filled[:, None].expand(-1, samples.shape[1], -1)
        self._prompt_slots = filled.shape[1]

    @property
    def width(self) -> int:
        """Samples in a row."""
        return self.samples.shape[1]

    def select(self, rows: Tensor) -> None:
        """Go on with some rows alone."""
        self.cache.batch_select_indices(rows)
        self.samples, self.seen = self.samples[rows], self.seen[rows]

    def grow(self, going: Tensor) -> None:
        """Add a slot for each sample, which those that go on `[R, W]` see, each its own."""
        own = torch.eye(self.width, dtype=torch.bool, device=going.device) & going[:, :, None]
        self.seen = torch.cat([self.seen, own], dim=2)

    def crowded(self) -> bool:
        """Whether the samples' own slots have become too many to be shared."""
        own = self.seen.shape[2] - self._prompt_slots
        return self.width > 1 and own > self._prompt_slots

    def spread(self) -> None:
        """Give every sample a row of its own, which sees what it saw."""
        rows, width, slots = self.seen.shape
        self.cache.batch_select_indices(torch.arange(rows, device=self.samples.device).repeat_interleave(width))
        self.samples, self.seen = self.samples.reshape(-1, 1), self.seen.reshape(-1, 1, slots)
