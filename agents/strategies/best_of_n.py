"""Best-of-N: play N episodes and keep the best (TSR Eq. 7)."""

from tsr_gym.agents.strategies.harvest import harvested
from tsr_gym.agents.strategies.play_on import play_on
from tsr_gym.tree import Tree, Wishes


@harvested(by="reward")
def best_of_n(tree: Tree, *, n: int = 32, keep: int = 1) -> Wishes:
    """Play `n` independent episodes from the root and choose the best ones by reward.

    ``tau* = argmax_{i <= N} R(tau_i)`` (TSR, arXiv 2602.11767, Eq. 7). A path that a dead end stopped has no return and
    is never chosen.

    Args:
        tree: What has grown.
        n: Episodes (paper: 32).
        keep: How many to choose at most (paper: 16).
    """
    if n < 1 or keep < 1:
        raise ValueError(f"wanted n and keep >= 1, got {n} and {keep}")
    ends = yield from play_on(tree, [tree.root] * n)
    finished = [end for end in ends if tree.nodes[end].done and end != tree.root]
    return tree.best(finished, keep, "reward")
