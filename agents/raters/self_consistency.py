"""SelfConsistency: the vote of a node's candidates, each counting for what it says."""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence

from tsr_gym.codec import encode
from tsr_gym.tree import Node, Tree


def said(node: Node) -> Hashable | None:
    """Return what a turn comes down to; None where it means nothing, and so has no vote.

    The answer where the environment names one (``info["answer"]``, without regard to case and blanks), else the actions
    that were carried out, else the action itself.
    """
    answer = node.info.get("answer")
    if isinstance(answer, str):
        return "answer", " ".join(answer.casefold().split())
    if "executed" in node.info:
        return tuple(node.info["executed"]) or None
    action = node.candidate.text
    return action if isinstance(action, Hashable) else encode(action)


class SelfConsistency:
    """Score a node by the share of its parent's candidates that say the same.

    Self-consistency (arXiv 2203.11171) takes the majority among sampled answers; here it is a majority turn by turn. It
    needs no label and no model of its own, and several candidates per node: a single one agrees with itself. Where
    scores add up along a path, shares do.

    Args:
        key: What a node says: nodes with equal keys agree, None has no vote and gets 0.
    """

    def __init__(self, key: Callable[[Node], Hashable | None] = said) -> None:
        self.key = key

    def __call__(self, grown: Sequence[tuple[Tree, int]]) -> list[float]:
        """Return the share of each node's siblings, itself included, that say what it says."""
        votes: dict[tuple[int, int], Counter[Hashable | None]] = {}
        shares = []
        for tree, index in grown:
            node = tree.nodes[index]
            if node.parent is None:
                raise ValueError("the first node of a tree has no siblings: wanted nodes that grew")
            siblings = tree.children(node.parent)
            place = (id(tree), node.parent)
            if place not in votes:
                votes[place] = Counter(self.key(tree.nodes[sibling]) for sibling in siblings)
            key = self.key(node)
            shares.append(0.0 if key is None else votes[place][key] / len(siblings))
        return shares
