"""Greedy search: the best candidate of every turn."""

from tsr_gym.agents.strategies.beam import beam
from tsr_gym.tree import Tree, Wishes


def greedy(tree: Tree, *, branching: int, depth: int | None = None) -> Wishes:
    """Try some candidates at every turn and follow the best: a beam of width 1.

    Args:
        tree: What has grown.
        branching: Candidates per turn.
        depth: Turns to look ahead, None to the end of the episode.
    """
    return (yield from beam(tree, width=1, branching=branching, depth=depth))
