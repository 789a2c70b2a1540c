"""Engine: token ids in, token ids and log-probabilities out; knows no chat and no environment.

`tsr_gym.testing.check_engine` proves that an engine keeps what is promised here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from tsr_gym.errors import PromptTooLong
from tsr_gym.keywords import choose, no_such, parse_call
from tsr_gym.ranges import check_limits


class Completion(NamedTuple):
    """A sampled answer to a prompt.

    Attributes:
        token_ids: The sampled ids, the stop token included.
        logprobs: Log-probability of each under the distribution it was drawn from, temperature included; () of an
            engine that does not know them.
        finish_reason: ``"stop"`` for a stop token, ``"length"`` where the limit or the context ended it, ``"abort"``
            where `Engine.abort` did.
        num_cached: Prompt tokens that were not computed for this completion, because another one shared them.
        weight_version: Of the weights that it was sampled by.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: Literal["stop", "length", "abort"]
    num_cached: int = 0
    weight_version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Features that an engine supports; any other request raises `tsr_gym.Unsupported`.

    Attributes:
        logprobs: Completions have the exact log-probabilities of the sampling distribution.
        seeds: Equal prompts and seeds give equal samples.
        company: And they do so for every composition of the batch.
        weights: `Engine.load_weights` replaces weights.
        abort: `Engine.abort` ends what is being generated.
    """

    logprobs: bool = True
    seeds: bool = True
    company: bool = True
    weights: bool = True
    abort: bool = True


class Engine(Protocol):
    """A language model that samples."""

    @property
    def capabilities(self) -> Capabilities:
        """Features of the engine."""

    @property
    def weight_version(self) -> int:
        """The version of its weights: the last one given to `load_weights`, 0 before that."""

    def generate(
        self, prompts: Sequence[Sequence[int]], *, seeds: Sequence[Sequence[int]], max_tokens: int | None = None
    ) -> list[list[Completion]]:
        """Sample from prompts.

        Args:
            prompts: Token ids, one list per prompt.
            seeds: One seed per sample, one list per prompt; equal prompt and seed give the same sample for
                every composition of the batch if the engine's capabilities promise that.
            max_tokens: Longest answer of this call; None, and anything longer, for the engine's own limit.

        Returns:
            Per prompt, one completion per seed.

        Raises:
            PromptTooLong: A prompt leaves no room for an answer.
        """

    def load_weights(self, weights: Iterable[tuple[str, Any]], *, version: int | None = None) -> None:
        """Replace parameters by Hugging Face name; everything cached under the old ones is dropped.

        Args:
            weights: Names and tensors; none where they have changed in place.
            version: Of the weights from now on; None for one more than before.

        Raises:
            ConfigError: There is no such parameter, or it has another shape.
            Unsupported: The engine's weights stay as they are.
        """

    def abort(self) -> None:
        """Stop the generation of another thread; it returns its unfinished answers with the reason ``"abort"``.

        Raises:
            Unsupported: The engine cannot.
        """


class Host(Protocol):
    """A model that is held for sampling outside of the learner; several engines may share it."""

    @property
    def weight_version(self) -> int:
        """The version of its weights."""

    def engine(self, *, stop_ids: Sequence[int], max_tokens: int, temperature: float) -> Engine:
        """Return an engine that samples from the model.

        Args:
            stop_ids: Token ids that end an answer; they are part of it.
            max_tokens: Longest answer.
            temperature: Of the sampling distribution, 0 for the most likely token.
        """

    def load_weights(self, weights: Iterable[tuple[str, Any]], *, version: int | None = None) -> None:
        """Replace parameters; see `Engine.load_weights`."""

    def load_adapter(self, folder: Path, *, version: int) -> None:
        """Sample with the low-rank matrices in a folder added to the host's own weights.

        Raises:
            Unsupported: The host takes no adapters.
        """


class EngineEntry(NamedTuple):
    """Facts of an engine that a configuration is checked against.

    Attributes:
        host: What makes its `Host` from a model's folder, as ``"module:name"``; None where no host is needed.
        package: The package, and the extra of the same name, that a host on this machine needs.
        takes_adapters: Whether `Host.load_adapter` works.
        in_workers: Whether every worker of Ray can start a separate one.
    """

    host: str | None
    package: str | None = None
    takes_adapters: bool = False
    in_workers: bool = False


_HERE = "tsr_gym.agents.policies"
ENGINES = {
    "auto": EngineEntry(None, in_workers=True),
    "trie": EngineEntry(None, in_workers=True),
    "transformers": EngineEntry(None, in_workers=True),
    "vllm": EngineEntry(f"{_HERE}.vllm_engine:VllmModel", "vllm", takes_adapters=True, in_workers=True),
    "vllm-server": EngineEntry(f"{_HERE}.vllm_server:VllmServer", "vllm"),
    "openai": EngineEntry(None),
}


def find_engine(text: str) -> EngineEntry:
    """Return the entry of an engine: one of `ENGINES`, or ``package.module:name`` of any other.

    Raises:
        ConfigError: There is no such engine.
    """
    name = parse_call(text, what="engine").name
    if name in ENGINES:
        return ENGINES[name]
    if ":" in name:
        return EngineEntry(text, takes_adapters=True, in_workers=True)
    raise no_such("engine", name, list(ENGINES))


def start_host(text: str, folder: Path, **settings: Any) -> Host | None:
    """Return a new host of the model in a folder; None where the engine needs no host.

    Args:
        text: The engine; see `find_engine`.
        folder: A Hugging Face model with weights in safetensors.
        settings: Given to what makes the host, each where it has an argument of that name: ``url``, ``dtype``,
            ``cache_gib``, ``max_batch`` and ``lora_rank``.

    Raises:
        ConfigError: There is no such engine, or it does not take the keywords in the text.
    """
    entry = find_engine(text)
    if entry.host is None:
        return None
    host: Host = choose(entry.host, home=_HERE, what="engine", offered=settings)(folder)
    return host


def answer_limit(own: int, given: int | None) -> int:
    """Return the longest answer of a call: an engine's own limit, or a smaller one that was given.

    Raises:
        ConfigError: It leaves no room for a token.
    """
    check_limits(max_tokens=given)
    return own if given is None else min(given, own)


def check_prompt(length: int, context: int) -> None:
    """Raise PromptTooLong where a prompt is empty or leaves no room for an answer."""
    if not 0 < length < context:
        raise PromptTooLong(
            f"wanted a prompt of 1 to {context - 1} tokens, which leaves room for an answer in the model's context of "
            f"{context}, got {length}: shorten the history, or use another model"
        )


def list_samples(
    prompts: Sequence[Sequence[int]], seeds: Sequence[Sequence[int]], context: int
) -> list[tuple[tuple[int, ...], int]]:
    """Return a prompt and a seed per sample, in the order of `seeds`, after a check of the prompts.

    Raises:
        PromptTooLong: See `check_prompt`.
    """
    for prompt in prompts:
        check_prompt(len(prompt), context)
    return [(tuple(prompt), seed) for prompt, row in zip(prompts, seeds, strict=True) for seed in row]
