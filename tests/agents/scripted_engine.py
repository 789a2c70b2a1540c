"""An engine that answers by a function."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tsr_gym import Unsupported
from tsr_gym.agents.policies.engine import Capabilities, Completion


class ScriptedEngine:
    """An engine that says what a function tells it to.

    Args:
        answer: From prompt ids and seed to the ids to say.
    """

    capabilities = Capabilities(logprobs=False, company=True, abort=False)

    def __init__(self, answer: Callable[[Sequence[int], int], Sequence[int]]) -> None:
        self.answer = answer
        self.calls = 0
        self.weight_version = 0

    def generate(
        self, prompts: Sequence[Sequence[int]], *, seeds: Sequence[Sequence[int]], max_tokens: int | None = None
    ) -> list[list[Completion]]:
        """Return the scripted answers with log-probability 0."""
        self.calls += 1
        return [[self._complete(prompt, seed) for seed in row] for prompt, row in zip(prompts, seeds, strict=True)]

    def _complete(self, prompt: Sequence[int], seed: int) -> Completion:
        ids = tuple(self.answer(prompt, seed))
        return Completion(ids, (0.0,) * len(ids), "stop", 0, self.weight_version)

    def load_weights(self, weights: Iterable[tuple[str, Any]], *, version: int | None = None) -> None:
        """Count: a script has no weights."""
        self.weight_version = self.weight_version + 1 if version is None else version

    def abort(self) -> None:
        """Refuse: a script answers at once."""
        raise Unsupported("a script cannot be interrupted")
