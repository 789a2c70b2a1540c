"""Budget: what a search has spent, or may spend."""

from dataclasses import dataclass, field, fields
from operator import add, attrgetter, sub


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Counts of the work that a search does; add them with ``+``, compare two moments with ``-``.

    As a limit (`reached`) only those that are not 0 bind.

    Attributes:
        model_calls: Rounds in which a policy was asked.
        sampled_tokens: Tokens that the model wrote, rejected candidates included.
        prompt_tokens: Tokens that the model was conditioned on, once per sample.
        prompt_tokens_saved: Those of `prompt_tokens` that were not computed again, thanks to shared prefixes.
        env_steps: Calls of `step`.
        restores: Snapshots restored.
        seconds: Wall-clock time of growing the tree, with its share of every call of the policy and of the rater: calls
            are shared by the candidates that were wanted, and by the nodes that were rated, so that the trees of a call
            add up to it. Never part of equality.
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
        """Return whether one of the counts that a limit bounds is used up.

        >>> Budget(env_steps=5, model_calls=9).reached(Budget(env_steps=5))
        True
        """
        return any(0 < most <= spent for spent, most in zip(_counts(self), _counts(limit), strict=True))

    def __add__(self, other: "Budget") -> "Budget":
        return Budget(**dict(zip(_NAMES, map(add, _counts(self), _counts(other)), strict=True)))


_NAMES = [item.name for item in fields(Budget)]
_counts = attrgetter(*_NAMES)
