"""Best-first search: expand the most promising node of the whole tree."""

from collections.abc import Callable, Hashable
from heapq import heappop, heappush

from tsr_gym.agents.strategies.order import Merge, identity, ranked
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
        merge: Of nodes in the same state, only the one that is expanded first ever is.
    """
    if expansions < 1 or samples < 1 or parallel < 1:
        raise ValueError(f"wanted expansions, samples and parallel >= 1, got {expansions}, {samples} and {parallel}")
    worth: dict[int, float] = {tree.root: 0.0}
    waiting = [(0.0, 0, tree.root)] if tree.nodes[tree.root].is_open else []
    expanded: set[int] = set()
    entered: set[Hashable] = set()
    while batch := _next(tree, waiting, entered, min(parallel, expansions - len(expanded)), merge):
        yield [Expand(node, samples) for node in batch]
        expanded.update(batch)
        for child in [child for node in batch for child in tree.children(node)[-samples:]]:
            worth[child] = tree.merit(child) if value is None else value(tree, child)
            if tree.nodes[child].is_open:
                tie = tree.tie(child)
                heappush(waiting, (-round(worth[child], 9), tie, child))
    leaves = [node for node in worth if node not in expanded and node != tree.root]
    finished = [leaf for leaf in leaves if tree.nodes[leaf].done]
    return ranked(tree, finished, worth.__getitem__) or ranked(tree, leaves, worth.__getitem__)[:1]


def _next(
    tree: Tree, waiting: list[tuple[float, int, int]], entered: set[Hashable], number: int, merge: Merge
) -> list[int]:
    """Take the best nodes out of the queue, and drop those whose state was expanded already."""
    batch: list[int] = []
    while waiting and len(batch) < number:
        node = heappop(waiting)[-1]
        state = identity(tree, node, merge)
        if state not in entered:
            entered.add(state)
            batch.append(node)
    return batch
