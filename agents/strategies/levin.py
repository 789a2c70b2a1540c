"""Levin tree search: expand the path with the least depth over probability, up to the first solution."""

from collections.abc import Callable
from math import exp, fsum, log
from typing import Literal

from tsr_gym.agents.strategies.best_first import Frontier
from tsr_gym.agents.strategies.order import Merge, best_ends
from tsr_gym.tree import Expand, Tree, Wishes

Chance = Literal["sampled", "proposed", "uniform"]


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

    where d0 counts the nodes on the path, the root included, and pi is the product of the probabilities of its turns.
    Where these add up to at most 1 at every node, no more than ``min d0(n) / pi(n)`` over all solutions n are expanded
    (its Theorem 3). With an estimate h of the turns that are still to come it is PHS* (Orseau and Lelis, AAAI 2021,
    arXiv 2103.11505), without that bound:

        ``(d0(n) + h(n)) / pi(n) ** (1 + h(n) / d0(n))``

    A state is not expanded again where it was with at least this probability: the paper's state cut, for policies that
    go by the state alone. Unlike the paper's, which looks at a node when it is expanded, the search ends as soon as a
    solution has grown, as in the authors' code (github.com/levilelis/h-levin). Solutions are chosen, the least cost
    first; where there are none, the finished episodes by merit, else the best leaf. Of equal candidates of a node, only
    the first counts. Where nothing waits and expansions are left, `Frontier` chooses the nodes that are sampled again.

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
    if expansions < 1 or samples < 1 or parallel < 1:
        raise ValueError(f"wanted expansions, samples and parallel >= 1, got {expansions}, {samples} and {parallel}")
    if chance not in ("sampled", "proposed", "uniform"):
        raise ValueError(f"wanted chance of 'sampled', 'proposed' or 'uniform', got {chance!r}")
    above, frontier = tree.nodes[tree.root].depth - 1, Frontier(tree, merge)
    chances, costs = {tree.root: 0.0}, {tree.root: 0.0}
    frontier.add(tree.root, 0.0)
    solved: list[int] = []
    left = expansions
    while not solved and (batch := frontier.take(min(parallel, left))):
        yield [Expand(node, samples) for node in batch]
        left -= len(batch)
        for node in batch:
            for child, logp in _grown(tree, node, samples, chance).items():
                chances[child] = chances[node] + logp
                depth, ahead = tree.nodes[child].depth - above, 0.0 if togo is None else max(0.0, togo(tree, child))
                costs[child] = log(depth + ahead) - (1 + ahead / depth) * chances[child]
                frontier.add(child, costs[child], chances[child])
                if tree.nodes[child].solved:
                    solved.append(child)
    return sorted(solved, key=costs.__getitem__) or best_ends(tree, costs, tree.merit)


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
    if chance != "sampled" or not all(logprobs.values()):
        total = most + log(fsum(exp(logit - most) for logit in logits.values()))
    return {child: logits[child] - total for child in children[-samples:] if child in logits}
