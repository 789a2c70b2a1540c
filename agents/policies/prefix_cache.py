"""PrefixCache and SharedRows: keys and values that are computed once and read by many samples.

The cache finds keys and values of earlier calls by the tokens that they stand for. A shared row holds the keys and
values of a prompt and of the samples that are generated next to each other in it: every step adds a slot for each
sample, and a sample sees the prompt's slots and its own.
"""

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import Cache
from transformers.cache_utils import DynamicLayer

from tsr_gym.agents.policies.parameters import WeightWatch

# Steps for which a layer makes room at once.
STEPS = 16
# Attention of every sample is computed over the slots of all samples of its row and then masked. Sharing pays while
# these are fewer than the prompt's slots; afterwards each sample gets a separate row. Rows are narrow enough for at
# least this many steps before that.
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
        # After a selection of rows, `keys` is a new tensor that does not lie in the reserved room.
        if self._room is None or self.keys is not self._last or start + count > self._room[0].shape[2]:
            more = min(count * STEPS, start + count)
            self._room = _with_room(self.keys, more), _with_room(self.values, more)
        for room, new in zip(self._room, (key_states, value_states), strict=True):
            room[:, :, start : start + count] = new
        self.keys, self.values = (room[:, :, : start + count] for room in self._room)
        self._last = self.keys
        return self.keys, self.values


def _with_room(states: Tensor, more: int) -> Tensor:
    rows, heads, slots, width = states.shape
    room = states.new_empty(rows, heads, slots + more, width)
    room[:, :, :slots] = states
    return room


def roomy_cache(layers: int) -> Any:
    """Return an empty cache for a number of layers of full attention."""
    return Cache(layers=[RoomyLayer() for _ in range(layers)])


class Places(NamedTuple):
    """The places of samples in rows.

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
    """Return the width of at most `most` samples with which few places stay empty."""
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
        """Continue with some rows only."""
        self.cache.batch_select_indices(rows)
        self.samples, self.seen = self.samples[rows], self.seen[rows]

    def grow(self, going: Tensor) -> None:
        """Add a slot for each sample; each running sample `[R, W]` sees only its own."""
        own = torch.eye(self.width, dtype=torch.bool, device=going.device) & going[:, :, None]
        self.seen = torch.cat([self.seen, own], dim=2)

    def crowded(self) -> bool:
        """Whether the samples' own slots have become too many to be shared."""
        # Every step adds a slot for each of the W samples of a row, of which a sample sees its own. Beyond the length
        # of the prompt, the slots of the others cost more than the shared prompt saves.
        own = self.seen.shape[2] - self._prompt_slots
        return self.width > 1 and own > self._prompt_slots

    def spread(self) -> None:
        """Give every sample a separate row with the same visible slots."""
        rows, width, slots = self.seen.shape
        self.cache.batch_select_indices(torch.arange(rows, device=self.samples.device).repeat_interleave(width))
        self.samples, self.seen = self.samples.reshape(-1, 1), self.seen.reshape(-1, 1, slots)


Tokens = tuple[int, ...]


# Of the polynomial hash: a Mersenne prime, and a base far from small tokens.
_PRIME, _BASE = 2**61 - 1, 0x9E3779B97F4A7C15 % (2**61 - 1)


def prefix_hashes(tokens: Tokens) -> list[int]:
    """Return the hash of every beginning of some tokens, the shortest first: ``h = (h base + token + 1) mod prime``.

    >>> prefix_hashes((7, 8, 9))[:2] == prefix_hashes((7, 8))
    True
    """
    hashes, value = [], 1
    for token in tokens:
        value = (value * _BASE + token + 1) % _PRIME
        hashes.append(value)
    return hashes


class Rows(NamedTuple):
    """Sequences with their keys and values.

    Attributes:
        layers: Per layer, keys and values `[R, H, S, D]`.
        filled: `[N, S]`, True where a slot holds one of a sequence's tokens; the others are gaps.
        rows: The row of each sequence `[N]`; several may share one.
    """

    layers: list[tuple[Tensor, Tensor]]
    filled: Tensor
    rows: Tensor

    @property
    def num_bytes(self) -> int:
        """Memory of keys and values."""
        return sum(part.numel() * part.element_size() for layer in self.layers for part in layer)


class Prefix(NamedTuple):
    """A cached beginning: the first `length` tokens of a sequence of some rows; without rows, an empty one."""

    rows: Rows | None
    sequence: int
    length: int


NOTHING = Prefix(None, 0, 0)


class _Remembered(NamedTuple):
    tokens: Tokens
    prefix: Prefix


class PrefixCache:
    """Remember rows by their tokens, the newest first, within a limit of memory.

    Looking a prompt up takes time in proportion to its length, however much is remembered: the hashes of all its
    beginnings come from one walk over its tokens.

    Args:
        model: Whose keys and values they are.
        max_bytes: Most memory; the oldest rows go first.
    """

    def __init__(self, model: Any, *, max_bytes: int) -> None:
        self.layers = int(model.config.num_hidden_layers)
        self.device = next(model.parameters()).device
        self.max_bytes = max_bytes
        self._weights = WeightWatch(model)
        self._bytes = 0
        self._kept: deque[tuple[Rows, list[int]]] = deque()
        self._entries: dict[int, _Remembered] = {}

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()
        self._entries.clear()
        self._bytes = 0

    def refresh(self) -> None:
        """Forget everything if the model's parameters have changed since the last call."""
        if self._weights.changed():
            self.clear()

    def find(self, prompt: Tokens) -> Prefix:
        """Return the longest cached beginning of a prompt that leaves at least its last token to compute."""
        if not self._entries:
            return NOTHING
        hashes = prefix_hashes(prompt[:-1])
        for length in range(len(hashes), 0, -1):
            entry = self._entries.get(hashes[length - 1])
            # Other tokens may have the same hash.
            if entry is not None and entry.tokens == prompt[:length]:
                return entry.prefix
        return NOTHING

    def keep(self, cache: Any, filled: Tensor, spoken: Sequence[tuple[Tokens, Tokens]], rows: Tensor) -> None:
        """Remember the sequences of a cache.

        Args:
            cache: A cache of R rows.
            filled: `[N, S]`, True where a slot holds one of the sequence's tokens.
            spoken: Per sequence, its prompt and its sampled tokens; the last of them has no keys and values yet.
            rows: The row of each sequence `[N]`.
        """
        kept = Rows([(layer.keys, layer.values) for layer in cache.layers], filled, rows)
        keys = []
        for number, (prompt, sampled) in enumerate(spoken):
            tokens = prompt + sampled[:-1]
            hashes = prefix_hashes(tokens)
            # Two beginnings can be continued later: the prompt without its last token, by other samples of the same
            # prompt, and the whole sequence, by the next turn of the episode.
            for length in {len(prompt) - 1, len(tokens)} - {0}:
                key = hashes[length - 1]
                self._entries[key] = _Remembered(tokens[:length], Prefix(kept, number, length))
                keys.append(key)
        self._kept.append((kept, keys))
        self._bytes += kept.num_bytes
        # The newest rows stay, however large they are: the next call continues them.
        while len(self._kept) > 1 and self._bytes > self.max_bytes:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        dropped, keys = self._kept.popleft()
        self._bytes -= dropped.num_bytes
        for key in keys:
            entry = self._entries.get(key)
            # A later entry for the same tokens stays.
            if entry is not None and entry.prefix.rows is dropped:
                del self._entries[key]

    def gather(self, prefixes: Sequence[Prefix]) -> tuple[Any, Tensor]:
        """Return a new cache with one row per prefix and without gaps, and which of its slots are filled."""
        longest = max(prefix.length for prefix in prefixes)
        lengths = torch.tensor([prefix.length for prefix in prefixes], device=self.device)
        filled = torch.arange(longest, device=self.device) < lengths[:, None]
        cache = roomy_cache(self.layers)
        for number in range(len(cache.layers) if longest else 0):
            cache.update(*self._layer(number, prefixes, longest), number)
        return cache, filled

    def _layer(self, number: int, prefixes: Sequence[Prefix], longest: int) -> tuple[Tensor, Tensor]:
        template = next(prefix.rows for prefix in prefixes if prefix.rows is not None).layers[number][0]
        heads, width = template.shape[1], template.shape[3]
        both = (
            template.new_zeros(len(prefixes), heads, longest, width),
            template.new_zeros(len(prefixes), heads, longest, width),
        )
        sources = {id(prefix.rows): prefix.rows for prefix in prefixes if prefix.rows is not None}
        for source in sources.values():
            targets = [index for index, prefix in enumerate(prefixes) if prefix.rows is source]
            sequences = torch.tensor([prefixes[index].sequence for index in targets], device=self.device)
            # A stable sort of the gaps brings the filled slots to the front without changing their order.
            slots = (~source.filled[sequences]).to(torch.int8).argsort(dim=1, stable=True)[:, :longest]
            rows = source.rows[sequences]
            order = slots[:, None, :, None].expand(-1, heads, -1, width)
            for part, into in zip(source.layers[number], both, strict=True):
                into[torch.tensor(targets, device=self.device), :, : slots.shape[1]] = part[rows].gather(2, order)
        return both
