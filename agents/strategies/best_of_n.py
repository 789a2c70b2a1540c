"""Best-of-N: play N episodes, keep the best ones when harvesting (TSR Eq. 7)."""

from collections.abc import Iterator

from tsr_gym.agents.strategies.naive import naive
from tsr_gym.tree import Expand, Tree


def best_of_n(tree: Tree, *, n: int) -> Iterator[list[Expand]]:
    """Play `n` independent episodes from the root; the choice among them is the harvest's.

    Args:
        tree: What has grown.
        n: Episodes, 32 in the paper's setting, of which 16 are kept.
    """
    yield from naive(tree, rollouts=n)
