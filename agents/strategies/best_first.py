"""Best-first search: expand the most promising node of the whole tree."""

from collections.abc import Callable

from tsr_gym.agents.strategies.frontier import Frontier
from tsr_gym.agents.strategies.order import Merge, best_ends
from tsr_gym.tree import Expand, Tree, Wishes


def best_first(
    tree: Tree,
    *,
    expansions: int = 20,
    samples: int = 5,
    value: Callable[[Tree, int], float] | None = None,
    parallel: int = 1,
    merge: Merge = None,
) -> Wishes:
    """Expand the best open node, wherever in the tree it is, until the expansions are used up.

    Nodes wait in one queue, ordered by value, as in the best-first tree search for language-model agents of Koh et al.
    (arXiv 2407.01476). The finished episodes are chosen, best first; where there are none, the best leaf. Ties are
    broken by the tree's seed. With the depth as value it searches depth first, with its negative breadth first.

    Args:
        tree: What has grown.
        expansions: Nodes to expand at most, the paper's search budget c.
        samples: Candidates per node, the paper's branching factor b.
        value: What the path to a node looks worth; None is `Tree.merit`. A critic of what is still to come is added to
            what there was: ``lambda tree, node: tree.total(node, "reward") + critic(tree.nodes[node])``.
        parallel: Nodes that are expanded in one round; more ask the policy less often, on less knowledge.
        merge: Of nodes in the same state, only the one that is expanded first ever is. Where that leaves nothing to
            expand and expansions are left, `Frontier` says which nodes are sampled again.
    """
    if expansions < 1 or samples < 1 or parallel < 1:
        raise ValueError(f"wanted expansions, samples and parallel >= 1, got {expansions}, {samples} and {parallel}")
    worth, frontier = {tree.root: 0.0}, Frontier(tree, merge)
    frontier.add(tree.root, 0.0)
    left = expansions
    while batch := frontier.take(min(parallel, left)):
        yield [Expand(node, samples) for node in batch]
        left -= len(batch)
        for child in [child for node in batch for child in tree.children(node)[-samples:]]:
            worth[child] = tree.merit(child) if value is None else value(tree, child)
            frontier.add(child, -worth[child])
    return best_ends(tree, worth, worth.__getitem__)
