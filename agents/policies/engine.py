"""Engine: token ids in, token ids and log-probabilities out; knows no chat and no environment."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, Protocol


class Completion(NamedTuple):
    """What a model said after a prompt.

    Attributes:
        token_ids: The sampled ids, the stop token included.
        logprobs: Log-probability of each under the distribution it was drawn from, temperature included.
        finish_reason: ``"stop"`` for a stop token, ``"length"`` where the limit or the context ended it.
        num_cached: Prompt tokens that were not computed for this completion, because another one shared them.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: Literal["stop", "length"]
    num_cached: int = 0


class Engine(Protocol):
    """A language model that samples."""

    def generate(self, prompts: Sequence[Sequence[int]], *, seeds: Sequence[Sequence[int]]) -> list[list[Completion]]:
        """Sample from prompts.

        Args:
            prompts: Token ids, one list per prompt.
            seeds: One seed per sample, one list per prompt; equal prompt and seed give the same sample, whatever is
                generated beside it.

        Returns:
            Per prompt, one completion per seed.

        Raises:
            PromptTooLong: A prompt leaves no room for an answer.
        """

    def load_weights(self, weights: Iterable[tuple[str, Any]]) -> None:
        """Replace parameters by Hugging Face name; anything remembered under the old ones is forgotten."""
