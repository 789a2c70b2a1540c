"""Whole episodes: plain play (`naive`), the best of N (TSR Eq. 7), and chains that fork at random nodes.

Random branching is the sampling of Tree-GRPO (arXiv 2509.21240).
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from tsr_gym.agents.strategies.order import harvested, is_dead, ranked
from tsr_gym.errors import ConfigError
from tsr_gym.ranges import check_counts
from tsr_gym.seeds import derive_seed
from tsr_gym.tree import Expand, Tree, Wishes


def play_on(
    tree: Tree, starts: Iterable[int], turns: int | None = None, *, lost: bool = False
) -> Generator[list[Expand], None, list[int]]:
    """Let the policy continue from every start, one turn of all per round, and return the node at which each ended.

    Only the frontier is kept, so the cost of a round does not depend on the depth of the tree.

    Args:
        tree: What has grown.
        starts: Nodes; one that is named twice is continued twice.
        turns: Most turns per start, None to the end of the episode. A start that is not open stays where it is.
        lost: Whether proven dead ends are played on, too, so that they get the rewards of a failure.
    """
    ends = list(starts)

    def goes_on(end: int) -> bool:
        return not tree.nodes[end].done if lost else tree.nodes[end].is_open

    while (turns is None or turns > 0) and (going := Counter(end for end in ends if goes_on(end))):
        yield [Expand(node, samples) for node, samples in going.items()]
        grown = {node: iter(tree.children(node)[-samples:]) for node, samples in going.items()}
        ends = [next(grown[end]) if end in grown else end for end in ends]
        turns = None if turns is None else turns - 1
    return ends


@harvested("episodes")
def naive(tree: Tree, *, rollouts: int = 1) -> Wishes:
    """Play `rollouts` independent episodes from the root to their ends."""
    check_counts(rollouts=rollouts)
    yield from play_on(tree, [tree.root] * rollouts)
    return None


def to_the_end(strategy: Callable[[Tree], Any], *, paths: int | None) -> "partial[Wishes]":
    """Return a strategy that selects as another one does, and lets the policy play what it selected to the end.

    A path that a search leaves open, or that it stopped at a proven dead end, has not paid yet what it will cost: its
    return so far would rank it above a failure that went on. So nothing that is learned from is cut short, and every
    search yields as many episodes as are promised.

    Args:
        strategy: Searches.
        paths: How many paths are selected: those that the strategy chose, then the best others, finished ones first
            and dead ends last. None for all: nothing is chosen, and only dead ends are played on.
    """
    return partial(_to_the_end, strategy=strategy, paths=paths)


def _to_the_end(tree: Tree, *, strategy: Callable[[Tree], Any], paths: int | None) -> Wishes:
    selected: Sequence[int] = (yield from strategy(tree)) or ()
    if paths is None:
        yield from play_on(tree, [leaf for leaf in tree.leaves() if not tree.nodes[leaf].is_open], lost=True)
        return selected
    others = ranked(tree, [leaf for leaf in tree.leaves() if leaf not in selected], tree.merit)
    # Sorting is stable: finished, then open, then dead leaves, each of these classes with the best leaf first.
    others.sort(key=lambda leaf: tree.nodes[leaf].is_open + 2 * is_dead(tree, leaf))
    return (yield from play_on(tree, [*selected, *others][:paths], lost=True))


@harvested(by="reward")
def best_of_n(tree: Tree, *, n: int = 32, keep: int = 1) -> Wishes:
    """Play `n` independent episodes from the root and choose the best ones by reward.

    ``tau* = argmax_{i <= N} R(tau_i)`` (TSR, arXiv 2602.11767, Eq. 7). A path that a dead end stopped has no return and
    is never chosen.

    Args:
        tree: What has grown.
        n: Episodes (paper: 32).
        keep: How many to choose, at most `n` (paper: 16).
    """
    check_counts(n=n, keep=keep)
    if keep > n:
        raise ConfigError(
            f"wanted keep of at most the n={n} episodes, got {keep}: raise n, or lower keep (trajectories)"
        )
    ends = yield from play_on(tree, [tree.root] * n)
    finished = [end for end in ends if tree.nodes[end].done and end != tree.root]
    return tree.best(finished, keep, "reward")


# From the nodes at which continuations begin to the leaves at which they ended.
Continue = Callable[[Sequence[int]], Generator[list[Expand], None, list[int]]]


def branching_trees(tree: Tree, *, trees: int, nodes: int, rounds: int) -> list[list[int]]:
    """Return the leaves of each of the trees that `random_branching` grew, in the order in which they were reached.

    The draws follow from the tree's seed and shape, so this works for a tree that was saved and loaded, too.

    Args:
        tree: The whole tree, or the view from where the search began; nothing else has grown below its root.
        trees: As it was grown.
        nodes: As it was grown.
        rounds: As it was grown.

    Raises:
        ValueError: The tree was not grown with these numbers.
    """
    taken: dict[int, int] = {}

    def followed(start: int) -> int:
        while children := tree.children(start):
            number = taken.get(start, 0)
            taken[start] = number + 1
            start = children[number]
        return start

    def find(starts: Sequence[int]) -> Generator[list[Expand], None, list[int]]:
        yield from ()
        return [followed(start) for start in starts]

    try:
        # `find` yields no wishes, so that the first `next` runs to the end, and StopIteration has the leaves. Starts
        # are drawn as they were when the tree grew, and each continuation takes the next child that no earlier one
        # took. A tree of other numbers has no such child at some place, or has leaves left over.
        next(_forest(tree, find, trees, nodes, rounds))
    except IndexError:
        pass
    except StopIteration as end:
        leaves: list[list[int]] = end.value
        if sorted(chain.from_iterable(leaves)) == sorted(leaf for leaf in tree.leaves() if leaf != tree.root):
            return leaves
    raise ValueError(f"wanted a tree of random_branching with trees={trees}, nodes={nodes}, rounds={rounds}")


@harvested("branches", branches=branching_trees)
def random_branching(tree: Tree, *, trees: int = 2, nodes: int = 2, rounds: int = 1) -> Wishes:
    """Grow M trees below the root: a chain each, which then forks L times at N nodes drawn at random.

    In each of the L rounds, every tree draws N of its nodes, uniformly and with replacement, from the root and the
    nodes with children in it; from each the policy plays on to the end (Tree-GRPO, arXiv 2509.21240, with the draws of
    its published code). All trees share the root, so a drawn root is a fresh chain of the tree that drew it;
    `branching_trees` returns the leaves of each tree. Nothing is selected: all leaves are a group.

    A drawn node is one at which the episode went on, so every draw adds exactly one leaf: ``M (L N + 1)`` in the end,
    however long the episodes are.

    For chains of T turns, a draw in a tree that is still a chain costs ``(T + 1) / 2`` turns in expectation, and so the
    first round ``M N (T + 1) / 2``. Every continuation adds nodes that are deeper than the average, so that later
    rounds cost less: ``M T + M L N (T + 1) / 2`` turns are the expectation for one round and an upper bound for more.
    The published ``M B + L N B / 2``, with B the cost of a chain, counts N draws a round for all trees together and
    half a chain for each: for M = 1 and one round it is right but for that half turn a draw, and where each of M trees
    draws, as here and in its code, the draws are M times as many.

    Args:
        tree: What has grown.
        trees: The paper's M (2).
        nodes: Draws per tree and round, the paper's N (2).
        rounds: The paper's L (1).
    """
    check_counts(trees=trees, nodes=nodes)
    check_counts(least=0, rounds=rounds)
    yield from _forest(tree, lambda starts: play_on(tree, starts), trees, nodes, rounds)
    return None


def _forest(
    tree: Tree, continued: Continue, trees: int, nodes: int, rounds: int
) -> Generator[list[Expand], None, list[list[int]]]:
    """Draw and continue; return the leaves by tree. `continued` grows the tree, or follows one that has grown."""
    if not tree.nodes[tree.root].is_open:
        return [[] for _ in range(trees)]
    inner = [[tree.root] for _ in range(trees)]
    leaves: list[list[int]] = [[] for _ in range(trees)]
    for round_number in range(rounds + 1):
        draws = [
            (number, start)
            for number in range(trees)
            for start in (_drawn(tree, inner[number], nodes, number, round_number) if round_number else [tree.root])
        ]
        ends = yield from continued([start for _, start in draws])
        for (number, start), end in zip(draws, ends, strict=True):
            # The start is in the list already, and at the last node the episode ended: nothing can be continued there.
            inner[number] += tree.at(start).path(end)[1:-1]
            leaves[number].append(end)
    return leaves


def _drawn(tree: Tree, inner: Sequence[int], nodes: int, *purpose: int) -> list[int]:
    # A separate stream for each tree and round, so that a draw depends on nothing that was sampled elsewhere.
    rng = np.random.default_rng(derive_seed(tree.seed, "branch", *tree.branch(tree.root), *purpose))
    return [inner[pick] for pick in rng.integers(len(inner), size=nodes)]
