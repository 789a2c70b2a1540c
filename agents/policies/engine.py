"""Engine: token ids in, token ids and log-probabilities out; knows no chat and no environment."""

from collections.abc import Callable, Iterable, Sequence
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
        """Replace parameters by name; anything remembered under the old ones is forgotten.

        Args:
            weights: Pairs of Hugging Face parameter name and tensor.
        """


class ScriptedEngine:
    """An engine that says what a function tells it to, for tests and for timing everything but the model.

    Args:
        answer: From prompt ids and seed to the ids to say.
    """

    def __init__(self, answer: Callable[[Sequence[int], int], Sequence[int]]) -> None:
        self.answer = answer
        self.calls = 0

    def generate(self, prompts: Sequence[Sequence[int]], *, seeds: Sequence[Sequence[int]]) -> list[list[Completion]]:
        """Return the scripted answers with log-probability 0."""
        self.calls += 1
        return [[self._complete(prompt, seed) for seed in row] for prompt, row in zip(prompts, seeds, strict=True)]

    def _complete(self, prompt: Sequence[int], seed: int) -> Completion:
        ids = tuple(self.answer(prompt, seed))
        return Completion(ids, (0.0,) * len(ids), "stop")

    def load_weights(self, weights: Iterable[tuple[str, Any]]) -> None:
        """Do nothing: a script has no weights."""
