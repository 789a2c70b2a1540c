"""Play on: the policy continues from given nodes, nothing is chosen; what strategies with rollouts share."""

from collections import Counter
from collections.abc import Generator, Iterable

from tsr_gym.tree import Expand, Tree


def play_on(tree: Tree, starts: Iterable[int], turns: int | None = None) -> Generator[list[Expand], None, list[int]]:
    """Let the policy go on from every start, a turn of all of them a round, and return where each came to.

    Only the frontier is remembered, so that a round costs the same however deep the tree is.

    Args:
        tree: What has grown.
        starts: Nodes; one that is named twice is continued twice.
        turns: Most turns per start, None to the end of the episode. Whatever is not open stays where it is.
    """
    ends = list(starts)
    while (turns is None or turns > 0) and (going := Counter(end for end in ends if tree.nodes[end].is_open)):
        yield [Expand(node, samples) for node, samples in going.items()]
        grown = {node: iter(tree.children(node)[-samples:]) for node, samples in going.items()}
        ends = [next(grown[end]) if end in grown else end for end in ends]
        turns = None if turns is None else turns - 1
    return ends
