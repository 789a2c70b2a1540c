"""Strategies: generators over a tree that say which nodes to expand and read what grew.

Each is ``strategy(tree, ...)``; bind its numbers with `functools.partial` and hand it to a search.
"""

from tsr_gym.agents.strategies.beam import beam
from tsr_gym.agents.strategies.best_of_n import best_of_n
from tsr_gym.agents.strategies.lookahead import lookahead
from tsr_gym.agents.strategies.naive import naive

__all__ = ["beam", "best_of_n", "lookahead", "naive"]
