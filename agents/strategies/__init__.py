"""Strategies: generators over a tree that yield the nodes to expand and then read the new nodes.

Each is ``strategy(tree, ...)``; bind its numbers with `functools.partial` and hand it to a search. What it returns,
where it does, are the ends of the paths that it chose, best first.
"""

from functools import partial
from typing import Any

from tsr_gym.agents.strategies.adaptive import adaptive
from tsr_gym.agents.strategies.beam import beam, greedy, lookahead
from tsr_gym.agents.strategies.best_first import best_first, levin
from tsr_gym.agents.strategies.play_on import best_of_n, naive, random_branching
from tsr_gym.agents.strategies.puct import puct
from tsr_gym.keywords import choose
from tsr_gym.tree import Candidate, Node, Tree

__all__ = [
    "adaptive",
    "beam",
    "best_first",
    "best_of_n",
    "greedy",
    "levin",
    "lookahead",
    "naive",
    "puct",
    "random_branching",
]

STRATEGIES = "tsr_gym.agents.strategies"
_OVER = Node(None, 0, Candidate(""), "", 0.0, 0.0, True, False, {}, None)


def choose_strategy(text: str) -> "partial[Any]":
    """Return the strategy that a text such as ``"puct(simulations=64)"`` names, its numbers bound and checked.

    Args:
        text: One of these strategies, or ``package.module:name``, with its numbers.

    Raises:
        ConfigError: There is no such strategy, or it cannot have these numbers.
    """
    return choose(text, home=STRATEGIES, what="strategy", trial=check_numbers)


def check_numbers(strategy: Any) -> None:
    """Let a strategy of ours check its numbers, on a tree in which there is nothing to do."""
    if not strategy.func.__module__.startswith(STRATEGIES):
        return
    tree = Tree()
    tree.add(_OVER)
    next(iter(strategy(tree)), None)
