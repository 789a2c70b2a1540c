"""Engine: token ids in, token ids and log-probabilities out; knows no chat and no environment.

`tsr_gym.testing.check_engine` proves that an engine keeps what is promised here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from tsr_gym.errors import ConfigError, PromptTooLong


class Completion(NamedTuple):
    """What a model said after a prompt.

    Attributes:
        token_ids: The sampled ids, the stop token included.
        logprobs: Log-probability of each under the distribution it was drawn from, temperature included; () of an
            engine that does not know them.
        finish_reason: ``"stop"`` for a stop token, ``"length"`` where the limit or the context ended it, ``"abort"``
            where somebody else did.
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
    """What an engine can do; it raises `tsr_gym.Unsupported` where it is asked for anything else.

    Attributes:
        logprobs: Completions bear the exact log-probabilities of the sampling distribution.
        seeds: Equal prompts and seeds give equal samples.
        company: And they do whatever is generated beside them.
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
        """What it can do."""

    @property
    def weight_version(self) -> int:
        """The version of its weights: what `load_weights` was last told, 0 before."""

    def generate(
        self, prompts: Sequence[Sequence[int]], *, seeds: Sequence[Sequence[int]], max_tokens: int | None = None
    ) -> list[list[Completion]]:
        """Sample from prompts.

        Args:
            prompts: Token ids, one list per prompt.
            seeds: One seed per sample, one list per prompt; equal prompt and seed give the same sample, whatever is
                generated beside it, where the engine's capabilities say so.
            max_tokens: Longest answer of this call; None, and anything longer, for the engine's own limit.

        Returns:
            Per prompt, one completion per seed.

        Raises:
            PromptTooLong: A prompt leaves no room for an answer.
        """

    def load_weights(self, weights: Iterable[tuple[str, Any]], *, version: int | None = None) -> None:
        """Replace parameters by Hugging Face name; anything remembered under the old ones is forgotten.

        Args:
            weights: Names and tensors; none where they have changed in place.
            version: Of the weights from now on; None for one more than before.

        Raises:
            ConfigError: There is no such parameter, or it has another shape.
            Unsupported: The engine's weights stay as they are.
        """

    def abort(self) -> None:
        """End what another thread is generating: its answers come back as far as they are, with reason ``"abort"``.

        Raises:
            Unsupported: The engine cannot.
        """


def answer_limit(own: int, given: int | None) -> int:
    """Return the longest answer of a call: an engine's own limit, or a smaller one that was given.

    Raises:
        ConfigError: It leaves no room for a token.
    """
    limit = own if given is None else min(given, own)
    if limit < 1:
        raise ConfigError(f"wanted max_tokens >= 1, got {limit}")
    return limit


def check_prompt(length: int, context: int) -> None:
    """Raise PromptTooLong where a prompt leaves no room for an answer, or is none."""
    if not 0 < length < context:
        raise PromptTooLong(
            f"wanted a prompt of 1 to {context - 1} tokens, which leaves room for an answer in the model's context of "
            f"{context}, got {length}: shorten the history, or use another model"
        )
