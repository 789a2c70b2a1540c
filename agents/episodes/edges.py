"""Edges: the moves that trees tried, and what each led to; where states are equal, trees become one graph."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from tsr_gym.agents.episodes.collect import Collected
from tsr_gym.agents.episodes.trajectory import Trajectory, action_of
from tsr_gym.tree import Tree


class Edge(NamedTuple):
    """A move from a state, as it was tried once.

    Attributes:
        state: Key of the state in which it was made (`StateEnv.state_key`).
        action: What was carried out.
        after: Key of the state that it led to; None where nobody knows.
        actions: How many actions it took.
        solved: Whether it solved the task.
        ended: Whether nothing can follow: the task or a limit ended the episode, or the task is proven lost. A move
            that ended nothing, and that nobody went on from, leads to a state of which nothing is known.
    """

    state: bytes
    action: Hashable
    after: bytes | None
    actions: int
    solved: bool
    ended: bool


def edges_by_task(collected: Collected) -> dict[int, list[Edge]]:
    """Return the moves that all trees of each task tried."""
    trees = zip(collected.groups, collected.trees, strict=True)
    return {group.task: harvest_edges(grown) for group, grown in trees}


def harvest_edges(trees: Iterable[Tree]) -> list[Edge]:
    """Return every move that some trees tried, rejected candidates too, in the order in which they grew.

    Moves from states that nobody knows are left out: they are in no graph.
    """
    return [edge for tree in trees for edge in _edges_of(tree)]


def _edges_of(tree: Tree) -> Iterator[Edge]:
    for index in sorted(tree.below()):
        node = tree.nodes[index]
        state = None if node.parent is None else tree.nodes[node.parent].state_key
        if state is not None and index != tree.root:
            actions = len(node.info.get("executed", ()))
            yield Edge(state, action_of(node), node.state_key, actions, node.solved, not node.is_open)


def edges_along(trajectories: Sequence[Trajectory]) -> list[Edge]:
    """Return the moves of some trajectories of one task, for where there are no trees; a shared turn counts once."""
    found: dict[tuple[int, ...], Edge] = {}
    for number, trajectory in enumerate(trajectories):
        for place, (turn, then) in enumerate(zip_longest(trajectory.turns, trajectory.turns[1:])):
            if turn.state is None or turn.action is None:
                continue
            key = (trajectory.tree, turn.node) if turn.node >= 0 else (-1, number, place)
            after, last = (None, True) if then is None else (then.state, False)
            solved, ended = last and trajectory.success, last and trajectory.finished
            found.setdefault(key, Edge(turn.state, turn.action, after, turn.num_actions, solved, ended))
    return list(found.values())
