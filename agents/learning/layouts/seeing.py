"""Seeing: which tokens of a forest see which, the one definition of it."""

from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor

from tsr_gym.agents.learning.layouts.forest import TokenForest

Sees = Callable[[Any, Any, Tensor, Tensor], Tensor]


class Attention(Protocol):
    """Attention over the tokens of one forest."""

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float | None, window: int | None) -> Tensor:
        """Return what each token makes of the tokens that it sees.

        Args:
            query: `[1, H, U, D]`.
            key: `[1, K, U, D]`; each of the K heads serves H / K heads of the query.
            value: `[1, K, U, D]`.
            scale: Factor of the scores; None for ``D ** -0.5``.
            window: How many tokens back a token sees, itself included; None for all.
        """
        ...


def sees(forest: TokenForest, window: int | None = None) -> Sees:
    """Return which tokens of a forest see which: the one definition of it, for dense masks and for FlexAttention.

    Args:
        forest: Tokens.
        window: How many tokens back a token sees, itself included; None for all.

    Returns:
        A function of batch, head, and the numbers of the token that sees and of the one that is seen.
    """
    end, depth = forest.end, forest.depth

    def above(batch: Any, head: Any, seeing: Tensor, seen: Tensor) -> Tensor:
        return (seen <= seeing) & (seeing < end[seen])

    if window is None:
        return above

    def near(batch: Any, head: Any, seeing: Tensor, seen: Tensor) -> Tensor:
        return above(batch, head, seeing, seen) & (depth[seeing] - depth[seen] < window)

    return near
