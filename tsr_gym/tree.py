"""Tree: the nodes that a search has grown, as plain data that strategies read and files hold.

Nodes are only added. They never change, except for the score that a rater gives them. A tree seen from another root
(`at`) shares its nodes.
"""

import gzip
import json
import os
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from math import inf, isfinite
from operator import add, attrgetter, sub
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tsr_gym.errors import InvalidTree, NotFinite, SnapshotError, shown
from tsr_gym.files import ZIPPED, read_unzipped, write_atomically
from tsr_gym.node import Candidate, Node, node_from_json, node_to_json
from tsr_gym.ranges import check_counts, check_range
from tsr_gym.records import to_json
from tsr_gym.seeds import derive_seed, numbered_seeds

# Called with the name of a stage of long work, the finished count and the total.
Meter = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Counts of the work that a search does. Budgets are added with ``+`` and subtracted with ``-``.

    As a limit (`reached`), counts of 0 are not limited. A negative or fractional count is a ConfigError.

    Attributes:
        model_calls: Rounds in which the policy was called.
        sampled_tokens: Tokens that the model sampled, rejected candidates included.
        prompt_tokens: Tokens of the prompts, once per sample.
        prompt_tokens_saved: The part of `prompt_tokens` that was not computed again, because prefixes are shared.
        env_steps: Calls of `step`.
        restores: Snapshots restored.
        expansions: Requests for candidates at a node; a node that is sampled twice counts twice.
        seconds: Wall-clock time of growing the tree. The time of a call of the policy is divided by the requested
            candidates, that of a rater by the rated nodes, so the trees of a call add up to its time. Not compared.
        env_seconds: The part of `seconds` that was spent in `step`.

    >>> (Budget(env_steps=2) + Budget(env_steps=3, restores=1)).env_steps
    5
    """

    model_calls: int = 0
    sampled_tokens: int = 0
    prompt_tokens: int = 0
    prompt_tokens_saved: int = 0
    env_steps: int = 0
    restores: int = 0
    expansions: int = 0
    seconds: float = field(default=0.0, compare=False)
    env_seconds: float = field(default=0.0, compare=False)

    def __post_init__(self) -> None:
        *counts, seconds, env_seconds = _counts(self)
        check_counts(least=0, **dict(zip(_NAMES, counts, strict=False)))
        check_range(least=0, seconds=seconds, env_seconds=env_seconds)

    def __sub__(self, other: "Budget") -> "Budget":
        return Budget(**dict(zip(_NAMES, map(sub, _counts(self), _counts(other)), strict=True)))

    def reached(self, limit: "Budget") -> bool:
        """Return whether a count has reached its limit.

        >>> Budget(env_steps=5, model_calls=9).reached(Budget(env_steps=5))
        True
        """
        return any(0 < most <= spent for spent, most in zip(_counts(self), _counts(limit), strict=True))

    def __add__(self, other: "Budget") -> "Budget":
        return Budget(**dict(zip(_NAMES, map(add, _counts(self), _counts(other)), strict=True)))


_NAMES = [item.name for item in fields(Budget)]
_counts = attrgetter(*_NAMES)


MAX_TEXT = 60


def outline(nodes: Sequence[Node], children: Callable[[int], Sequence[int]], root: int, limit: int) -> str:
    """Return a line per node below a root, each indented below its parent, children in order.

    Args:
        nodes: All nodes of the tree.
        children: The children of a node, by index.
        root: The first node to show.
        limit: Most lines; one more line states that the outline was cut.
    """
    if not nodes:
        return "no nodes"
    lines: list[str] = []
    open_nodes = [root]
    top = nodes[root].depth
    while open_nodes and len(lines) < limit:
        index = open_nodes.pop()
        node = nodes[index]
        lines.append("  " * (node.depth - top) + f"{index}: {_words(node)}")
        # Reversed, because the last item of the stack is taken next and children are shown in order.
        open_nodes += reversed(children(index))
    if open_nodes:
        lines.append(f"... cut after {limit} nodes")
    return "\n".join(lines)


def turn_text(node: Node) -> str:
    """Return the text of the turn that led to a node, for the first node its observation, in one short line."""
    words = node.observation if node.parent is None else node.candidate.text
    text = " ".join(str(words).split())
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."


def ending(node: Node) -> str:
    """Return how an episode ended at a node, in words; "" if it did not end there."""
    return "solved" if node.solved else "ended" if node.terminated else "cut by a limit" if node.truncated else ""


def _words(node: Node) -> str:
    words = [turn_text(node)]
    if node.parent is not None:
        words.append(f"reward {node.reward:g}")
        words += [f"score {node.score:g}"] if node.score != node.reward else []
    return ", ".join(filter(None, [*words, ending(node)]))


__all__ = ["Candidate", "Expand", "Node", "Policy", "Quantity", "Rater", "Strategy", "Tree", "Wishes"]

FORMAT = "tsr-gym tree"
VERSION = 1
# Nodes that the representation of a tree shows.
SHORT = 10
SCORES_OF = ("turn", "state")
# Exceptions that a damaged line of a file may raise.
DAMAGE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
Quantity = Literal["reward", "score"]


class Expand(NamedTuple):
    """A request of a strategy: sample this many candidates at this node."""

    node: int
    samples: int = 1


@dataclass(slots=True)
class _Store:
    """The data that the views of one tree share."""

    nodes: list[Node] = field(default_factory=list)
    children: list[list[int]] = field(default_factory=list)
    # The address of every node, and the sums of rewards and scores on the path to it, so that none is computed twice.
    branches: list[tuple[int, ...]] = field(default_factory=list)
    sums: dict[Quantity, list[float]] = field(default_factory=lambda: {"reward": [], "score": []})
    states: dict[bytes, list[int]] = field(default_factory=dict)
    num_transpositions: int = 0
    # Functions from a child's number to its tie breaker, by parent.
    ties: dict[int, Callable[[int], int]] = field(default_factory=dict)
    played: list[int] = field(default_factory=list)
    chosen: tuple[int, ...] = ()
    # A dictionary with the field names of `Budget`: every turn adds to it, and making a `Budget` each time is slow.
    spent: dict[str, Any] = field(default_factory=lambda: dict.fromkeys(_NAMES, 0))

    def sum(self, quantity: Quantity, parent: int, value: float) -> float:
        """Return the sum of a quantity on a path that continues by a turn with this value.

        Raises:
            NotFinite: The value or the sum is not finite. Comparisons with NaN are false: a search would take any path.
        """
        above = self.sums[quantity][parent]
        with suppress(OverflowError, TypeError):
            if isfinite(total := above + value):
                return total
        raise NotFinite(f"wanted a finite {quantity} below node {parent}, got {shown(value)}, after {above:g}")


class Tree:
    """Nodes by index, first node 0, children in the order in which they were added.

    Args:
        seed: Seed of the task; every random choice in the tree derives from it and a path.
        score_of: What the scores rate: with ``"turn"`` they add up along a path, with ``"state"`` the last one counts.
        about: Facts for files and results, such as the environment's id, preset and noise.

    Attributes:
        root: The node at which a search of this view begins; `ROOT` for the whole tree.
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

    def __repr__(self) -> str:
        heading = f"Tree({len(self.nodes)} nodes, seed {self.seed})"
        return f"{heading}\n{self.outline(SHORT)}" if self.nodes else heading

    def outline(self, limit: int = 1000) -> str:
        """Return a line per node from `root` on, each indented below its parent; at most `limit` nodes."""
        return outline(self.nodes, self.children, self.root, limit)

    @property
    def nodes(self) -> Sequence[Node]:
        """All nodes, by index."""
        return self._store.nodes

    def node(self, index: int) -> Node:
        """Return a node.

        Raises:
            IndexError: There is no such node. Negative indices are refused.
        """
        if not 0 <= index < len(self._store.nodes):
            raise IndexError(f"wanted a node from 0 to {len(self._store.nodes) - 1}, got {index}")
        return self._store.nodes[index]

    @property
    def played(self) -> Sequence[int]:
        """The nodes of the episode that was played, first node included, without nodes that were only searched."""
        return self._store.played

    @property
    def chosen(self) -> Sequence[int]:
        """The ends of the paths that the last search chose, best first; empty if it chose none."""
        return self._store.chosen

    def choose(self, indices: Sequence[int]) -> None:
        """Record the nodes that a search chose.

        Raises:
            IndexError: There is no such node.
        """
        for index in indices:
            self.node(index)
        self._store.chosen = tuple(indices)

    @property
    def num_transpositions(self) -> int:
        """The number of nodes whose state, apart from the turns left, is that of an earlier node."""
        return self._store.num_transpositions

    @property
    def spent(self) -> Budget:
        """The budget spent on the whole tree."""
        return Budget(**self._store.spent)

    def charge(self, budget: Budget) -> None:
        """Add to `spent`."""
        self.spend(**dict(zip(_NAMES, _counts(budget), strict=True)))

    def spend(self, **counts: float) -> None:
        """Add to `spent` by names, such as ``spend(env_steps=3)``; faster than `charge`.

        Raises:
            KeyError: `Budget` has no such field.
        """
        spent = self._store.spent
        for name, more in counts.items():
            spent[name] += more

    def add(self, node: Node, *, played: bool = False) -> int:
        """Add a node and return its index.

        Raises:
            ValueError: The parent is not in the tree, or some tokens of its candidate have no log-probability.
            NotFinite: Its reward or score is not finite, or the sum of its path's is not, or a log-probability is NaN.
        """
        store, parent = self._store, node.parent
        index = len(store.nodes)
        if (parent is None) != (index == 0) or (parent is not None and not 0 <= parent < index):
            raise ValueError(f"wanted a parent among the {index} nodes of the tree, got {parent}")
        if logprobs := node.candidate.logprobs:
            _check_logprobs(logprobs, len(node.candidate.token_ids), index)
        # Sums run from the first node, also under a view with another root: `total` returns the difference of two sums.
        rewards, scores = store.sums["reward"], store.sums["score"]
        if parent is None:
            store.branches.append(())
            rewards.append(0.0)
            scores.append(0.0)
        else:
            reward, score = store.sum("reward", parent, node.reward), store.sum("score", parent, node.score)
            siblings = store.children[parent]
            store.branches.append((*store.branches[parent], len(siblings)))
            rewards.append(reward)
            scores.append(score)
            siblings.append(index)
        store.nodes.append(node)
        store.children.append([])
        if node.state_key is not None:
            # Nodes with the same state are never merged here: strategies decide what to do with transpositions.
            twins = store.states.setdefault(node.state_key, [])
            store.num_transpositions += bool(twins)
            twins.append(index)
        if played:
            store.played.append(index)
        return index

    def rate(self, index: int, score: float) -> None:
        """Set the score of a node to that of a rater.

        Raises:
            ValueError: The node is the first, or has children, whose paths include its old score.
            NotFinite: The score is not finite.
        """
        store, node = self._store, self.node(index)
        if store.children[index] or node.parent is None:
            raise ValueError(f"node {index} is the first or has children: wanted a leaf to rate")
        store.sums["score"][index] = store.sum("score", node.parent, score)
        store.nodes[index] = replace(node, score=float(score))

    def at(self, root: int) -> "Tree":
        """Return the same tree as seen by a search that begins at another node.

        Raises:
            IndexError: There is no such node.
        """
        self.node(root)
        view = Tree(seed=self.seed, score_of=self.score_of, about=self.about)
        view.root = root
        # The views share one store, so a node that one of them adds is in all of them.
        view._store = self._store
        return view

    def children(self, index: int) -> Sequence[int]:
        """Return a node's children in the order in which they were added."""
        return tuple(self._store.children[index])

    def path(self, index: int) -> list[int]:
        """Return the nodes from `root` to a node, both included.

        Raises:
            ValueError: The node is not below the root.
        """
        path, nodes, root, here = [index], self._store.nodes, self.root, index
        while here != root:
            parent = nodes[here].parent
            if parent is None:
                raise ValueError(f"node {index} is not below the root {root}")
            path.append(parent)
            here = parent
        return path[::-1]

    def branch(self, index: int) -> tuple[int, ...]:
        """Return the child numbers that lead from the first node to a node: its address."""
        return self._store.branches[index]

    def key(self, index: int, *, turns: bool) -> Hashable | None:
        """Return the identity of a node's state, for merging; None if it is unknown.

        Args:
            index: The node.
            turns: Include the turns and actions left: the same position with fewer turns left is then another state.
        """
        node = self._store.nodes[index]
        if not turns or node.state_key is None:
            return node.state_key
        # An environment that does not report the turns left may still count them, so that the depth takes their place.
        return node.state_key, node.info.get("turns_left", -node.depth), node.info.get("actions_left")

    def twins(self, index: int, *, turns: bool) -> list[int]:
        """Return all nodes with the same state as a node, itself included, in the order in which they were added."""
        node = self._store.nodes[index]
        if node.state_key is None:
            return [index]
        equal, wanted = self._store.states[node.state_key], self.key(index, turns=turns)
        return [twin for twin in equal if self.key(twin, turns=turns) == wanted]

    def below(self, index: int | None = None) -> Iterator[int]:
        """Yield a node and all nodes below it, parents before children, siblings in order."""
        stack = [self.root if index is None else index]
        while stack:
            here = stack.pop()
            yield here
            stack.extend(reversed(self._store.children[here]))

    def leaves(self) -> list[int]:
        """Return the nodes below the root that have no children."""
        return [index for index in self.below() if not self._store.children[index]]

    def open_leaves(self) -> list[int]:
        """Return the leaves below the root that a search may expand."""
        return [index for index in self.leaves() if self.nodes[index].is_open]

    def total(self, index: int, quantity: Quantity) -> float:
        """Return the sum of rewards, or of scores, of the turns from the root to a node.

        Raises:
            ValueError: The node is not below the root.
        """
        store, root = self._store, self.root
        if root:
            # A node is below the root exactly if its address begins with the root's; no walk is needed.
            above = store.branches[root]
            if store.branches[index][: len(above)] != above:
                raise ValueError(f"node {index} is not below the root {root}")
        sums = store.sums[quantity]
        return sums[index] - sums[root]

    def merit(self, index: int) -> float:
        """Return the score of the path to a node: the sum of its scores if they rate turns, else the last one."""
        return self.nodes[index].score if self.score_of == "state" else self.total(index, "score")

    def best(self, indices: Sequence[int], num: int, quantity: Quantity | None = None) -> list[int]:
        """Return the best nodes, best first. The tree's seed and the nodes' addresses break ties.

        Args:
            indices: The nodes to choose from.
            num: How many to return, or fewer if there are not as many.
            quantity: The quantity to sum along their paths; None ranks by `merit`.
        """
        check_counts(least=0, num=num)

        def rank(index: int) -> tuple[float, int]:
            worth = self.merit(index) if quantity is None else self.total(index, quantity)
            # Sums of the same rewards in another order differ in the last digits and count as a tie.
            return -round(worth, 9), self.tie(index)

        return sorted(indices, key=rank)[:num]

    def tie(self, index: int) -> int:
        """Return a node's tie breaker: a number that depends on the tree's seed and the node's address."""
        store, parent = self._store, self._store.nodes[index].parent
        if parent is None:
            return derive_seed(self.seed, "tie")
        if parent not in store.ties:
            store.ties[parent] = numbered_seeds(self.seed, "tie", *store.branches[parent])
        return store.ties[parent](store.branches[index][-1])

    def save(self, path: str | os.PathLike[str], *, snapshots: bool = True) -> None:
        """Write the tree as JSON lines, a header and one line per node. The old file is replaced at the end, at once.

        Numbers of observations and infos that JSON lacks, NaN and infinite ones, become null.

        Args:
            path: The file. If its name ends in ``.gz``, it is compressed, which makes it about 20 times smaller.
            snapshots: Whether to write the snapshots, which a tree needs to be grown further.
        """
        path, lines = Path(path), [to_json(self._header())]
        lines += [to_json(node_to_json(node, snapshots)) for node in self.nodes]
        data = ("\n".join(lines) + "\n").encode()
        # Without a time, so that equal trees have equal files. Higher levels take longer and save little.
        write_atomically(path, gzip.compress(data, 1, mtime=0) if path.suffix == ZIPPED else data)

    def _header(self) -> dict[str, Any]:
        store = self._store
        return {
            "format": FORMAT,
            "version": VERSION,
            "seed": self.seed,
            "score_of": self.score_of,
            "about": self.about,
            "played": store.played,
            "chosen": list(store.chosen),
            "spent": store.spent,
            "nodes": len(store.nodes),
        }

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Tree":
        """Return the tree that `save` wrote; the bytes decide whether the file is compressed, not its name.

        Raises:
            InvalidTree: The file is damaged, cut short or of another format; the message names the line.
            OSError: The file cannot be read.
        """
        (data, damage), number = read_unzipped(Path(path)), 1
        if damage:
            raise InvalidTree(f"{path}: wanted a tree, got {len(data)} bytes of one: {damage}")
        try:
            first, *lines = data.decode().splitlines() or ["{}"]
            header = json.loads(first)
            if header.get("format") != FORMAT or header.get("version") != VERSION:
                got = (header.get("format"), header.get("version"))
                raise InvalidTree(f"{path}: wanted a {FORMAT!r} of version {VERSION}, got {shown(got)}")
            # `number` counts lines for the message of the exception below.
            tree = _begun(header)
            for line in lines:
                number += 1
                node = node_from_json(json.loads(line))
                tree.add(node)
                if node.parent is not None and node.depth != tree.nodes[node.parent].depth + 1:
                    raise ValueError(f"wanted a depth of {tree.nodes[node.parent].depth + 1}, got {node.depth}")
            if len(lines) != header["nodes"]:
                raise InvalidTree(
                    f"{path}: wanted {shown(header['nodes'])} nodes, got {len(lines)}: the file is cut short"
                )
            number = 1
            tree._store.played.extend(header["played"])
            tree.choose(header.get("chosen", ()))
            for index in tree.played:
                tree.node(index)
        except (*DAMAGE, SnapshotError) as error:
            if isinstance(error, InvalidTree):
                raise
            what = "a node" if number > 1 else "the header"
            raise InvalidTree(f"{path}, line {number}: not {what} of a tree ({error}): damaged") from error
        return tree


# Ends of the names of files of trees.
ENDINGS = (".jsonl", f".jsonl{ZIPPED}")


def files_in(folder: Path) -> list[Path]:
    """Return the files of trees in a folder and the folders in it, in the order of their names."""
    return sorted(file for ending in ENDINGS for file in folder.rglob(f"*{ending}"))


def _check_logprobs(logprobs: Sequence[float], tokens: int, index: int) -> None:
    """Raise an error where the log-probabilities of a candidate are not one number per token."""
    # A policy without tokens may give the log-probability of a whole answer.
    if tokens and len(logprobs) != tokens:
        raise ValueError(
            f"wanted a log-probability for each of the {tokens} tokens of node {index}, or none, got {len(logprobs)}"
        )
    # Minus infinity is the log-probability of an answer that a policy lists and never samples.
    # NaN fails every comparison, and is refused by `not <` as plus infinity is.
    if not sum(logprobs) < inf:
        raise NotFinite(f"wanted log-probabilities for the answer of node {index}, got {shown(tuple(logprobs))}")


def _begun(header: dict[str, Any]) -> Tree:
    """Return the tree of a header, without nodes.

    Raises:
        ValueError: A part of the header has the wrong type. KeyError and others are possible, too.
    """
    numbers = (header["seed"], header["nodes"], *header["played"], *header.get("chosen", ()))
    facts, spent, score_of = header["about"], header["spent"], header["score_of"]
    if not all(type(number) is int for number in numbers) or type(facts) is not dict or score_of not in SCORES_OF:
        raise ValueError("a part of it has the wrong type")
    if header["seed"] < 0:
        raise ValueError(f"the seed is {header['seed']}")
    if not all(type(count) in (int, float) and isfinite(count) for count in spent.values()):
        raise ValueError("the counts of spent are not all numbers")
    tree = Tree(seed=header["seed"], score_of=score_of, about=facts)
    tree.charge(Budget(**spent))
    return tree


# A strategy yields lists of requests. It may return the ends of the paths that it chose.
Wishes = Generator[list[Expand], None, Sequence[int] | None]
Strategy = Callable[[Tree], Wishes | Iterator[list[Expand]]]
Policy = Callable[[Sequence[tuple[Tree, Expand]]], list[list[Candidate]]]
# A rater returns the scores of the nodes that were added in a round, in their order.
Rater = Callable[[Sequence[tuple[Tree, int]]], list[float]]
