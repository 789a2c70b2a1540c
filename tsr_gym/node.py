"""Node: one state of the world in a tree, the turn that led to it, and the JSON form of both."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from math import inf, isfinite
from operator import attrgetter
from typing import Any, NamedTuple

from tsr_gym.errors import shown
from tsr_gym.ranges import finite
from tsr_gym.snapshots import Snapshot


class Candidate(NamedTuple):
    """One answer that a policy proposes at a node.

    Attributes:
        text: The action for the environment: text, or an element of its action space if that is not text.
        prompt_ids: Token ids of the prompt; () for a policy without tokens.
        token_ids: Token ids of the answer, exactly as sampled.
        logprobs: Log-probability of each of `token_ids` under the distribution it was sampled from, in nats.
        weight_version: Version of the weights that sampled it; None if the policy counts no versions.
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
        parent: Index of the parent; None for the first node.
        depth: Turns since the first node.
        candidate: The answer at the parent; empty text at the first node.
        observation: The environment's observation after it.
        reward: Reward of the turn.
        score: Score of the turn from a scorer wrapper, which guides the search; the reward without a scorer.
        terminated: The task ended here.
        truncated: A limit ended the episode here.
        info: The environment's info for the turn.
        snapshot: The stack below the tree in this state; None in a tree that was saved without snapshots.
        state_key: Identity of the state for the rules (`StateEnv.state_key`); None if it is unknown.
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
        # The default pickles a slotted dataclass field by field in Python, which takes half of the time of a tree.
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
        """Whether a search may expand it: the episode has not ended, and is not proven lost (``info["dead_end"]``)."""
        return not (self.terminated or self.truncated or self.info.get("dead_end"))


_PARTS = attrgetter(*(field.name for field in fields(Node)))


def _tupled(value: Any) -> Any:
    """Return a value with tuples in place of lists, which is how JSON stores them."""
    return tuple(_tupled(item) for item in value) if isinstance(value, list) else value


# The JSON types of a node's fields in a file.
_TYPES: dict[str, tuple[type, ...]] = {
    "parent": (int, type(None)),
    "depth": (int,),
    "reward": (int, float),
    "score": (int, float),
    "terminated": (bool,),
    "truncated": (bool,),
    "snapshot": (str, type(None)),
}


def node_to_json(node: Node, snapshots: bool) -> dict[str, Any]:
    """Return a node as a dictionary of JSON types."""
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
        ValueError: A field has the wrong type or is not finite. TypeError, KeyError, OverflowError and others where
            fields are missing, new or beyond a float.
        SnapshotError: The snapshot is damaged.
    """
    text, prompt_ids, token_ids, logprobs, *rest = data.pop("candidate")
    (version,) = rest or [None]
    data["info"] = {name: _tupled(value) if type(value) is list else value for name, value in data["info"].items()}
    for name, types in _TYPES.items():
        if type(data[name]) not in types:
            raise ValueError(f"{name} is {shown(data[name])}")
    data["reward"], data["score"] = finite(data["reward"], "the reward"), finite(data["score"], "the score")
    if not all(type(ids) is list and {int}.issuperset(map(type, ids)) for ids in (prompt_ids, token_ids)):
        raise ValueError("token ids are not all integers")
    if type(logprobs) is not list or not {int, float, type(None)}.issuperset(map(type, logprobs)):
        raise ValueError("log-probabilities are not all numbers")
    if not all(isfinite(number) for number in logprobs if number is not None):
        raise ValueError("log-probabilities are not all finite")
    # JSON has no infinite numbers: null is the log-probability of an answer that is never sampled.
    logprobs = [-inf if number is None else number for number in logprobs]
    if type(version) not in (int, type(None)):
        raise ValueError(f"the version of weights is {shown(version)}")
    snap, key = data.pop("snapshot"), data.pop("state_key", None)
    return Node(
        candidate=Candidate(text, tuple(prompt_ids), tuple(token_ids), tuple(logprobs), version),
        observation=_tupled(data.pop("observation")),
        snapshot=None if snap is None else _snapshot(snap),
        state_key=None if key is None else bytes.fromhex(key),
        **data,
    )


# Siblings with equal actions have equal snapshots. They share an object, as in the tree that was saved.
@lru_cache(maxsize=32)
def _snapshot(text: str) -> Snapshot:
    return Snapshot.from_bytes(base64.b64decode(text, validate=True))
