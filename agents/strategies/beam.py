"""Strategies that decide turn by turn: beam search (TSR Eq. 8), greedy search, and lookahead (TSR section 3.2)."""

from collections.abc import Callable
from statistics import fmean
from typing import Literal

from tsr_gym.agents.strategies.order import Merge, distinct, ranked
from tsr_gym.agents.strategies.play_on import play_on
from tsr_gym.ranges import check_counts, check_limits
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
    check_counts(width=width, branching=branching)
    check_limits(depth=depth)
    worth = _worth(tree, rank)
    members = distinct(tree, [tree.root], merge)
    turns = 0
    while depth is None or turns < depth:
        wishes = [Expand(node, branching) for node in members if tree.nodes[node].is_open]
        if not wishes:
            break
        yield wishes
        # A node can have older children, of an earlier search of the same episode: those of this round are the last.
        grown = [child for wish in wishes for child in tree.children(wish.node)[-branching:]]
        if until_success and (solved := [child for child in grown if tree.nodes[child].solved]):
            return ranked(tree, solved, worth)
        # Members that take no more candidates compete with the new ones, so that a finished episode can leave the beam.
        stopped = [node for node in members if not tree.nodes[node].is_open]
        # Ranked before merged, so that the best of the members in one state stays.
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


def lookahead(
    tree: Tree,
    *,
    branching: int = 4,
    depth: int = 2,
    rollouts: int = 1,
    reduce: Literal["mean", "max"] = "mean",
    moves: int | None = None,
) -> Wishes:
    """At every turn, roll each candidate `depth` turns further with the policy, follow the best, choose where it leads.

    A candidate is worth the merit of the leaves that its rollouts reached, rated with everything on the way to them:
    ``a* = argmax_{a in A_t} reduce_i S(leaf_i(a))`` (TSR, arXiv 2602.11767, section 3.2, with one rollout). The mean
    estimates what the policy would make of the candidate; the maximum is the best that was seen, which overstates a
    candidate the more, the more its turns depend on chance. Ties between leaves are broken by the tree's seed.

    Args:
        tree: What has grown.
        branching: Candidates per turn, the paper's M (paper: 4).
        depth: Further turns per candidate, the paper's D (paper: 2); 0 chooses by the candidates' own scores.
        rollouts: Rollouts per candidate.
        reduce: What the merits of a candidate's leaves come to.
        moves: Turns to decide, None to the end of the episode.
    """
    check_counts(branching=branching, rollouts=rollouts)
    check_counts(least=0, depth=depth)
    check_limits(moves=moves)
    if reduce not in ("mean", "max"):
        raise ValueError(f"wanted reduce of 'mean' or 'max', got {reduce!r}")
    reduced = fmean if reduce == "mean" else max
    here, decided = tree.root, 0
    while tree.nodes[here].is_open and (moves is None or decided < moves):
        yield [Expand(here, branching)]
        candidates = tree.children(here)[-branching:]
        # All rollouts of all candidates share their rounds, so that a move costs `depth` + 1 calls of the policy.
        ends = yield from play_on(tree, [child for child in candidates for _ in range(rollouts)], depth)
        # Each candidate is represented by its best leaf, which is dead only where all of them are.
        worth, candidate_of = {}, {}
        for number, child in enumerate(candidates):
            leaves = ends[number * rollouts : (number + 1) * rollouts]
            leader = ranked(tree, leaves, tree.merit)[0]
            worth[leader], candidate_of[leader] = reduced([tree.merit(leaf) for leaf in leaves]), child
        here = candidate_of[ranked(tree, worth, worth.__getitem__)[0]]
        decided += 1
    return [here] if decided else ()
