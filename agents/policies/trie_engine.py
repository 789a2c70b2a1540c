"""TrieEngine: sampling from small language models on a CPU, where a call costs more than its arithmetic.

All prompts and answers of a call stand in one trie, so equal beginnings are computed once, whichever samples share
them, and rows need no padding. Torch computes matrix products, compiled functions what lies between them.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain
from threading import Event
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tsr_gym.agents.policies.choose_engine import why_no_trie
from tsr_gym.agents.policies.engine import Capabilities, Completion, answer_limit, list_samples
from tsr_gym.agents.policies.parameters import WeightWatch, replace_parameters
from tsr_gym.agents.policies.trie_kernels import (
    NONE,
    ROOT,
    Doubles,
    Floats,
    Ints,
    Longs,
    Samples,
    Trie,
    Wanted,
    attend,
    draw,
    forget,
    gate,
    normalise,
    plant,
    rehash,
    remember,
)
from tsr_gym.errors import ConfigError
from tsr_gym.ranges import check_counts, check_range

# Nodes that are computed at once.
ROWS = 512
# Nodes for which a trie has room at first.
_NODES = 1024
Tokens = tuple[int, ...]


class TrieEngine:
    """Sample from a Qwen2 or Llama in float32 on a CPU.

    Equal prompt and seed draw with the same random numbers as `TransformersEngine`, and logits agree to about 1e-6, so
    the samples are the same.

    Args:
        model: A causal language model; it may be the one that is trained.
        stop_ids: Token ids that end an answer; they are part of it.
        max_tokens: Longest answer.
        temperature: Of the sampling distribution, 0 for the most likely token.
        reuse: Whether to keep keys and values for later calls; of use where prompts extend earlier ones.
        cache_gib: Most memory for what is kept.
        max_batch: Most samples that are generated side by side.

    Raises:
        ConfigError: The model has another architecture, device or precision.
    """

    capabilities = Capabilities()

    def __init__(
        self,
        model: Any,
        *,
        stop_ids: Sequence[int],
        max_tokens: int = 400,
        temperature: float = 1.0,
        reuse: bool = True,
        cache_gib: float = 4.0,
        max_batch: int = 512,
    ) -> None:
        check_counts(max_tokens=max_tokens, max_batch=max_batch)
        check_range(least=0, temperature=temperature, cache_gib=cache_gib)
        if not stop_ids:
            raise ConfigError("wanted some stop_ids, got none: answers would only end at max_tokens")
        if reason := why_not(model):
            raise ConfigError(f"engine trie: {reason}: use engine transformers")
        self.model = model
        self.max_tokens = max_tokens
        self.temperature = temperature
        self.max_batch = max_batch
        self.context = int(model.config.max_position_embeddings)
        self.weight_version = 0
        self._stops = np.zeros(max(model.config.vocab_size, *stop_ids) + 1, np.bool_)
        self._stops[list(stop_ids)] = True
        self._reuse = reuse
        self._most_bytes = int(cache_gib * 2**30)
        self._aborted = Event()
        self._forward = _Forward(model)
        self._kept = _Kept(model.config.num_hidden_layers, self._forward.num_keys)
        self._weights: WeightWatch | None = None

    def generate(
        self, prompts: Sequence[Sequence[int]], *, seeds: Sequence[Sequence[int]], max_tokens: int | None = None
    ) -> list[list[Completion]]:
        """Sample; see `Engine.generate`."""
        limit = answer_limit(self.max_tokens, max_tokens)
        samples = list_samples(prompts, seeds, self.context)
        done: list[Completion] = []
        self._aborted.clear()
        with torch.inference_mode():
            self._follow()
            for start in range(0, len(samples), self.max_batch):
                done += self._generate(samples[start : start + self.max_batch], limit)
        answers = iter(done)
        return [[next(answers) for _ in row] for row in seeds]

    def load_weights(self, weights: Iterable[tuple[str, Any]], *, version: int | None = None) -> None:
        """Replace parameters by name, and forget all keys and values; see `Engine.load_weights`."""
        replace_parameters(self.model, weights)
        self._weights = None
        self.weight_version = self.weight_version + 1 if version is None else version

    def abort(self) -> None:
        """End what another thread is generating, with the next token; see `Engine.abort`."""
        self._aborted.set()

    def _follow(self) -> None:
        """Read the parameters if they have changed, and forget what may not be reused."""
        changed = self._weights is None or self._weights.changed()
        if changed:
            self._weights = self._weights or WeightWatch(self.model)
            self._forward.read(self.model)
        # Within a call any node may be read again, so that the limit is checked between calls, and everything goes at
        # once: an inner node cannot go without the nodes below it. A new trie gives the memory back, too; room that
        # stayed would be above the limit in every later call.
        if self._kept.num_bytes > self._most_bytes:
            self._kept = _Kept(self.model.config.num_hidden_layers, self._forward.num_keys)
        elif changed or not self._reuse:
            self._kept.clear()

    def _generate(self, samples: list[tuple[Tokens, int]], limit: int) -> list[Completion]:
        # Samples of one prompt share its computation: `numbers` are those of the different prompts, and `again` marks
        # the samples whose prompt an earlier one has, for the report of tokens that were saved.
        numbers: dict[Tokens, int] = {}
        again = []
        for prompt, _ in samples:
            again.append(prompt in numbers)
            numbers.setdefault(prompt, len(numbers))
        lengths = np.fromiter(map(len, numbers), np.int64, len(numbers))
        room = np.minimum(self.context - lengths, limit)
        rows = np.fromiter((numbers[prompt] for prompt, _ in samples), np.int64, len(samples))
        shared, paths, read, logits = self._prefill(list(numbers), lengths)
        steps = int(room.max())
        # The last token of an answer is never computed.
        wanted = _wanted(len(samples), len(samples), paths.shape[1] + steps - 1)
        wanted.paths[:, : paths.shape[1]] = paths[rows]
        writing = Samples(
            seeds=np.array([seed for _, seed in samples], np.int64).view(np.uint64),
            lengths=lengths[rows],
            room=room[rows],
            ids=np.empty((len(samples), steps), np.int64),
            logprobs=np.empty((len(samples), steps), np.float32),
            counts=np.zeros(len(samples), np.int64),
            stopped=np.zeros(len(samples), np.bool_),
            live=np.arange(len(samples)),
            rows=read[rows],
        )
        live = self._decode(writing, wanted, logits)
        return self._completions(samples, again, shared[rows], writing, frozenset(writing.live[:live].tolist()))

    def _prefill(self, prompts: list[Tokens], lengths: Longs) -> tuple[Longs, Ints, Longs, Floats]:
        """Compute the parts of P prompts that are not kept.

        Returns:
            How many tokens of each were computed for others `[P]`, their paths `[P, L]`, and which of the rows of
            logits `[M, V]` stands after each `[P]`.
        """
        starts = np.zeros(len(prompts) + 1, np.int64)
        np.cumsum(lengths, out=starts[1:])
        flat = np.fromiter(chain.from_iterable(prompts), np.int64, starts[-1])
        wanted = _wanted(len(flat), len(prompts), int(lengths.max()))
        shared, ends = np.empty_like(lengths), np.empty_like(lengths)
        self._kept.make_room(len(flat))
        self._kept.count, size = plant(self._kept.trie, self._kept.count, flat, starts, wanted, shared, ends)
        places, read = np.unique(ends, return_inverse=True)
        return shared, wanted.paths, read, self._forward(self._kept, wanted, size, places)

    def _decode(self, samples: Samples, wanted: Wanted, logits: Floats) -> int:
        """Sample to the ends of all answers from the logits after their prompts; return how many have no end."""
        kept, live = self._kept, len(samples.live)
        for step in range(samples.ids.shape[1]):
            kept.make_room(live)
            scores, weights = self._weigh(logits)
            kept.count, size, live = draw(
                scores, weights, samples, live, step, self._stops, kept.trie, kept.count, wanted
            )
            if not live or self._aborted.is_set():
                break
            logits = self._forward(kept, wanted, size, None)
        return live

    def _weigh(self, logits: Floats) -> tuple[Doubles, Doubles]:
        """Return scores and weights of tokens from logits `[M, V]`; see `draw`."""
        # Random numbers have 53 bits. In float32 the running sums of small weights would round, and a draw near the
        # border of two tokens could differ from that of `TransformersEngine`.
        scores = logits.astype(np.float64)
        if self.temperature == 0:
            return scores, scores[:, :0]
        scores -= scores.max(axis=1, keepdims=True)
        scores /= self.temperature
        return scores, np.exp(scores)

    def _completions(
        self,
        samples: list[tuple[Tokens, int]],
        again: list[bool],
        shared: Longs,
        written: Samples,
        unfinished: frozenset[int],
    ) -> list[Completion]:
        rows = zip(
            *(array.tolist() for array in (written.ids, written.logprobs, written.counts, written.stopped, shared)),
            strict=True,
        )
        return [
            Completion(
                tuple(ids[:count]),
                tuple(logprobs[:count]),
                "stop" if stop else "abort" if number in unfinished else "length",
                len(samples[number][0]) if again[number] else saved,
                self.weight_version,
            )
            for number, (ids, logprobs, count, stop, saved) in enumerate(rows)
        ]


def why_not(model: Any) -> str:
    """Return why the trie engine cannot compute a model; empty where it can."""
    parameters = dict(model.named_parameters())
    # A matrix with a low-rank one added, or a part of a matrix in each of several processes.
    strange = [name for name, part in parameters.items() if "lora_" in name or type(part) is not torch.nn.Parameter]
    if strange:
        return f"wanted whole plain weights, got {strange[0]}"
    dtypes = {str(part.dtype).removeprefix("torch.") for part in parameters.values()}
    devices = {part.device.type for part in parameters.values()}
    return why_no_trie(
        model.config.to_dict(),
        device=" and ".join(sorted(devices)),
        dtype=" and ".join(sorted(dtypes)),
        model=type(model).__name__,
    )


def _wanted(nodes: int, rows: int, columns: int) -> Wanted:
    """Return an empty list of nodes to compute, and no paths yet."""
    numbers, positions, owners = (np.empty(nodes, np.int32) for _ in range(3))
    return Wanted(numbers, positions, owners, np.empty((rows, max(columns, 1)), np.int32))


def _part(wanted: Wanted, which: slice | Longs) -> Wanted:
    """Return some of the nodes to compute."""
    return Wanted(wanted.nodes[which], wanted.positions[which], wanted.owners[which], wanted.paths)


class _Kept:
    """The trie of all sequences, with their keys and values.

    Args:
        layers: Of the model.
        width: Of keys, and of values, of all heads together.
    """

    def __init__(self, layers: int, width: int) -> None:
        self.trie = _trie(_NODES)
        self.count = ROOT + 1
        self.keys, self.values = (np.empty((layers, _NODES, width), np.float32) for _ in range(2))

    @property
    def num_bytes(self) -> int:
        """Memory of keys and values."""
        return self.keys.nbytes + self.values.nbytes

    def clear(self) -> None:
        """Forget all sequences; the room for them stays."""
        forget(self.trie, self.count)
        self.count = ROOT + 1

    def make_room(self, nodes: int) -> None:
        """Have room for so many more nodes."""
        if self.count + nodes <= len(self.trie.parent):
            return
        # At least doubled, so that all copies together cost no more than a constant per node.
        size, count = max(self.count + nodes, 2 * len(self.trie.parent)), self.count
        before, self.trie = self.trie, _trie(size)
        self.trie.parent[:count], self.trie.token[:count] = before.parent[:count], before.token[:count]
        rehash(self.trie, count)
        self.keys, self.values = (_longer(array, count, size) for array in (self.keys, self.values))


def _trie(size: int) -> Trie:
    table = np.full(1 << (2 * size - 1).bit_length(), NONE, np.int32)
    parent, token, slot = (np.empty(size, np.int32) for _ in range(3))
    return Trie(parent, token, slot, table, np.zeros(size, np.int32))


def _longer(states: Floats, count: int, size: int) -> Floats:
    longer = np.empty((len(states), size, states.shape[2]), np.float32)
    longer[:, :count] = states[:, :count]
    return longer


class _Layer(NamedTuple):
    """The parameters of a layer; matrices stand as the right factor of a product."""

    norm: Floats
    projection: Tensor
    bias: Tensor
    out: Tensor
    mlp_norm: Floats
    gate_up: Tensor
    down: Tensor


class _Room(NamedTuple):
    """Memory for the states of some rows, as a tensor and as an array."""

    tensor: Tensor
    array: Floats


class _Space(NamedTuple):
    """Rooms for R rows.

    Attributes:
        states: `[R, D]`.
        normal: States after the norm `[R, D]`.
        projected: Queries, keys and values `[R, Q + 2 K]`.
        queries: Queries alone `[R, Q]`.
        pairs: Keys and values alone `[R, 2 K]`.
        heads: The outcome of attention `[R, Q]`.
        gate_up: Both factors inside the feed-forward layer `[R, 2 I]`.
        inner: Their product `[R, I]`.
    """

    states: _Room
    normal: _Room
    projected: _Room
    queries: _Room
    pairs: _Room
    heads: _Room
    gate_up: _Room
    inner: _Room


class _Forward:
    """The forward pass over nodes of a trie.

    Args:
        model: Qwen2 or Llama.
    """

    def __init__(self, model: Any) -> None:
        config, attention = model.config, model.model.layers[0].self_attn
        self.epsilon = float(config.rms_norm_eps)
        self.context = int(config.max_position_embeddings)
        self.head = int(attention.head_dim)
        self.num_queries, self.num_keys = attention.q_proj.out_features, attention.k_proj.out_features
        self._rotary = model.model.rotary_emb
        self._angles: Floats = np.empty((2, 0, self.head // 2), np.float32)
        self._layers: list[_Layer] = []
        widths = (
            *(config.hidden_size, config.hidden_size),
            *(self.num_queries + 2 * self.num_keys, self.num_queries, 2 * self.num_keys, self.num_queries),
            *(2 * config.intermediate_size, config.intermediate_size),
        )
        buffers = [torch.empty(ROWS, width) for width in widths]

        # Slicing a tensor takes as long as a small product, so views of the same memory are made once for each size.
        @cache
        def space(rows: int) -> _Space:
            return _Space(*(_Room(buffer[:rows], buffer[:rows].numpy()) for buffer in buffers))

        self._space = space

    def read(self, model: Any) -> None:
        """Read the parameters; those that are used as they stand in the model are not copied."""
        self._embedding = model.model.embed_tokens.weight.detach()
        self._norm = model.model.norm.weight.detach().numpy()
        self._output = model.lm_head.weight.detach().t()
        self._layers = []
        for layer in model.model.layers:
            attention, mlp = layer.self_attn, layer.mlp
            parts = attention.q_proj, attention.k_proj, attention.v_proj
            biases = [torch.zeros(part.out_features) if part.bias is None else part.bias for part in parts]
            self._layers.append(
                _Layer(
                    layer.input_layernorm.weight.detach().numpy(),
                    torch.cat([part.weight for part in parts]).t(),
                    torch.cat(biases),
                    attention.o_proj.weight.detach().t(),
                    layer.post_attention_layernorm.weight.detach().numpy(),
                    torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]).t(),
                    mlp.down_proj.weight.detach().t(),
                )
            )

    def __call__(self, kept: _Kept, wanted: Wanted, size: int, read: Longs | None) -> Floats:
        """Compute nodes, and return the logits after those that are read.

        Args:
            kept: Has room for the nodes, and the keys and values of all before them.
            wanted: The nodes.
            size: How many.
            read: The places of those that are read, ascending `[M]`; None for all.

        Returns:
            `[M, V]`.
        """
        self._measure(int(wanted.positions[:size].max()) + 1)
        parts = []
        for start in range(0, size, ROWS):
            end = min(start + ROWS, size)
            part = _part(wanted, slice(start, end))
            # `read` ascends, so that the rows that are read in this part are a slice of it.
            here = None if read is None else read[np.searchsorted(read, start) : np.searchsorted(read, end)] - start
            parts.append(self._compute(kept, part, here))
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _compute(self, kept: _Kept, wanted: Wanted, read: Longs | None) -> Floats:
        """Compute at most ROWS nodes; see `__call__`."""
        space, queries, angles = self._space(len(wanted.nodes)), self.num_queries, self._angles
        tokens = torch.from_numpy(kept.trie.token[wanted.nodes])
        torch.index_select(self._embedding, 0, tokens, out=space.states.tensor)
        for number, layer in enumerate(self._layers):
            keys, values = kept.keys[number], kept.values[number]
            normalise(space.states.array, layer.norm, self.epsilon, space.normal.array)
            if read is None or number < len(self._layers) - 1:
                torch.addmm(layer.bias, space.normal.tensor, layer.projection, out=space.projected.tensor)
                projected = space.projected.array
                remember(projected, queries, wanted.nodes, wanted.positions, angles, keys, values)
            else:
                # Nothing reads the last layer of most tokens of a prompt except its keys and values.
                pairs, weights = space.pairs, layer.projection
                torch.addmm(layer.bias[queries:], space.normal.tensor, weights[:, queries:], out=pairs.tensor)
                remember(pairs.array, 0, wanted.nodes, wanted.positions, angles, keys, values)
                states, normal, space = space.states.array[read], space.normal.array[read], self._space(len(read))
                space.states.array[:], space.normal.array[:] = states, normal
                wanted = _part(wanted, read)
                torch.addmm(layer.bias[:queries], space.normal.tensor, weights[:, :queries], out=space.queries.tensor)
                projected = space.queries.array
            attend(projected, wanted, angles, keys, values, space.heads.array)
            space.states.tensor.addmm_(space.heads.tensor, layer.out)
            normalise(space.states.array, layer.mlp_norm, self.epsilon, space.normal.array)
            torch.mm(space.normal.tensor, layer.gate_up, out=space.gate_up.tensor)
            gate(space.gate_up.array, space.inner.array)
            space.states.tensor.addmm_(space.inner.tensor, layer.down)
        normalise(space.states.array, self._norm, self.epsilon, space.normal.array)
        logits: Floats = torch.mm(space.normal.tensor, self._output).numpy()
        return logits

    def _measure(self, length: int) -> None:
        """Know the angles of so many positions."""
        have = self._angles.shape[1]
        if length > have:
            positions = torch.arange(min(max(length, 2 * have, 64), self.context))
            parts = self._rotary(self._embedding, positions[None])
            self._angles = np.stack([part[0, :, : self.head // 2].numpy() for part in parts])
