"""Whole episodes: the policy plays on from given nodes; plain play (`naive`), and the best of N (TSR Eq. 7)."""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Any

from tsr_gym.agents.strategies.harvest import harvested
from tsr_gym.agents.strategies.order import is_dead, ranked
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
    if rollouts < 1:
        raise ValueError(f"wanted rollouts >= 1, got {rollouts}")
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
        keep: How many to choose at most (paper: 16).
    """
    if n < 1 or keep < 1:
        raise ValueError(f"wanted n and keep >= 1, got {n} and {keep}")
    ends = yield from play_on(tree, [tree.root] * n)
    finished = [end for end in ends if tree.nodes[end].done and end != tree.root]
    return tree.best(finished, keep, "reward")
