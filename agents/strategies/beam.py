"""Beam search over turns (TSR Eq. 8)."""

from collections.abc import Iterator

from tsr_gym.tree import Expand, Tree


def beam(tree: Tree, *, width: int, branching: int, depth: int | None = None) -> Iterator[list[Expand]]:
    """Keep the best partial episodes of every turn and expand each of them.

    ``B_{t+1} = Top_B { path + a : path in B_t, a in A(path) }``. An episode that has ended stays a member of the beam
    as long as it is among the best, and takes no more samples. Paths are rated by `Tree.merit`, ties are broken by the
    tree's seed. `width=1` is a greedy search, `width=1, branching=1` a plain rollout.

    Args:
        tree: What has grown.
        width: Paths that are kept, the paper's B (2).
        branching: Candidates per path and turn, the paper's M (4).
        depth: Turns to look ahead, None to the end of the episode.
    """
    if width < 1 or branching < 1:
        raise ValueError(f"wanted width and branching >= 1, got {width} and {branching}")
    if depth is not None and depth < 1:
        raise ValueError(f"wanted depth >= 1 or None, got {depth}")
    members = [tree.root]
    turns = 0
    while depth is None or turns < depth:
        wishes = [Expand(node, branching) for node in members if not tree.nodes[node].done]
        if not wishes:
            return
        yield wishes
        grown = [child for wish in wishes for child in tree.children(wish.node)[-branching:]]
        ended = [node for node in members if tree.nodes[node].done]
        members = tree.best(ended + grown, width)
        turns += 1
