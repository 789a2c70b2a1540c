"""Raters: scores that need a model or a node's siblings, for all nodes that grew in a round at once.

Each is a `tsr_gym.tree.Rater`; hand it to a search as ``rater``. What needs one turn only is a score in
`tsr_gym.wrappers`. Invariant: the score of a node depends on the node's own tree, never on other trees.
"""

from tsr_gym.agents.raters.critic_value import CriticValue
from tsr_gym.agents.raters.weighted_rater import (
    OwnScore,
    SelfConsistency,
    WeightedRater,
    choose_rater,
    goes_by,
    make_rater,
)

__all__ = ["CriticValue", "OwnScore", "SelfConsistency", "WeightedRater", "choose_rater", "goes_by", "make_rater"]
