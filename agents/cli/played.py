"""Played: what a person has played, the moments that were kept on the way, and both as a tree."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tsr_gym.errors import InvalidTree
from tsr_gym.node import Node
from tsr_gym.tree import Tree

Line = tuple[Node, ...]


@dataclass(slots=True)
class Played:
    """A trajectory that goes on, and others that were left. Nodes are told apart by identity.

    Attributes:
        path: The trajectory to here, first node first.
        lines: Those that were left, to where they were left.
        moments: Ways to the moments that were kept.
    """

    path: list[Node]
    lines: list[Line] = field(default_factory=list)
    moments: list[Line] = field(default_factory=list)

    def keep(self) -> int:
        """Keep this moment and return its number, from 1."""
        here = [number for number, moment in enumerate(self.moments, start=1) if moment[-1] is self.path[-1]]
        if here:
            return here[0]
        self.moments.append(tuple(self.path))
        return len(self.moments)

    def go(self, number: int) -> int:
        """Go on from a moment, and return the number under which the one that is left was kept.

        Raises:
            LookupError: There is no such moment.
        """
        if not 1 <= number <= len(self.moments):
            raise LookupError(f"wanted a moment from 1 to {len(self.moments)}, got {number}")
        left = self.keep()
        self.lines.append(tuple(self.path))
        self.path = list(self.moments[number - 1])
        return left


def tree_of(played: Played, *, seed: int, score_of: Literal["turn", "state"], about: Mapping[str, Any]) -> Tree:
    """Return all that was played as a tree, whose played nodes are the path."""
    tree = Tree(seed=seed, score_of=score_of, about=about)
    own = {id(node) for node in played.path}
    index: dict[int, int] = {}
    for line in (*played.lines, tuple(played.path)):
        parent = None
        for node in line:
            if id(node) not in index:
                index[id(node)] = tree.add(replace(node, parent=parent), played=id(node) in own)
            parent = index[id(node)]
    return tree


def played_of(tree: Tree) -> Played:
    """Return what a person has played, from its tree; forks and ends of what was left are its moments.

    Raises:
        InvalidTree: It is no tree of texts, or nothing was played in it.
    """
    if not tree.played or not all(isinstance(node.observation, str) for node in tree.nodes):
        raise InvalidTree(f"wanted a trajectory of texts, got a tree of {len(tree.nodes)} nodes")

    def line(end: int) -> Line:
        return tuple(tree.nodes[index] for index in tree.path(end))

    ends = [end for end in tree.leaves() if end not in tree.played]
    forks = [index for index in range(len(tree.nodes)) if len(tree.children(index)) > 1]
    return Played(list(line(tree.played[-1])), [line(end) for end in ends], [line(end) for end in [*forks, *ends]])
