"""Best-first search, and Levin tree search: expand the most promising node of the whole tree."""

from collections.abc import Callable, Hashable
from heapq import heappop, heappush
from math import exp, fsum, inf, log
from typing import Literal

from tsr_gym.agents.strategies.order import Merge, best_ends, harvested, identity, valued
from tsr_gym.ranges import check_counts
from tsr_gym.tree import Expand, Tree, Wishes


class Frontier:
    """A queue of the open nodes of a whole tree, without states that were expanded already.

    With merging, the queue can be empty while the policy could still sample other actions: most samples lead to states
    that were expanded already. Where no node waits, those that were expanded are therefore sampled again: those that
    were least often, of these the cheapest first. Without merging the queue is empty only where all episodes have
    ended.

    Args:
        tree: What has grown.
        merge: Which nodes count as one.
    """

    def __init__(self, tree: Tree, merge: Merge) -> None:
        self._tree = tree
        self._merge: Merge = merge
        # Heaps of entries that end with the node: those that were never expanded, by (cost, tie), and those that were,
        # by (times, cost, tie). A node is in one heap at most. Then, for every expanded state, its largest weight so
        # far.
        self._waiting: list[tuple[float, int, int]] = []
        self._again: list[tuple[int, float, int, int]] = []
        self._entered: dict[Hashable, float] = {}
        self._weights: dict[int, float] = {}

    def add(self, node: int, cost: float, weight: float = 0.0) -> None:
        """Put an open node into the queue; nodes that are not open are ignored.

        Args:
            node: The node.
            cost: The cheapest goes first; ties are broken by the tree's seed.
            weight: A node is left out if its state was already expanded with at least this weight.
        """
        if self._tree.nodes[node].is_open:
            # Sums of the same numbers in another order differ in the last digits: that is a tie.
            heappush(self._waiting, (round(cost, 9), self._tree.tie(node), node))
            self._weights[node] = weight

    def take(self, number: int) -> list[int]:
        """Return the next nodes to expand, at most `number`; an empty list means that the search is over."""
        fresh: list[tuple[int, float, int, int]] = []
        while self._waiting and len(fresh) < number:
            cost, tie, node = heappop(self._waiting)
            state, weight = identity(self._tree, node, self._merge), self._weights.pop(node)
            # States are compared when nodes leave the queue: while a node waits, another one in its state may be
            # expanded.
            # A state comes again only with a larger weight, such as a likelier path to it in Levin tree search.
            if state not in self._entered or self._entered[state] < weight:
                self._entered[state] = weight
                fresh.append((1, cost, tie, node))
        if not fresh and self._merge is not None:
            oldest = [heappop(self._again) for _ in range(min(number, len(self._again)))]
            fresh = [(times + 1, cost, tie, node) for times, cost, tie, node in oldest]
        for entry in fresh:
            heappush(self._again, entry)
        return [node for *_, node in fresh]


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
            expand and expansions are left, `Frontier` chooses the nodes that are sampled again.
    """
    check_counts(expansions=expansions, samples=samples, parallel=parallel)
    worth, frontier = {tree.root: 0.0}, Frontier(tree, merge)
    frontier.add(tree.root, 0.0)
    left = expansions
    while batch := frontier.take(min(parallel, left)):
        yield [Expand(node, samples) for node in batch]
        left -= len(batch)
        for child in [child for node in batch for child in tree.children(node)[-samples:]]:
            worth[child] = tree.merit(child) if value is None else valued(value, tree, child)
            frontier.add(child, -worth[child])
    return best_ends(tree, worth, worth.__getitem__)


Chance = Literal["sampled", "proposed", "uniform"]


@harvested(by="reward")
def levin(
    tree: Tree,
    *,
    expansions: int = 20,
    samples: int = 5,
    chance: Chance = "sampled",
    togo: Callable[[Tree, int], float] | None = None,
    parallel: int = 1,
    merge: Merge = "state",
) -> Wishes:
    """Expand the open node of the least cost until a solution is found or the expansions are used up.

    LevinTS (Orseau, Lelis, Lattimore and Weber, NeurIPS 2018, arXiv 1811.10928, Algorithm 1) uses the cost

        ``d0(n) / pi(n)``

    where d0 counts the nodes on the path and pi is the product of the probabilities of its turns. Where candidates are
    all actions of the policy, no more than the least ``d0(n) / pi(n)`` of a solution are expanded (its Theorem 3);
    sampled ones may leave it out. With an estimate h of the turns to come it is PHS* (arXiv 2103.11505), unbounded:

        ``(d0(n) + h(n)) / pi(n) ** (1 + h(n) / d0(n))``

    A state is not expanded again where it was with at least this probability: the paper's state cut. Under a limit of
    turns the path that it cuts may be the only short one, so that ``merge="state"`` can miss all solutions; the bound
    holds with ``"turns"``. The search ends as soon as a solution has grown, as in the authors' code
    (github.com/levilelis/h-levin), and in the paper when one is expanded. Solutions are chosen, the least cost first;
    else finished episodes by return; else the best leaf. Of equal candidates of a node, only the first counts. With
    nothing waiting and expansions left, `Frontier` chooses the nodes that are sampled again.

    Args:
        tree: What has grown.
        expansions: Nodes to expand at most.
        samples: Candidates per node; as many as there are actions for a policy that lists them.
        chance: The probability of a turn: ``"sampled"`` that of all its tokens; ``"proposed"`` the same divided by the
            sum over the node's candidates; ``"uniform"`` an equal share, as it is for a policy without tokens.
        togo: h, of the turns that are still to come after a node; None is LevinTS.
        parallel: Nodes that are expanded in one round; more ask the policy less often, on less knowledge.
        merge: Which nodes are in the same state; None cuts nothing.
    """
    check_counts(expansions=expansions, samples=samples, parallel=parallel)
    if chance not in ("sampled", "proposed", "uniform"):
        raise ValueError(f"wanted chance of 'sampled', 'proposed' or 'uniform', got {chance!r}")
    frontier = Frontier(tree, merge)
    chances, costs = {tree.root: 0.0}, {tree.root: 0.0}
    frontier.add(tree.root, 0.0)
    solved: list[int] = []
    left = expansions
    # A round is finished even where its first node brings a solution: its samples are paid for, and of several
    # solutions the cheapest is chosen.
    while not solved and (batch := frontier.take(min(parallel, left))):
        yield [Expand(node, samples) for node in batch]
        left -= len(batch)
        for node in batch:
            for child, logp in _grown(tree, node, samples, chance).items():
                chances[child] = chances[node] + logp
                costs[child] = _log_cost(tree, child, chances[child], togo)
                frontier.add(child, costs[child], chances[child])
                if tree.nodes[child].solved:
                    solved.append(child)
    return sorted(solved, key=costs.__getitem__) or best_ends(tree, costs, lambda node: tree.total(node, "reward"))


def _log_cost(tree: Tree, node: int, logp: float, togo: Callable[[Tree, int], float] | None) -> float:
    """Return the logarithm of the cost of PHS* of a node, whose path has the log-probability `logp`."""
    # The root of a search can stand within an episode, so that depth is counted from it. d0 is 1 at the root, which
    # makes its logarithm 0 and not minus infinity.
    depth = tree.nodes[node].depth - tree.nodes[tree.root].depth + 1
    # An estimate below 0 could make the sum of turns 0 or less, which has no logarithm.
    ahead = 0.0 if togo is None else max(0.0, valued(togo, tree, node))
    # In logarithms, because a product of probabilities underflows on long paths; the order is the same.
    return log(depth + ahead) - (1 + ahead / depth) * logp


def _grown(tree: Tree, node: int, samples: int, chance: Chance) -> dict[int, float]:
    """Return the log-probability of each new child of a node, without children that repeat an earlier one."""
    children = tree.children(node)
    # The theorem counts actions, and a policy can sample one action several times. Only the first child of an action
    # counts, because the probabilities of repeated children would add up to more than 1. Without tokens, equal texts
    # are equal actions.
    first: dict[object, int] = {}
    for child in children:
        candidate = tree.nodes[child].candidate
        first.setdefault(candidate.token_ids or repr(candidate.text), child)
    logprobs = {child: tree.nodes[child].candidate.logprobs for child in first.values()}
    logits = {child: 0.0 if chance == "uniform" else fsum(tokens) for child, tokens in logprobs.items()}
    # Sampled probabilities are used as they are. Otherwise, and where a child has none, the children share 1 in
    # proportion: the total is the log of the sum over all children of the node, also those of earlier expansions.
    total, most = 0.0, max(logits.values())
    if (chance != "sampled" or not all(logprobs.values())) and most > -inf:
        total = most + log(fsum(exp(logit - most) for logit in logits.values()))
    return {child: logits[child] - total for child in children[-samples:] if child in logits}
