"""Learned: what learning made of the turns of a tree, kept in the facts of the tree and so in its file. Torch-free.

``tree.about["advantages"]`` is ``{"estimator": name, "of": {node: [advantage of each sampled token]}}``.
"""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import NamedTuple

from tsr_gym.tree import Tree

NAME = "advantages"


class Learned(NamedTuple):
    """The advantages with which the turns of a tree were learned from.

    Attributes:
        estimator: What made them.
        of: By node, one number per sampled token of the turn that led to it; 0 where it carried no policy gradient.
            A turn that trajectories share has their mean. Nodes that were not learned from are missing.
    """

    estimator: str
    of: Mapping[int, tuple[float, ...]]


def keep_learned(tree: Tree, learned: Learned) -> None:
    """Write into the facts of a tree what was learned from it."""
    of = {str(node): [round(one, 6) for one in tokens] for node, tokens in sorted(learned.of.items())}
    tree.about[NAME] = {"estimator": learned.estimator, "of": of}


def learned_from(tree: Tree) -> Learned:
    """Return what was learned from a tree; nothing where its facts do not say, or say it in another form."""
    facts = tree.about.get(NAME)
    of = facts.get("of") if isinstance(facts, Mapping) else None
    if not isinstance(facts, Mapping) or not isinstance(of, Mapping):
        return Learned("", {})
    nodes = {str(index): index for index in range(len(tree.nodes))}
    known = {nodes[name]: tuple(tokens) for name, tokens in of.items() if name in nodes and _are_numbers(tokens)}
    return Learned(str(facts.get("estimator", "")), known)


def _are_numbers(values: object) -> bool:
    return isinstance(values, Sequence) and all(type(one) in (int, float) and isfinite(one) for one in values)
