"""Best-of-N: play N episodes and keep the best (TSR Eq. 7)."""

from tsr_gym.agents.strategies.play_on import play_on
from tsr_gym.tree import Tree, Wishes


def best_of_n(tree: Tree, *, n: int, keep: int = 1) -> Wishes:
    """Play `n` independent episodes from the root and choose the best ones by reward.

    ``tau* = argmax_{i <= N} R(tau_i)`` (TSR, arXiv 2602.11767, Eq. 7). A path that a dead end stopped has no return and
    is never chosen.

    Args:
        tree: What has grown.
        n: Episodes, 32 in the paper's setting.
        keep: How many to choose, 16 in the paper's setting.
    """
    if n < 1 or keep < 1:
        raise ValueError(f"wanted n and keep >= 1, got {n} and {keep}")
    ends = yield from play_on(tree, [tree.root] * n)
    finished = [end for end in ends if tree.nodes[end].done and end != tree.root]
    return tree.best(finished, keep, "reward")
