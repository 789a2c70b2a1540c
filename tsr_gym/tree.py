"""Tree: what a search has grown, as plain data that strategies read and files hold.

Nodes are only ever added; a node never changes. A tree seen from another root (`at`) shares its nodes.
"""

import base64
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from tsr_gym.budget import Budget
from tsr_gym.errors import InvalidTree, SnapshotError
from tsr_gym.seeds import derive_seed
from tsr_gym.snapshots import Snapshot

FORMAT = "tsr-gym tree"
VERSION = 1
Quantity = Literal["reward", "score"]


class Candidate(NamedTuple):
    """One thing that a policy would say at a node.

    Attributes:
        text: What the environment receives.
        prompt_ids: Token ids that the model saw, () for a policy without tokens.
        token_ids: Token ids that it said, exactly as sampled.
        logprobs: Log-probability of each of `token_ids` under the distribution it was sampled from.
    """

    text: str
    prompt_ids: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()


class Expand(NamedTuple):
    """A strategy's wish: sample this many candidates at this node."""

    node: int
    samples: int = 1


@dataclass(frozen=True, slots=True)
class Node:
    """One state of the world in a tree and the turn that led to it.

    Attributes:
        parent: Index of the node it grew from, None for the first.
        depth: Turns since the first node.
        candidate: What was said at the parent; empty text at the first node.
        observation: What the environment answered.
        reward: Reward of the turn.
        score: Guide of the search for the turn, as a scorer wrapper gave it; the reward without one.
        terminated: The task ended here.
        truncated: A limit ended the episode here.
        info: The environment's info for the turn.
        snapshot: The stack below the tree in this state; None in a tree that was saved without snapshots.
    """

    parent: int | None
    depth: int
    candidate: Candidate
    observation: Any
    reward: float
    score: float
    terminated: bool
    truncated: bool
    info: Mapping[str, Any]
    snapshot: Snapshot | None

    @property
    def done(self) -> bool:
        """Whether the episode has ended at this node."""
        return self.terminated or self.truncated


@dataclass(slots=True)
class _Store:
    """What the views of one tree share."""

    nodes: list[Node] = field(default_factory=list)
    children: list[list[int]] = field(default_factory=list)
    played: list[int] = field(default_factory=list)
    spent: Budget = field(default_factory=Budget)


class Tree:
    """Nodes by index, first node 0, children in the order in which they were added.

    Args:
        seed: Seed of the task; every random choice in and below the tree derives from it and a path.
        score_of: What a scorer's numbers rate: ``"turn"`` adds up along a path, ``"state"`` counts at its end.
        about: Facts that files and results name, such as the environment's id, preset and noise.

    Attributes:
        root: Where a search of this view begins; `ROOT` for the whole tree.
    """

    ROOT = 0

    def __init__(
        self, *, seed: int = 0, score_of: Literal["turn", "state"] = "turn", about: Mapping[str, Any] | None = None
    ) -> None:
        self.seed = seed
        self.score_of = score_of
        self.about = dict(about or {})
        self.root = self.ROOT
        self._store = _Store()

    @property
    def nodes(self) -> Sequence[Node]:
        """All nodes, by index."""
        return self._store.nodes

    def node(self, index: int) -> Node:
        """Return a node.

        Raises:
            IndexError: There is no such node; unlike a list, a tree does not count from its end.
        """
        if not 0 <= index < len(self._store.nodes):
            raise IndexError(f"wanted a node from 0 to {len(self._store.nodes) - 1}, got {index}")
        return self._store.nodes[index]

    @property
    def played(self) -> Sequence[int]:
        """The nodes of the episode that was really played, first node included; searched nodes are not in it."""
        return self._store.played

    @property
    def spent(self) -> Budget:
        """What has been spent on the whole tree."""
        return self._store.spent

    def charge(self, budget: Budget) -> None:
        """Add to `spent`."""
        self._store.spent += budget

    def add(self, node: Node, *, played: bool = False) -> int:
        """Add a node and return its index.

        Raises:
            ValueError: The parent is not in the tree.
        """
        index = len(self._store.nodes)
        if (node.parent is None) != (index == 0) or (node.parent is not None and not 0 <= node.parent < index):
            raise ValueError(f"wanted a parent among the {index} nodes of the tree, got {node.parent}")
        if node.parent is not None:
            self._store.children[node.parent].append(index)
        self._store.nodes.append(node)
        self._store.children.append([])
        if played:
            self._store.played.append(index)
        return index

    def at(self, root: int) -> "Tree":
        """Return the same tree as seen by a search that begins at another node.

        Raises:
            IndexError: There is no such node.
        """
        self.node(root)
        view = Tree(seed=self.seed, score_of=self.score_of, about=self.about)
        view.root = root
        view._store = self._store
        return view

    def children(self, index: int) -> Sequence[int]:
        """Return a node's children in the order in which they were added."""
        return tuple(self._store.children[index])

    def path(self, index: int) -> list[int]:
        """Return the nodes from `root` to a node, both included.

        Raises:
            ValueError: The node does not lie below the root.
        """
        path, nodes, root, here = [index], self._store.nodes, self.root, index
        while here != root:
            parent = nodes[here].parent
            if parent is None:
                raise ValueError(f"node {index} does not lie below the root {root}")
            path.append(parent)
            here = parent
        return path[::-1]

    def branch(self, index: int) -> tuple[int, ...]:
        """Return the child numbers that lead from the first node to a node: its address, whatever its index."""
        numbers = []
        node = self.nodes[index]
        while node.parent is not None:
            numbers.append(self._store.children[node.parent].index(index))
            index = node.parent
            node = self.nodes[index]
        return tuple(numbers[::-1])

    def below(self, index: int | None = None) -> Iterator[int]:
        """Yield a node and everything under it, parents before children, siblings in order."""
        stack = [self.root if index is None else index]
        while stack:
            here = stack.pop()
            yield here
            stack.extend(reversed(self._store.children[here]))

    def leaves(self) -> list[int]:
        """Return the nodes below the root that have no children."""
        return [index for index in self.below() if not self._store.children[index]]

    def open_leaves(self) -> list[int]:
        """Return the leaves below the root at which the episode goes on."""
        return [index for index in self.leaves() if not self.nodes[index].done]

    def total(self, index: int, quantity: Quantity) -> float:
        """Return the sum of rewards, or of scores, of the turns from the root to a node."""
        get, nodes = attrgetter(quantity), self._store.nodes
        return float(sum([get(nodes[step]) for step in self.path(index)[1:]]))

    def merit(self, index: int) -> float:
        """Return how good the path to a node looks to its scorer.

        The sum of its scores where they rate turns, the last one where they rate states.
        """
        return self.nodes[index].score if self.score_of == "state" else self.total(index, "score")

    def best(self, indices: Sequence[int], num: int, quantity: Quantity | None = None) -> list[int]:
        """Return the best of some nodes, best first; ties are broken by the tree's seed and the nodes' addresses.

        Args:
            indices: The nodes to choose from.
            num: How many to return, fewer where there are not as many.
            quantity: What is added up along their paths; None ranks by `merit`.
        """

        def rank(index: int) -> tuple[float, int]:
            worth = self.merit(index) if quantity is None else self.total(index, quantity)
            # Sums of the same rewards in another order differ in the last digits: that is a tie.
            return -round(worth, 9), derive_seed(self.seed, "tie", *self.branch(index))

        return sorted(indices, key=rank)[:num]

    def save(self, path: str | os.PathLike[str], *, snapshots: bool = True) -> None:
        """Write the tree as JSON lines, one header and one line per node; an older file is replaced only when done.

        Args:
            path: The file.
            snapshots: Whether to write the snapshots, which a tree needs to be grown further.
        """
        lines = [json.dumps(self._header(), default=_plain)]
        lines += [json.dumps(_node_to_json(node, snapshots), default=_plain) for node in self.nodes]
        write_atomically(Path(path), ("\n".join(lines) + "\n").encode())

    def _header(self) -> dict[str, Any]:
        store = self._store
        spent = {name: get(store.spent) for name, get in _BUDGET_FIELDS.items()}
        return {
            "format": FORMAT,
            "version": VERSION,
            "seed": self.seed,
            "score_of": self.score_of,
            "about": self.about,
            "played": store.played,
            "spent": spent,
            "nodes": len(store.nodes),
        }

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Tree":
        """Read a tree that `save` wrote.

        Raises:
            InvalidTree: The file is damaged, cut short or of another format; the message names the line.
            OSError: The file cannot be read.
        """
        data = Path(path).read_bytes()
        tree = None
        try:
            lines = data.decode().splitlines()
            header = json.loads(lines[0]) if lines else {}
            if header.get("format") != FORMAT or header.get("version") != VERSION:
                found = (header.get("format"), header.get("version"))
                raise InvalidTree(f"{path}: wanted a {FORMAT!r} of version {VERSION}, got {found}")
            tree = cls(seed=header["seed"], score_of=header["score_of"], about=header["about"])
            for line in lines[1:]:
                tree.add(_node_from_json(json.loads(line)))
            if len(tree.nodes) != header["nodes"]:
                raise InvalidTree(
                    f"{path}: wanted {header['nodes']} nodes, got {len(tree.nodes)}: the file is cut short"
                )
            tree._store.played.extend(header["played"])
            tree.charge(Budget(**header["spent"]))
        except (ValueError, KeyError, TypeError, AttributeError, SnapshotError) as error:
            if isinstance(error, InvalidTree):
                raise
            line_number = 1 if tree is None else len(tree.nodes) + 2
            raise InvalidTree(f"{path}, line {line_number}: not a node of a tree ({error}): damaged") from error
        return tree


_BUDGET_FIELDS = {name: attrgetter(name) for name in Budget.__dataclass_fields__}

Strategy = Callable[[Tree], Iterator[list[Expand]]]
Policy = Callable[[Sequence[tuple[Tree, Expand]]], list[list[Candidate]]]


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that it is either the old one or the whole new one, whatever happens in between."""
    partial = path.with_name(path.name + ".partial")
    with open(partial, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def _plain(value: Any) -> Any:
    """Return JSON's form of what numpy made."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"a {type(value).__name__} in a node's observation or info has no JSON form")


def _tupled(value: Any) -> Any:
    """Return a value with the tuples that JSON wrote as lists."""
    return tuple(_tupled(item) for item in value) if isinstance(value, list) else value


def _node_to_json(node: Node, snapshots: bool) -> dict[str, Any]:
    snap = base64.b64encode(node.snapshot.to_bytes()).decode() if snapshots and node.snapshot is not None else None
    return {
        "parent": node.parent,
        "candidate": list(node.candidate),
        "observation": node.observation,
        "reward": node.reward,
        "score": node.score,
        "terminated": node.terminated,
        "truncated": node.truncated,
        "depth": node.depth,
        "info": dict(node.info),
        "snapshot": snap,
    }


def _node_from_json(data: dict[str, Any]) -> Node:
    text, prompt_ids, token_ids, logprobs = data.pop("candidate")
    data["info"] = {name: _tupled(value) for name, value in data["info"].items()}
    snap = data.pop("snapshot")
    return Node(
        candidate=Candidate(text, tuple(prompt_ids), tuple(token_ids), tuple(logprobs)),
        observation=_tupled(data.pop("observation")),
        snapshot=None if snap is None else Snapshot.from_bytes(base64.b64decode(snap, validate=True)),
        **data,
    )
