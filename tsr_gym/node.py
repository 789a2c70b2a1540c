"""Node: one state of the world in a tree, what was said to reach it, and the JSON form of both."""

import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from tsr_gym.errors import shown
from tsr_gym.snapshots import Snapshot


class Candidate(NamedTuple):
    """One thing that a policy would say at a node.

    Attributes:
        text: What the environment receives: text, or an action of its space where actions are not text.
        prompt_ids: Token ids that the model saw, () for a policy without tokens.
        token_ids: Token ids that it said, exactly as sampled.
        logprobs: Log-probability of each of `token_ids` under the distribution it was sampled from.
        weight_version: Version of the weights that it was sampled by; None where nobody counts.
    """

    text: Any
    prompt_ids: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    weight_version: int | None = None


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
        state_key: What the rules depend on from here (`StateEnv.state_key`); None where nobody knows.
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
    state_key: bytes | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # By itself a dataclass with slots is written and read field by field in Python, half of what a tree takes.
        return Node, _PARTS(self)

    @property
    def done(self) -> bool:
        """Whether the episode has ended at this node."""
        return self.terminated or self.truncated

    @property
    def solved(self) -> bool:
        """Whether the episode ended at this node with the task solved."""
        return self.terminated and bool(self.info.get("success", False))

    @property
    def is_open(self) -> bool:
        """Whether there is anything to search below: the episode goes on, and nobody has proven it lost."""
        return not (self.terminated or self.truncated or self.info.get("dead_end"))


_PARTS = attrgetter(*(field.name for field in fields(Node)))


def plain(value: Any) -> Any:
    """Return JSON's form of what numpy made.

    Raises:
        TypeError: There is none.
    """
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


# Types of JSON that a node's fields have in a file.
_KINDS: dict[str, tuple[type, ...]] = {
    "parent": (int, type(None)),
    "depth": (int,),
    "reward": (int, float),
    "score": (int, float),
    "terminated": (bool,),
    "truncated": (bool,),
    "snapshot": (str, type(None)),
}


def node_to_json(node: Node, snapshots: bool) -> dict[str, Any]:
    """Return a node as JSON's own types."""
    snap = base64.b64encode(node.snapshot.to_bytes()).decode() if snapshots and node.snapshot is not None else None
    return {
        "parent": node.parent,
        "candidate": list(node.candidate if node.candidate.weight_version is not None else node.candidate[:-1]),
        "observation": node.observation,
        "reward": node.reward,
        "score": node.score,
        "terminated": node.terminated,
        "truncated": node.truncated,
        "depth": node.depth,
        "info": dict(node.info),
        "snapshot": snap,
        "state_key": None if node.state_key is None else node.state_key.hex(),
    }


def node_from_json(data: dict[str, Any]) -> Node:
    """Return the node that `node_to_json` wrote.

    Raises:
        ValueError: A field is of another type; TypeError, KeyError and others where the fields are others.
        SnapshotError: The snapshot is damaged.
    """
    text, prompt_ids, token_ids, logprobs, *rest = data.pop("candidate")
    (version,) = rest or [None]
    data["info"] = {name: _tupled(value) for name, value in data["info"].items()}
    for name, kinds in _KINDS.items():
        if type(data[name]) not in kinds:
            raise ValueError(f"{name} is {shown(data[name])}")
    if not all(type(ids) is list and all(type(one) is int for one in ids) for ids in (prompt_ids, token_ids)):
        raise ValueError("token ids are no numbers")
    if type(logprobs) is not list or not all(type(one) in (int, float) for one in logprobs):
        raise ValueError("log-probabilities are no numbers")
    if type(version) not in (int, type(None)):
        raise ValueError(f"the version of weights is {shown(version)}")
    snap, key = data.pop("snapshot"), data.pop("state_key", None)
    return Node(
        candidate=Candidate(text, tuple(prompt_ids), tuple(token_ids), tuple(logprobs), version),
        observation=_tupled(data.pop("observation")),
        snapshot=None if snap is None else Snapshot.from_bytes(base64.b64decode(snap, validate=True)),
        state_key=None if key is None else bytes.fromhex(key),
        **data,
    )
