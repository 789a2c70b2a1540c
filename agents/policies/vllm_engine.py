"""VllmEngine: the contract of engines over vLLM; VllmModel: a model inside vLLM in this process.

The other host is `VllmServer`, in its own file. Samples are drawn from ``softmax(logits / temperature)`` over the whole
vocabulary, and their log-probabilities are of this distribution: without top-k, top-p and penalties, also where the
model's own settings have them. vLLM is imported when a model is made.
"""

import json
import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import torch

from tsr_gym.agents.policies.engine import Capabilities, Completion, answer_limit, check_prompt
from tsr_gym.errors import CheckpointError, ConfigError, EngineFailed, Unsupported
from tsr_gym.optional import require
from tsr_gym.ranges import check_counts, check_range

if TYPE_CHECKING:
    from torch import Tensor


# vLLM silently replaces smaller temperatures by this one.
LEAST_TEMPERATURE = 0.01


class Asked(NamedTuple):
    """One sample that is wanted.

    Attributes:
        prompt: Token ids.
        seed: Of the sample.
        max_tokens: Longest answer, at most what the context has room for.
    """

    prompt: tuple[int, ...]
    seed: int
    max_tokens: int


class CacheCounts(NamedTuple):
    """Counts of a prefix cache since its engine began.

    Attributes:
        asked: Prompt tokens of all samples.
        found: Those that were cached.
    """

    asked: int
    found: int


class VllmHost(Protocol):
    """A model inside vLLM, which several engines may ask."""

    @property
    def capabilities(self) -> Capabilities:
        """Features of the model."""

    @property
    def weight_version(self) -> int:
        """Version of its weights."""

    @property
    def context(self) -> int:
        """Longest sequence."""

    @property
    def vocabulary(self) -> int:
        """Number of tokens."""

    def sample(self, asked: Sequence[Asked], settings: dict[str, Any]) -> list[Completion]:
        """Return a completion for each, in order.

        Args:
            asked: Those that share a beginning stand together.
            settings: Arguments of vLLM's ``SamplingParams``, in addition to those of each sample.
        """

    def load_weights(self, weights: Iterable[tuple[str, Any]], *, version: int | None = None) -> None:
        """See `Engine.load_weights`."""

    def abort(self) -> None:
        """See `Engine.abort`."""


@dataclass(frozen=True, slots=True)
class VllmEngine:
    """Sample from a model that vLLM holds; several engines may share one model, each with its own settings.

    All samples of a call are asked for together, ordered by their prompts, so that the prefix cache computes a common
    beginning once. Every sample has its own seed: on a CPU in float32 equal prompt and seed give the same sample
    in every batch; elsewhere samples can depend on the batch composition.

    Attributes:
        host: Where the model is.
        stop_ids: Token ids that end an answer; they are part of it.
        max_tokens: Longest answer.
        temperature: Of the sampling distribution, 0 for the most likely token.
    """

    host: VllmHost
    stop_ids: tuple[int, ...]
    max_tokens: int = 400
    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_counts(max_tokens=self.max_tokens)
        check_range(least=0, temperature=self.temperature)
        if not self.stop_ids:
            raise ConfigError("wanted some stop_ids, got none: answers would only end at max_tokens")
        if self.temperature and not self.temperature >= LEAST_TEMPERATURE:
            raise ConfigError(
                f"vLLM samples at temperatures from {LEAST_TEMPERATURE} on, or at 0, got {self.temperature}"
            )

    @property
    def capabilities(self) -> Capabilities:
        """Features of its host."""
        return self.host.capabilities

    @property
    def weight_version(self) -> int:
        """Version of its host's weights."""
        return self.host.weight_version

    def generate(
        self, prompts: Sequence[Sequence[int]], *, seeds: Sequence[Sequence[int]], max_tokens: int | None = None
    ) -> list[list[Completion]]:
        """Sample; see `Engine.generate`."""
        limit = answer_limit(self.max_tokens, max_tokens)
        asked = []
        for prompt, row in zip(prompts, seeds, strict=True):
            check_prompt(len(prompt), self.host.context)
            room = min(limit, self.host.context - len(prompt))
            asked += [Asked(tuple(prompt), seed, room) for seed in row]
        order = sorted(range(len(asked)), key=lambda number: asked[number].prompt)
        sampled = self.host.sample([asked[number] for number in order], self._settings()) if asked else []
        placed = dict(zip(order, sampled, strict=True))
        answers = (self._greedy(placed[number]) for number in range(len(asked)))
        return [[next(answers) for _ in row] for row in seeds]

    def load_weights(self, weights: Iterable[tuple[str, Any]], *, version: int | None = None) -> None:
        """Replace all parameters of the host, or none; see `Engine.load_weights`.

        Raises:
            ConfigError: A parameter is missing: vLLM holds some of them together, and would keep the old ones.
        """
        self.host.load_weights(weights, version=version)

    def abort(self) -> None:
        """End what another thread is generating; see `Engine.abort`."""
        self.host.abort()

    def _settings(self) -> dict[str, Any]:
        return {
            "temperature": self.temperature,
            "top_p": 1.0,
            "top_k": 0,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            # vLLM refuses ids outside of the vocabulary.
            "stop_token_ids": [token for token in self.stop_ids if token < self.host.vocabulary],
            # Only our stop ids end an answer, also where the model has other end tokens.
            "ignore_eos": True,
            "logprobs": 0,
            "detokenize": False,
        }

    def _greedy(self, answer: Completion) -> Completion:
        """Return a completion with the log-probabilities of the distribution that has all its weight on one token."""
        return answer if self.temperature else answer._replace(logprobs=(0.0,) * len(answer.token_ids))


def reason_of(word: str | None) -> Literal["stop", "length", "abort"]:
    """Return why an answer ended, in the words of the contract.

    Raises:
        EngineFailed: It ended for another reason, such as an error.
    """
    if word not in ("stop", "length", "abort"):
        raise EngineFailed(f"vLLM ended an answer for the reason {word!r}: wanted stop, length or abort")
    return word  # type: ignore[return-value]


HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
# Widths of a head that vLLM's attention on a CPU knows; with another one it dies at the first request.
CPU_HEADS = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)


class ServedModel(NamedTuple):
    """A Hugging Face model in a folder.

    Attributes:
        folder: Where it is.
        context: Longest sequence.
        vocabulary: Number of tokens.
        head_width: Of an attention head.
        tied: Whether the output layer is the embedding.
        shapes: Of its parameters by name; a tied output layer is named as well.
    """

    folder: Path
    context: int
    vocabulary: int
    head_width: int
    tied: bool
    shapes: dict[str, tuple[int, ...]]

    def check_heads(self) -> None:
        """Refuse a model whose heads vLLM's attention on a CPU does not know.

        Raises:
            ConfigError: They are of another width.
        """
        if self.head_width not in CPU_HEADS:
            raise ConfigError(
                f"{self.folder}: the attention heads are {self.head_width} wide, and vLLM on a CPU takes one of "
                f"{CPU_HEADS}: use --engine transformers, or a base model with --hidden 128"
            )

    def whole_weights(self, weights: Iterable[tuple[str, Any]]) -> "dict[str, Tensor]":
        """Return all parameters that an update has to bring, the tied output layer by its name too.

        An engine that holds the embedding twice would keep the old output layer if it were left out.

        Raises:
            ConfigError: One is missing, unknown or of another shape.
        """
        tensors: dict[str, Tensor] = {name: value.detach() for name, value in weights}
        if self.tied and HEAD not in tensors and EMBEDDING in tensors:
            tensors[HEAD] = tensors[EMBEDDING]
        if unknown := sorted(tensors.keys() - self.shapes.keys()):
            raise ConfigError(f"the model has no parameter {unknown[0]!r}; it has {len(self.shapes)}")
        for name, value in tensors.items():
            if tuple(value.shape) != self.shapes[name]:
                raise ConfigError(f"wanted {name} of shape {[*self.shapes[name]]}, got {[*value.shape]}")
        if missing := sorted(self.shapes.keys() - tensors.keys()):
            raise ConfigError(
                f"an update of vLLM's weights brings all {len(self.shapes)} parameters, and {missing[0]!r} is missing"
            )
        return tensors


def served_model(folder: Path) -> ServedModel:
    """Return the facts of a model's folder.

    Raises:
        CheckpointError: It holds no model in safetensors.
    """
    from safetensors import SafetensorError, safe_open

    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        shapes: dict[str, tuple[int, ...]] = {}
        for file in sorted(folder.glob("model*.safetensors")):
            with safe_open(file, "pt") as opened:
                shapes |= {name: tuple(opened.get_slice(name).get_shape()) for name in opened.keys()}  # noqa: SIM118
        tied, width = bool(config.get("tie_word_embeddings")), config["hidden_size"] // config["num_attention_heads"]
        if tied:
            shapes[HEAD] = shapes[EMBEDDING]
        sizes = config["max_position_embeddings"], config["vocab_size"], config.get("head_dim") or width
    except (OSError, ValueError, LookupError, TypeError, SafetensorError) as error:
        raise CheckpointError(f"{folder}: wanted a Hugging Face model in safetensors ({error!r})") from error
    if not shapes:
        raise CheckpointError(f"{folder}: wanted a Hugging Face model in safetensors, found no weights")
    return ServedModel(folder, *sizes, tied, shapes)


# Defaults of environment variables that vLLM reads when it is imported.
ENVIRONMENT = {
    # The worker in this process takes tensors as they are.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    # Threads stay where they are, because others in this process need them too.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_CI_ENV": "1",
}
# A prefix is found again by blocks of so many tokens; on a CPU a multiple of 32.
BLOCK = 32
# Ranks of adapters that vLLM keeps room for.
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
SETTINGS = {
    "skip_tokenizer_init": True,
    "trust_remote_code": False,
    "generation_config": "vllm",
    "enable_prefix_caching": True,
    "block_size": BLOCK,
    # Of the distribution that is sampled from, temperature included.
    "logprobs_mode": "processed_logprobs",
    "disable_log_stats": False,
    "use_tqdm_on_load": False,
}


class VllmModel:
    """A language model inside vLLM, in this process.

    Args:
        folder: A Hugging Face model with weights in safetensors.
        dtype: To hold and compute it in: ``"float32"`` or ``"bfloat16"``.
        cache_gib: Memory of keys and values.
        max_batch: Most samples that are generated side by side.
        lora_rank: Of the adapters that it will be given; its own weights then stay as they are. 0 for none.

    Attributes:
        weight_version: Of its weights.
        context: Longest sequence.
        vocabulary: Number of tokens.

    Raises:
        CheckpointError: The folder holds no model.
        ConfigError: vLLM cannot compute its heads here, or adapters of this rank.
        EngineFailed: vLLM cannot be imported, or does not start.
        MissingExtra: vLLM is not installed.
    """

    def __init__(
        self, folder: Path, *, dtype: str = "float32", cache_gib: float = 1.0, max_batch: int = 256, lora_rank: int = 0
    ) -> None:
        require("vllm", "vllm")
        self._model = served_model(folder)
        self.context, self.vocabulary = self._model.context, self._model.vocabulary
        self.weight_version = 0
        self._aborted, self._lock = Event(), Lock()
        self._lora_rank, self._num_adapters = lora_rank, 0
        self._adapter: Any = None
        with_lora = {"enable_lora": True, "max_loras": 1, "max_lora_rank": room_for(lora_rank)} if lora_rank else {}
        # On a CPU, vLLM fails on seeded requests whose prompt is computed in parts, so chunked prefill is off.
        on_cpu = not torch.cuda.is_available()
        if on_cpu:
            self._model.check_heads()
        self._exact = on_cpu and dtype == "float32"
        self._llm, self._params = _start(
            model=str(folder),
            dtype=dtype,
            max_model_len=self.context,
            kv_cache_memory_bytes=int(cache_gib * 2**30),
            max_num_seqs=max_batch,
            enforce_eager=on_cpu,
            **with_lora,
            **({"enable_chunked_prefill": False, "max_num_batched_tokens": max(8192, self.context)} if on_cpu else {}),
        )

    @property
    def capabilities(self) -> Capabilities:
        """Everything, except that samples depend on the batch composition on a GPU and in lower precision."""
        return Capabilities(company=self._exact)

    def engine(self, *, stop_ids: Sequence[int], max_tokens: int, temperature: float) -> VllmEngine:
        """Return an engine that samples from the model; see `Host.engine`."""
        return VllmEngine(self, tuple(stop_ids), max_tokens=max_tokens, temperature=temperature)

    def sample(self, asked: Sequence[Asked], settings: dict[str, Any]) -> list[Completion]:
        """Return a completion for each; see `VllmHost.sample`.

        Raises:
            EngineFailed: vLLM broke off.
        """
        with self._lock:
            self._aborted.clear()
            # OpenMP keeps a number of threads per calling thread, and torch sets it when it first computes in a thread.
            # A step of vLLM's attention in between would see two different numbers and abort the process.
            torch.set_num_threads(torch.get_num_threads())
            drafts = [_Draft(str(number), request) for number, request in enumerate(asked)]
            try:
                self._generate(drafts, settings)
            except Exception as error:
                raise EngineFailed(f"vLLM broke off: {type(error).__name__}: {error}") from error
            finally:
                # Requests that are left over from a failed call would be answered in the next one.
                self._end(drafts)
        return [draft.completion(self.weight_version) for draft in drafts]

    def load_weights(self, weights: Iterable[tuple[str, Any]], *, version: int | None = None) -> None:
        """Replace all parameters, or none, and forget all keys and values; see `VllmEngine.load_weights`.

        Raises:
            Unsupported: It was made for adapters, so its own weights stay as they are.
        """
        given = list(weights)
        if given and self._lora_rank:
            raise Unsupported(
                "with adapters vLLM keeps its own weights: hand over an adapter, or make it with lora_rank=0"
            )
        with self._lock:
            if given:
                whole = self._model.whole_weights(given)
                self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(whole.items())})
            self._llm.reset_prefix_cache()
            self.weight_version = self.weight_version + 1 if version is None else version

    def load_adapter(self, folder: Path, *, version: int) -> None:
        """Add other low-rank matrices to its own weights, and drop all keys and values.

        Args:
            folder: An adapter in PEFT's form; it is read now, and may then be deleted.
            version: Of the weights from now on.

        Raises:
            EngineFailed: vLLM does not take it; nothing was changed.
            Unsupported: It was made without room for adapters.
        """
        if not self._lora_rank:
            raise Unsupported("vLLM was started without room for adapters: make it with the lora_rank of the run")
        from vllm.lora.request import LoRARequest

        with self._lock:
            # vLLM caches keys and values by the adapter's number and name, so neither is ever used again.
            number = self._num_adapters + 1
            given = LoRARequest(f"version-{version}-{number}", number, str(folder))
            try:
                self._llm.llm_engine.add_lora(given)
            except Exception as error:
                raise EngineFailed(f"vLLM does not take the adapter {folder}: {error}") from error
            if self._adapter is not None:
                self._llm.llm_engine.remove_lora(self._adapter.lora_int_id)
            self._llm.reset_prefix_cache()
            self._adapter, self._num_adapters, self.weight_version = given, number, version

    def abort(self) -> None:
        """End what another thread is generating, with the next token; see `Engine.abort`."""
        self._aborted.set()

    def prefix_cache(self) -> CacheCounts:
        """Return the counts of the prefix cache so far."""
        counts = {metric.name: metric for metric in self._llm.get_metrics()}
        return CacheCounts(*(int(counts[f"vllm:prefix_cache_{name}"].value) for name in ("queries", "hits")))

    def close(self) -> None:
        """Give back the memory; the model can then not be asked any more."""
        self._llm.llm_engine.engine_core.shutdown()

    def _generate(self, drafts: "list[_Draft]", settings: dict[str, Any]) -> None:
        engine = self._llm.llm_engine
        for draft in drafts:
            params = self._params(**settings, seed=draft.asked.seed, max_tokens=draft.asked.max_tokens)
            prompt = {"prompt_token_ids": [*draft.asked.prompt]}
            engine.add_request(draft.name, prompt, params, lora_request=self._adapter)
        by_name = {draft.name: draft for draft in drafts}
        while engine.has_unfinished_requests():
            for output in engine.step():
                by_name[output.request_id].add(output)
            if self._aborted.is_set():
                # An answer has at least one token.
                self._end([draft for draft in drafts if draft.ids])

    def _end(self, drafts: "list[_Draft]") -> None:
        going = [draft for draft in drafts if not draft.reason]
        self._llm.llm_engine.abort_request([draft.name for draft in going])
        for draft in going:
            draft.reason = "abort"


@dataclass(slots=True)
class _Draft:
    """An answer while it is generated."""

    name: str
    asked: Asked
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    reason: str | None = None
    num_cached: int = 0

    def add(self, output: Any) -> None:
        """Add the tokens of a step."""
        (new,) = output.outputs
        self.ids += new.token_ids
        self.logprobs += [row[token].logprob for row, token in zip(new.logprobs, new.token_ids, strict=True)]
        self.reason = new.finish_reason
        self.num_cached = output.num_cached_tokens or self.num_cached

    def completion(self, version: int) -> Completion:
        """Return the whole answer."""
        return Completion(tuple(self.ids), tuple(self.logprobs), reason_of(self.reason), self.num_cached, version)


def room_for(rank: int) -> int:
    """Return the least rank that vLLM keeps room for and an adapter of a rank fits into.

    Raises:
        ConfigError: The rank is out of range.
    """
    if not 1 <= rank <= LORA_RANKS[-1]:
        raise ConfigError(f"vLLM takes adapters of rank 1 to {LORA_RANKS[-1]}, got {rank}")
    return next(room for room in LORA_RANKS if room >= rank)


def _start(**settings: Any) -> tuple[Any, Any]:
    """Return a running `vllm.LLM`, and what makes the parameters of a request for it.

    This process's random numbers and its way to set threads, which vLLM replaces, stay as they were.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    set_num_threads = torch.set_num_threads
    try:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from vllm import LLM, SamplingParams
            from vllm.sampling_params import RequestOutputKind

            llm = LLM(**settings, **SETTINGS)
    except Exception as error:
        hint = ": uninstall torchvision, torchaudio and torchcodec" if "torchvision" in str(error) else ""
        raise EngineFailed(f"vLLM does not start ({type(error).__name__}: {error}){hint}") from error
    finally:
        torch.set_num_threads = set_num_threads
    return llm, partial(SamplingParams, output_kind=RequestOutputKind.DELTA)
