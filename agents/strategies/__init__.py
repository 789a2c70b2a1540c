"""Strategies: generators over a tree that say which nodes to expand and read what grew.

Each is ``strategy(tree, ...)``; bind its numbers with `functools.partial` and hand it to a search. What it returns,
where it does, are the ends of the paths that it chose, best first.
"""

from tsr_gym.agents.strategies.adaptive import adaptive
from tsr_gym.agents.strategies.beam import beam
from tsr_gym.agents.strategies.best_first import best_first
from tsr_gym.agents.strategies.best_of_n import best_of_n
from tsr_gym.agents.strategies.greedy import greedy
from tsr_gym.agents.strategies.lookahead import lookahead
from tsr_gym.agents.strategies.naive import naive
from tsr_gym.agents.strategies.puct import puct
from tsr_gym.agents.strategies.random_branching import random_branching

__all__ = [
    "adaptive",
    "beam",
    "best_first",
    "best_of_n",
    "greedy",
    "lookahead",
    "naive",
    "puct",
    "random_branching",
]
