"""Fates: what became of every node of a tree, why the search left it or kept it, and what lies below it."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from tsr_gym.node import Node
from tsr_gym.tree import Tree

Outcome = Literal["solved", "failed", "cut", "dead end", "open"]
Fate = Literal["kept", "played", "expanded", "ended", "pruned"]


def outcome_of(node: Node) -> Outcome:
    """Return how the episode stands at a node; ``cut`` is by a limit."""
    if node.terminated:
        return "solved" if node.solved else "failed"
    if node.truncated:
        return "cut"
    return "dead end" if node.info.get("dead_end") else "open"


def fates(tree: Tree) -> list[Fate]:
    """Return what the search made of every node.

    ``kept``: on a path that it chose; ``played``: of the episode that was really played; ``expanded``: it went on
    from there, and chose no path through it; ``ended``: the episode ended there; ``pruned``: left without going on.
    """
    kept = {node for end in tree.chosen for node in tree.path(end)}
    played = set(tree.played) if len(tree.played) > 1 else set()

    def fate(index: int) -> Fate:
        if index in kept:
            return "kept"
        if index in played:
            return "played"
        if tree.children(index):
            return "expanded"
        return "ended" if tree.nodes[index].done else "pruned"

    return [fate(index) for index in range(len(tree.nodes))]


@dataclass(frozen=True, slots=True)
class Ranks:
    """How nodes of one depth rank by their merit: merits in falling order as negative numbers, and who went on."""

    merits: tuple[float, ...]
    went_on: int

    def words(self, merit: float) -> str:
        """Return the rank of a merit as words."""
        first, last = (cut(self.merits, -round(merit, 9)) for cut in (bisect_left, bisect_right))
        shared = " (shared)" if last - first > 1 else ""
        return f"rank {first + 1}{shared} of {len(self.merits)} at its depth"


def ranks(tree: Tree) -> dict[int, Ranks]:
    """Return the ranks of every depth."""
    depths: dict[int, list[int]] = {}
    for index, node in enumerate(tree.nodes):
        depths.setdefault(node.depth, []).append(index)
    return {
        depth: Ranks(
            tuple(sorted(-round(tree.merit(index), 9) for index in indices)),
            sum(1 for index in indices if tree.children(index)),
        )
        for depth, indices in depths.items()
    }


def reason(tree: Tree, index: int, fate: Fate, by_depth: dict[int, Ranks]) -> str:
    """Return why a node has its fate, as a sentence; only what the tree itself says."""
    node = tree.nodes[index]
    rank = by_depth[node.depth]
    ranked = f"merit {tree.merit(index):.3g}, {rank.words(tree.merit(index))}"
    if fate == "kept":
        places = [place for place, end in enumerate(tree.chosen, start=1) if index in tree.path(end)]
        return f"on the path that the search chose ({_nth(places)} of {len(tree.chosen)}); {ranked}"
    if fate == "played":
        return "of the episode that was played"
    if fate == "expanded":
        chose = "chose no path through it" if tree.chosen else "chose nothing"
        return f"the search went on from here and {chose}; {ranked}"
    if fate == "ended":
        return f"the episode ended here; {ranked}"
    if node.info.get("dead_end"):
        return f"a dead end: {node.info['dead_end']}"
    first = tree.twins(index, turns=False)[0]
    twin = f"; the same state as node {first}" if first != index else ""
    return f"not continued: {ranked}; the search went on from {rank.went_on} there{twin}"


def _nth(places: Sequence[int]) -> str:
    return ", ".join(map(str, places)) if len(places) <= 4 else f"{places[0]} to {places[-1]}, {len(places)} paths"


def values(tree: Tree) -> list[float | None]:
    """Return what every node is worth: the mean over its children of reward plus worth, 0 where the episode ends.

    ``V(n) = mean over children c of r(c) + V(c)``, of the children whose worth is known; None where no episode below
    a node has ended. Every child counts alike, however much was searched below it.
    """
    worth: list[float | None] = [None] * len(tree.nodes)
    for index in range(len(tree.nodes) - 1, -1, -1):
        node = tree.nodes[index]
        if node.done:
            worth[index] = 0.0
            continue
        below = [(tree.nodes[child].reward, worth[child]) for child in tree.children(index)]
        known = [reward + value for reward, value in below if value is not None]
        worth[index] = fmean(known) if known else None
    return worth


def gains(tree: Tree, worth: Sequence[float | None]) -> list[float | None]:
    """Return how much better than its siblings the turn to every node was: ``r(n) + V(n) - V(parent)``.

    None at the first node, and where a value is not known.
    """
    found: list[float | None] = []
    for node, value in zip(tree.nodes, worth, strict=True):
        before = None if node.parent is None else worth[node.parent]
        found.append(None if value is None or before is None else node.reward + value - before)
    return found
