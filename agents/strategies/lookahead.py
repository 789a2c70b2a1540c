"""Lookahead: try each candidate some turns further before choosing (TSR section 3.2)."""

from statistics import fmean
from typing import Literal

from tsr_gym.agents.strategies.order import ranked
from tsr_gym.agents.strategies.play_on import play_on
from tsr_gym.tree import Expand, Tree, Wishes


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
    estimates what the policy would make of the candidate; the maximum is what it could make of it, and overstates that
    the more, the more is left to chance. Leaves that tie are told apart by the tree's seed.

    Args:
        tree: What has grown.
        branching: Candidates per turn, the paper's M (paper: 4).
        depth: Further turns per candidate, the paper's D (paper: 2); 0 chooses by the candidates' own scores.
        rollouts: Rollouts per candidate.
        reduce: What the merits of a candidate's leaves come to.
        moves: Turns to decide, None to the end of the episode.
    """
    if branching < 1 or depth < 0:
        raise ValueError(f"wanted branching >= 1 and depth >= 0, got {branching} and {depth}")
    if rollouts < 1 or (moves is not None and moves < 1):
        raise ValueError(f"wanted rollouts >= 1 and moves >= 1 or None, got {rollouts} and {moves}")
    if reduce not in ("mean", "max"):
        raise ValueError(f"wanted reduce of 'mean' or 'max', got {reduce!r}")
    reduced = fmean if reduce == "mean" else max
    here, decided = tree.root, 0
    while tree.nodes[here].is_open and (moves is None or decided < moves):
        yield [Expand(here, branching)]
        candidates = tree.children(here)[-branching:]
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
