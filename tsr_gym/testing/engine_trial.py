"""EngineTrial: an engine under check, what its answers are held against, and how it is asked."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from tsr_gym.errors import CheckFailed, shown

Ids = tuple[int, ...]
# From a prompt and an answer to the learner's log-probability of each token of the answer.
Reference = Callable[[Ids, Ids], Sequence[float]]
# Changes the learner, and returns what `load_weights` is to be given.
Update = Callable[[], Iterable[tuple[str, Any]]]
REASONS = ("stop", "length", "abort")


@dataclass(frozen=True, slots=True)
class EngineTrial:
    """An engine under check.

    Attributes:
        engine: What is checked.
        prompts: Token ids to ask with.
        reference: The learner's log-probabilities; None where they are not known.
        update: Changes the learner; None where its weights stay.
        stop_ids: Tokens that end an answer.
        tolerance: Most difference of a log-probability.
    """

    engine: Any
    prompts: tuple[Ids, ...]
    reference: Reference | None
    update: Update | None
    stop_ids: frozenset[int]
    tolerance: float

    def ask(self, prompts: Sequence[Ids], seeds: Sequence[Sequence[int]], **settings: int) -> list[list[Any]]:
        """Return the engine's answers, after a look that every one is whole.

        Raises:
            CheckFailed: There are more or fewer than wanted, one is not what the contract says, or the engine wrote
                into what it was given.
        """
        given = [list(prompt) for prompt in prompts], [list(row) for row in seeds]
        answers: list[list[Any]] = self.engine.generate(given[0], seeds=given[1], **settings)
        if given != ([list(prompt) for prompt in prompts], [list(row) for row in seeds]):
            raise CheckFailed("completions", "generate wrote into the prompts or seeds that it was given")
        found, wanted = [len(row) for row in answers], [len(row) for row in seeds]
        if found != wanted:
            raise CheckFailed("counts", f"wanted {wanted} completions for the prompts, one per seed, got {found}")
        for prompt, row in zip(prompts, answers, strict=True):
            for completion in row:
                self._check(prompt, completion)
        return answers

    def one_each(self, prompts: Sequence[Ids], seed: int, **settings: int) -> list[Any]:
        """Return one answer to each prompt, all by the same seed."""
        return [row[0] for row in self.ask(prompts, [[seed]] * len(prompts), **settings)]

    def compare(self, check: str, prompts: Sequence[Ids], answers: Sequence[Any]) -> None:
        """Hold the log-probabilities of answers against the reference.

        Raises:
            CheckFailed: One differs.
        """
        assert self.reference is not None
        for prompt, completion in zip(prompts, answers, strict=True):
            wanted = [float(one) for one in self.reference(prompt, completion.token_ids)]
            differences = [abs(a - b) for a, b in zip(completion.logprobs, wanted, strict=True)]
            if not max(differences) <= self.tolerance:
                place = max(range(len(wanted)), key=differences.__getitem__)
                raise CheckFailed(
                    check,
                    f"token {place} of the answer to {shown(prompt)} has log-probability "
                    f"{completion.logprobs[place]:.7g} and the learner's is {wanted[place]:.7g}: other weights, "
                    "another prompt than was given, or another distribution than was sampled from (temperature "
                    "included)",
                )

    def _check(self, prompt: Ids, completion: Any) -> None:
        ids, logprobs = completion.token_ids, completion.logprobs
        knows = self.engine.capabilities.logprobs
        whole = {
            "token_ids, a tuple of some ints": type(ids) is tuple and ids and all(type(one) is int for one in ids),
            "one logprob per token, () without the capability": len(logprobs) == (len(ids) if knows else 0),
            "finite logprobs of at most 0": all(isfinite(one) and one <= 1e-6 for one in logprobs),
            f"a finish_reason of {REASONS}": completion.finish_reason in REASONS,
            "num_cached from 0 to the prompt's length": 0 <= completion.num_cached <= len(prompt),
        }
        for what, holds in whole.items():
            if not holds:
                raise CheckFailed("completions", f"wanted {what}, got {shown(completion)}")
        if completion.weight_version != self.engine.weight_version:
            raise CheckFailed(
                "weight version",
                f"wanted {shown(self.engine.weight_version)} on a completion, got {shown(completion.weight_version)}",
            )


def said(answers: Iterable[Iterable[Any]]) -> list[list[Ids]]:
    """Return the token ids of answers."""
    return [[completion.token_ids for completion in row] for row in answers]
