"""Beam search over turns (TSR Eq. 8), and greedy search, which is a beam of width 1."""

from collections.abc import Callable
from typing import Literal

from tsr_gym.agents.strategies.order import Merge, distinct, ranked
from tsr_gym.tree import Expand, Tree, Wishes

Rank = Literal["merit", "sum", "last"]


def beam(
    tree: Tree,
    *,
    width: int = 2,
    branching: int = 4,
    depth: int | None = None,
    rank: Rank = "merit",
    merge: Merge = None,
    until_success: bool = False,
) -> Wishes:
    """Keep the best partial episodes of every turn, expand each of them, and choose those that are left.

    ``B_{t+1} = Top_B { path + a : path in B_t, a in A(path) }`` (TSR, arXiv 2602.11767, Eq. 8). An episode that has
    ended stays a member of the beam as long as it is among the best, and takes no more samples; a dead end stays only
    where nothing else is left. Ties are broken by the tree's seed. `width=1` is a greedy search,
    `width=1, branching=1` a plain rollout.

    Args:
        tree: What has grown.
        width: Paths that are kept, the paper's B (paper: 2).
        branching: Candidates per path and turn, the paper's M (paper: 4).
        depth: Turns to look ahead, None to the end of the episode.
        rank: How paths are rated: by `Tree.merit`, by the sum of their scores, or by the last score alone.
        merge: Of the members that stand in the same state after a turn, only the best is kept.
        until_success: End at the first turn that solves the task, and choose the episodes that did, best first.
    """
    if width < 1 or branching < 1:
        raise ValueError(f"wanted width and branching >= 1, got {width} and {branching}")
    if depth is not None and depth < 1:
        raise ValueError(f"wanted depth >= 1 or None, got {depth}")
    worth = _worth(tree, rank)
    members = distinct(tree, [tree.root], merge)
    turns = 0
    while depth is None or turns < depth:
        wishes = [Expand(node, branching) for node in members if tree.nodes[node].is_open]
        if not wishes:
            break
        yield wishes
        grown = [child for wish in wishes for child in tree.children(wish.node)[-branching:]]
        if until_success and (solved := [child for child in grown if tree.nodes[child].solved]):
            return ranked(tree, solved, worth)
        stopped = [node for node in members if not tree.nodes[node].is_open]
        members = distinct(tree, ranked(tree, stopped + grown, worth), merge)[:width]
        turns += 1
    return [node for node in members if node != tree.root]


def greedy(tree: Tree, *, branching: int = 4, depth: int | None = None) -> Wishes:
    """Try some candidates at every turn and follow the best: a beam of width 1.

    Args:
        tree: What has grown.
        branching: Candidates per turn (the default is beam's).
        depth: Turns to look ahead, None to the end of the episode.
    """
    return (yield from beam(tree, width=1, branching=branching, depth=depth))


def _worth(tree: Tree, rank: Rank) -> Callable[[int], float]:
    ranks: dict[str, Callable[[int], float]] = {
        "merit": tree.merit,
        "sum": lambda node: tree.total(node, "score"),
        "last": lambda node: tree.nodes[node].score,
    }
    if rank not in ranks:
        raise ValueError(f"wanted rank of {sorted(ranks)}, got {rank!r}")
    return ranks[rank]
