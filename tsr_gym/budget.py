"""Budget: the work that a search has done, or may do."""

from dataclasses import dataclass, field, fields
from operator import add, attrgetter, sub


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Counts of the work that a search does. Budgets are added with ``+`` and subtracted with ``-``.

    As a limit (`reached`), counts of 0 are not limited.

    Attributes:
        model_calls: Rounds in which the policy was called.
        sampled_tokens: Tokens that the model sampled, rejected candidates included.
        prompt_tokens: Tokens of the prompts, once per sample.
        prompt_tokens_saved: The part of `prompt_tokens` that was not computed again, because prefixes are shared.
        env_steps: Calls of `step`.
        restores: Snapshots restored.
        seconds: Wall-clock time of growing the tree. The time of a call of the policy is divided by the requested
            candidates, that of a rater by the rated nodes, so the trees of a call add up to its time. Not compared.
        env_seconds: The part of `seconds` that was spent in `step`.

    >>> (Budget(env_steps=2) + Budget(env_steps=3, restores=1)).env_steps
    5
    """

    model_calls: int = 0
    sampled_tokens: int = 0
    prompt_tokens: int = 0
    prompt_tokens_saved: int = 0
    env_steps: int = 0
    restores: int = 0
    seconds: float = field(default=0.0, compare=False)
    env_seconds: float = field(default=0.0, compare=False)

    def __sub__(self, other: "Budget") -> "Budget":
        return Budget(**dict(zip(_NAMES, map(sub, _counts(self), _counts(other)), strict=True)))

    def reached(self, limit: "Budget") -> bool:
        """Return whether a count has reached its limit.

        >>> Budget(env_steps=5, model_calls=9).reached(Budget(env_steps=5))
        True
        """
        return any(0 < most <= spent for spent, most in zip(_counts(self), _counts(limit), strict=True))

    def __add__(self, other: "Budget") -> "Budget":
        return Budget(**dict(zip(_NAMES, map(add, _counts(self), _counts(other)), strict=True)))


_NAMES = [item.name for item in fields(Budget)]
_counts = attrgetter(*_NAMES)
