"""VllmEngine: the contract of engines over vLLM, in this process (`VllmModel`) or behind a server (`VllmServer`).

Samples are drawn from ``softmax(logits / temperature)`` over the whole vocabulary, and their log-probabilities are of
this distribution: without top-k, top-p and penalties, also where the model's own settings have them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from tsr_gym.agents.policies.engine import Capabilities, Completion, answer_limit, check_prompt
from tsr_gym.errors import ConfigError, EngineFailed

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
        if self.max_tokens < 1 or not self.stop_ids:
            raise ConfigError(f"wanted max_tokens >= 1 and some stop_ids, got {self.max_tokens} and {self.stop_ids}")
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
