"""Rollouts without search: the policy plays, nothing is chosen."""

from collections.abc import Iterator

from tsr_gym.tree import Expand, Tree


def naive(tree: Tree, *, rollouts: int = 1) -> Iterator[list[Expand]]:
    """Play independent episodes from the root to their ends.

    Args:
        tree: What has grown.
        rollouts: Episodes.
    """
    if rollouts < 1:
        raise ValueError(f"wanted rollouts >= 1, got {rollouts}")
    if tree.nodes[tree.root].done:
        return
    yield [Expand(tree.root, rollouts)]
    episodes = tree.children(tree.root)[-rollouts:]
    while wishes := [Expand(leaf) for episode in episodes for leaf in _open_ends(tree, episode)]:
        yield wishes


def _open_ends(tree: Tree, episode: int) -> list[int]:
    return [node for node in tree.below(episode) if not tree.children(node) and not tree.nodes[node].done]
