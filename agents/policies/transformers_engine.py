"""TransformersEngine: batched sampling from any local causal language model, keys and values kept along the tree.

A prompt is computed once for all of its samples, which then read its keys and values together. A prompt that extends an
earlier sequence continues from the keys and values of that sequence instead of computing them again.
"""

from collections.abc import Iterable, Sequence
from threading import Event
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from tsr_gym.agents.policies.engine import Capabilities, Completion, answer_limit, list_samples
from tsr_gym.agents.policies.parameters import replace_parameters
from tsr_gym.agents.policies.prefix_cache import (
    NOTHING,
    Prefix,
    PrefixCache,
    SharedRows,
    Tokens,
    places_of,
    roomy_cache,
)
from tsr_gym.errors import ConfigError
from tsr_gym.ranges import check_counts, check_range

# SplitMix64's constants. Tensors have no unsigned 64-bit arithmetic; signed products wrap around to the same bits.
_GAMMA = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed number
_MIX_1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX_2 = -7723592293110705685  # 0x94D049BB133111EB


class TransformersEngine:
    """Sample from a Hugging Face causal language model.

    Equal prompt and seed draw with the same random numbers in every batch. Logits of different batch shapes agree to
    about 1e-6 in float32 on a CPU, so the samples are then the same, too. On a GPU, and in lower precision, samples can
    depend on the batch composition.

    Args:
        model: A causal language model; it may be the one that is trained: after a step nothing cached is used.
        stop_ids: Token ids that end an answer; they are part of it.
        max_tokens: Longest answer.
        temperature: Of the sampling distribution, 0 for the most likely token.
        reuse: Whether to keep keys and values for later calls; of use where prompts extend earlier ones.
        cache_gib: Most memory for what is kept.
        max_batch: Most samples that are generated side by side.
        autocast: Lower precision to compute in, None for the model's own.
    """

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
        autocast: torch.dtype | None = None,
    ) -> None:
        check_counts(max_tokens=max_tokens, max_batch=max_batch)
        check_range(least=0, temperature=temperature, cache_gib=cache_gib)
        if not stop_ids:
            raise ConfigError("wanted some stop_ids, got none: answers would only end at max_tokens")
        self.model = model
        self.max_tokens = max_tokens
        self.temperature = temperature
        self.max_batch = max_batch
        self.autocast = autocast
        self.context = int(model.config.max_position_embeddings)
        self.device = next(model.parameters()).device
        self.weight_version = 0
        self._stop = torch.tensor(sorted(set(stop_ids)), device=self.device)
        self._aborted = Event()
        # Layers that forget, such as sliding windows, cannot be continued from the middle.
        self._plain = all(type(layer).__name__ == "DynamicLayer" for layer in DynamicCache(config=model.config).layers)
        self._cache = PrefixCache(model, max_bytes=int(cache_gib * 2**30)) if reuse and self._plain else None
        # Other kernels take no mask of which token sees which slot; ALiBi counts positions by a mask of slots alone.
        alibi = model.config.to_dict().get("alibi", False)
        self._shares = self._plain and model.config._attn_implementation == "sdpa" and not alibi

    @property
    def capabilities(self) -> Capabilities:
        """Everything, except that samples depend on the batch composition on a GPU and in lower precision."""
        exact = self.device.type == "cpu" and self.autocast is None and self.model.dtype == torch.float32
        return Capabilities(company=exact)

    def generate(
        self, prompts: Sequence[Sequence[int]], *, seeds: Sequence[Sequence[int]], max_tokens: int | None = None
    ) -> list[list[Completion]]:
        """Sample; see `Engine.generate`."""
        limit = answer_limit(self.max_tokens, max_tokens)
        samples = list_samples(prompts, seeds, self.context)
        done: list[Completion] = []
        self._aborted.clear()
        if self._cache is not None:
            self._cache.refresh()
        self.model.eval()
        with (
            torch.inference_mode(),
            torch.autocast(self.device.type, dtype=self.autocast, enabled=self.autocast is not None),
        ):
            for start in range(0, len(samples), self.max_batch):
                done += self._generate(samples[start : start + self.max_batch], limit)
        answers = iter(done)
        return [[next(answers) for _ in row] for row in seeds]

    def load_weights(self, weights: Iterable[tuple[str, Any]], *, version: int | None = None) -> None:
        """Replace parameters by name, and forget all keys and values; see `Engine.load_weights`."""
        if self._cache is not None:
            self._cache.clear()
        replace_parameters(self.model, weights)
        self.weight_version = self.weight_version + 1 if version is None else version

    def abort(self) -> None:
        """End what another thread is generating, with the next token; see `Engine.abort`."""
        self._aborted.set()

    def _generate(self, samples: list[tuple[Tokens, int]], limit: int) -> list[Completion]:
        rows_of: dict[Tokens, int] = {}
        repeated = []
        for prompt, _ in samples:
            repeated.append(prompt in rows_of)
            rows_of.setdefault(prompt, len(rows_of))
        prefixes = [NOTHING if self._cache is None else self._cache.find(prompt) for prompt in rows_of]
        logits, cache, filled = self._prefill(list(rows_of), prefixes)
        # Equal prompts are one row until here. `places_of` then spreads their samples over rows that several samples
        # share, so that the keys and values of a prompt are read once per step for all of its samples.
        slots = filled.shape[1] if self._shares else 0
        prompts, places = places_of([rows_of[prompt] for prompt, _ in samples], slots=slots)
        prompts, places = prompts.to(self.device), places.to(self.device)
        cache.batch_select_indices(prompts)
        rows = SharedRows(cache, places, filled[prompts])
        answers = self._decode(samples, limit, logits[prompts].repeat_interleave(rows.width, dim=0), rows)
        cached = [prefixes[rows_of[prompt]].length for prompt, _ in samples]
        return [
            Completion(ids, logprobs, reason, len(prompt) if again else length, self.weight_version)
            for (prompt, _), again, length, (ids, logprobs, reason) in zip(
                samples, repeated, cached, answers, strict=True
            )
        ]

    def _prefill(self, prompts: list[Tokens], prefixes: list[Prefix]) -> tuple[Tensor, Any, Tensor]:
        """Compute the parts of some prompts that are not cached.

        Returns:
            Logits after each prompt `[U, V]`, the cache of U rows, and which of its slots are filled `[U, S]`.
        """
        if any(prefix.rows is not None for prefix in prefixes):
            assert self._cache is not None
            cache, filled = self._cache.gather(prefixes)
        else:
            cache, filled = self._empty_cache(), torch.zeros(len(prompts), 0, dtype=torch.bool)
        rests = [prompt[prefix.length :] for prompt, prefix in zip(prompts, prefixes, strict=True)]
        width = max(map(len, rests))
        # Gaps stand on the left, so that the last column is the last token of every row.
        ids = torch.tensor([[0] * (width - len(rest)) + list(rest) for rest in rests], device=self.device)
        real = torch.tensor([[False] * (width - len(rest)) + [True] * len(rest) for rest in rests], device=self.device)
        starts = torch.tensor([prefix.length for prefix in prefixes], device=self.device)
        positions = (starts[:, None] + real.cumsum(dim=1) - 1).clamp(min=0)
        filled = torch.cat([filled.to(self.device), real], dim=1)
        return self._forward(ids, positions, cache, filled.long(), 1)[:, 0], cache, filled

    def _decode(
        self, samples: list[tuple[Tokens, int]], limit: int, logits: Tensor, rows: SharedRows
    ) -> list[tuple[Tokens, tuple[float, ...], Any]]:
        """Sample to the ends of all answers, from the logits after their prompts `[R W, V]`.

        Rows in which all samples have ended stay until half of the rows have.
        """
        device = self.device
        lengths = torch.tensor([len(prompt) for prompt, _ in samples], device=device)
        seeds = torch.tensor([seed for _, seed in samples], device=device)
        room = torch.clamp(self.context - lengths, max=limit)
        ids = torch.zeros(len(samples), int(room.max()), dtype=torch.int64, device=device)
        logprobs = torch.zeros(ids.shape, device=device)
        counts = torch.zeros(len(samples), dtype=torch.int64, device=device)
        going = rows.samples >= 0
        stopped = torch.zeros(len(samples), dtype=torch.bool, device=device)
        for step in range(ids.shape[1]):
            # Free places of a row have the sample number -1 and read the numbers of the last sample. They are computed
            # and never kept, because `going` is False for them.
            drawn, scores = sample_tokens(logits, self.temperature, seeds[rows.samples.flatten()], step)
            drawn, scores, writing = drawn.view(going.shape), scores.view(going.shape), rows.samples[going]
            ids[writing, step], logprobs[writing, step], counts[writing] = drawn[going], scores[going], step + 1
            stops = torch.isin(drawn, self._stop)
            stopped[writing] = stops[going]
            going = going & ~stops & (step + 1 < room[rows.samples])
            if not going.any() or self._aborted.is_set():
                break
            # Dropping rows copies the whole cache, so it waits until it halves the work.
            living = going.any(dim=1)
            if 2 * int(living.sum()) <= len(living):
                self._keep(samples, ids, counts, rows, ~living)
                rows.select(living.nonzero()[:, 0])
                drawn, going = drawn[living], going[living]
            if rows.crowded():
                rows.spread()
                drawn, going = drawn.view(-1, 1), going.view(-1, 1)
            rows.grow(going)
            seen = rows.seen[:, None] if self._shares else rows.seen[:, 0].long()
            after = self._forward(drawn, lengths[rows.samples] + step, rows.cache, seen, rows.width)
            logits = after.flatten(0, 1)
        self._keep(samples, ids, counts, rows, torch.ones_like(going[:, 0]))
        unfinished = torch.zeros_like(stopped).index_fill_(0, rows.samples[going], True)
        ends = [
            "stop" if stop else "abort" if cut else "length"
            for stop, cut in zip(stopped.tolist(), unfinished.tolist(), strict=True)
        ]
        return [
            (tuple(row[:count]), tuple(scores[:count]), end)
            for row, scores, count, end in zip(ids.tolist(), logprobs.tolist(), counts.tolist(), ends, strict=True)
        ]

    def _forward(self, ids: Tensor, positions: Tensor, cache: Any, seen: Tensor, count: int) -> Tensor:
        """Return the logits after the last columns of some tokens `[R, count, V]`; add keys and values to a cache.

        Args:
            ids: Tokens `[R, C]`.
            positions: Their positions `[R, C]`.
            cache: Of R rows.
            seen: Slots of the cache that hold a token `[R, S]`, or that each token sees `[R, 1, C, S]`.
            count: How many columns, the last ones.
        """
        output = self.model(
            input_ids=ids,
            position_ids=positions,
            attention_mask=seen,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=count,
        )
        logits: Tensor = output.logits
        return logits

    def _empty_cache(self) -> Any:
        if self._plain:
            return roomy_cache(self.model.config.num_hidden_layers)
        return DynamicCache(config=self.model.config)

    def _keep(
        self, samples: list[tuple[Tokens, int]], ids: Tensor, counts: Tensor, rows: SharedRows, which: Tensor
    ) -> None:
        """Store some rows `[R]` of the cache under their tokens."""
        if self._cache is None:
            return
        indices = which.nonzero()[:, 0]
        there = rows.samples[indices] >= 0
        spoken = [
            (samples[sample][0], tuple(ids[sample, : counts[sample]].tolist()))
            for sample in rows.samples[indices][there].tolist()
        ]
        copied = self._empty_cache()
        for number, layer in enumerate(rows.cache.layers):
            copied.update(layer.keys[indices], layer.values[indices], number)
        self._cache.keep(copied, rows.seen[indices][there], spoken, there.nonzero()[:, 0])


def uniforms(seeds: Tensor, position: int) -> Tensor:
    """Return one uniform number in [0, 1) per seed for a position in its sequence (SplitMix64)."""
    state = seeds + (position + 1) * torch.tensor(_GAMMA)
    state = (state ^ _shift(state, 30)) * _MIX_1
    state = (state ^ _shift(state, 27)) * _MIX_2
    state = state ^ _shift(state, 31)
    return _shift(state, 11).double() / 2.0**53


def sample_tokens(logits: Tensor, temperature: float, seeds: Tensor, position: int) -> tuple[Tensor, Tensor]:
    """Draw one token per row from ``softmax(logits / temperature)``.

    Args:
        logits: `[R, V]` in any floating type.
        temperature: 0 takes the most likely token, whose log-probability is then 0.
        seeds: `[R]` int64.
        position: Position in the answer.

    Returns:
        Token ids `[R]` and the exact log-probability of each under the distribution it was drawn from, `[R]` float32.
    """
    if temperature == 0:
        ids = logits.argmax(dim=-1)
        return ids, torch.zeros(len(ids), device=logits.device)
    logprobs = torch.log_softmax(logits.float() / temperature, dim=-1)
    cumulative = logprobs.double().exp().cumsum(dim=-1)
    points = uniforms(seeds, position)[:, None] * cumulative[:, -1:]
    ids = torch.searchsorted(cumulative, points, right=True).clamp(max=logits.shape[-1] - 1)
    return ids[:, 0], logprobs.gather(1, ids)[:, 0]


def _shift(value: Tensor, bits: int) -> Tensor:
    """Return the logical right shift, which int64 tensors do not have."""
    return (value >> bits) & ((1 << (64 - bits)) - 1)
