"""Lookahead: try each candidate some turns further before choosing (TSR section 3.2)."""

from collections.abc import Iterator

from tsr_gym.tree import Expand, Tree


def lookahead(tree: Tree, *, branching: int, depth: int) -> Iterator[list[Expand]]:
    """At every turn, roll each candidate `depth` turns further with the policy and follow the best.

    A candidate is worth the merit of the leaf that its rollout reached, rated with everything on the way to it.

    Args:
        tree: What has grown.
        branching: Candidates per turn, the paper's M (4).
        depth: Further turns per candidate, the paper's D (2); 0 chooses by the candidates' own scores.
    """
    if branching < 1 or depth < 0:
        raise ValueError(f"wanted branching >= 1 and depth >= 0, got {branching} and {depth}")
    here = tree.root
    while not tree.nodes[here].done:
        yield [Expand(here, branching)]
        ends = {child: child for child in tree.children(here)[-branching:]}
        for _ in range(depth):
            wishes = [Expand(end) for end in ends.values() if not tree.nodes[end].done]
            if not wishes:
                break
            yield wishes
            ends = {child: tree.children(end)[-1] if not tree.nodes[end].done else end for child, end in ends.items()}
        chosen = tree.best(list(ends.values()), 1)[0]
        here = next(child for child, end in ends.items() if end == chosen)
