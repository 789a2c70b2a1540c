"""Rollouts without search: the policy plays, nothing is chosen."""

from tsr_gym.agents.strategies.harvest import harvested
from tsr_gym.agents.strategies.play_on import play_on
from tsr_gym.tree import Tree, Wishes


@harvested("episodes")
def naive(tree: Tree, *, rollouts: int = 1) -> Wishes:
    """Play independent episodes from the root to their ends.

    Args:
        tree: What has grown.
        rollouts: Episodes.
    """
    if rollouts < 1:
        raise ValueError(f"wanted rollouts >= 1, got {rollouts}")
    yield from play_on(tree, [tree.root] * rollouts)
    return None
