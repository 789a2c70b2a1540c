"""OwnScore: what the environment's scorer said, as a part of a sum."""

from collections.abc import Sequence

from tsr_gym.tree import Tree


class OwnScore:
    """Score a node as it was when it grew: by the environment's scorer, or by the reward without one."""

    def __call__(self, grown: Sequence[tuple[Tree, int]]) -> list[float]:
        """Return the nodes' own scores."""
        return [tree.nodes[node].score for tree, node in grown]
