"""Nodes: a tree as records, one per node, and back; only snapshots are lost. Torch-free."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tsr_gym.agents.episodes.trajectory import NAME, Learned, keep_learned, learned_from
from tsr_gym.errors import InvalidTree, shown
from tsr_gym.node import node_from_json, plain
from tsr_gym.records import read_records
from tsr_gym.tree import Tree


class NodeRecord(NamedTuple):
    """A node of a tree.

    Attributes:
        seed: Seed of the tree.
        score_of: Whether scores rate a ``"turn"`` or a ``"state"``.
        about: Facts about the tree, in JSON.
        node: Number of the node, from 0 for the first.
        parent: Number of the node it grew from; -1 for the first.
        depth: Turns since the first node.
        prompt_ids: Token ids of the prompt at the parent.
        token_ids: Token ids sampled there.
        logprobs: Log-probability of each when it was sampled.
        weight_version: Version of the weights that sampled them; -1 where it is unknown.
        advantages: Of each token in the loss of a run, see `Learned`; () where the turn was not learned from.
        text: The action that the environment received, in JSON.
        observation: The observation that it returned, in JSON.
        reward: Of the turn.
        score: The search's judgement of the turn.
        terminated: The task ended here.
        truncated: A limit ended the episode here.
        chosen: Place among the paths that the search chose, from 0; -1 for other nodes.
        played: Whether the node belongs to the episode that was really played.
        info: The environment's info, in JSON.
        state_key: The state that the rules depend on, in hexadecimal digits; "" where it is unknown.
    """

    seed: int
    score_of: str
    about: str
    node: int
    parent: int
    depth: int
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    weight_version: int
    advantages: tuple[float, ...]
    text: str
    observation: str
    reward: float
    score: float
    terminated: bool
    truncated: bool
    chosen: int
    played: bool
    info: str
    state_key: str


def tree_nodes(tree: Tree) -> list[NodeRecord]:
    """Return the record of every node of a tree, in the order in which they were added."""
    places = {node: place for place, node in enumerate(tree.chosen)}
    played, about = set(tree.played), _json(_facts(tree))
    advantages = learned_from(tree).of
    records = []
    for index, node in enumerate(tree.nodes):
        candidate = node.candidate
        records.append(
            NodeRecord(
                seed=tree.seed,
                score_of=tree.score_of,
                about=about,
                node=index,
                parent=-1 if node.parent is None else node.parent,
                depth=node.depth,
                prompt_ids=candidate.prompt_ids,
                token_ids=candidate.token_ids,
                logprobs=candidate.logprobs,
                weight_version=-1 if candidate.weight_version is None else candidate.weight_version,
                advantages=advantages.get(index, ()),
                text=_json(candidate.text),
                observation=_json(node.observation),
                reward=float(node.reward),
                score=float(node.score),
                terminated=node.terminated,
                truncated=node.truncated,
                chosen=places.get(index, -1),
                played=index in played,
                info=_json(dict(node.info)),
                state_key="" if node.state_key is None else node.state_key.hex(),
            )
        )
    return records


def read_trees(path: Path) -> dict[str, Tree]:
    """Return the trees of a file that `export` wrote with ``kind="nodes"``, by the names in its column ``tree``.

    They can be harvested and learned from like the exported trees. Without snapshots they cannot be grown further.

    Raises:
        InvalidTree: The file is damaged, or does not hold nodes.
        OSError: There is no such file.
    """
    by_tree: dict[str, list[Mapping[str, Any]]] = {}
    for record in read_records(path, error=InvalidTree):
        by_tree.setdefault(str(record.get("tree", "")), []).append(record)
    return {name: tree_of_records(f"{path}, tree {name!r}", records) for name, records in by_tree.items()}


def tree_of_records(place: str, records: Iterable[Mapping[str, Any]]) -> Tree:
    """Return the tree of some node records.

    Args:
        place: The source of the records, for errors.
        records: Those of `tree_nodes` as dictionaries, in the order of the nodes.

    Raises:
        InvalidTree: They are not the nodes of a tree.
    """
    rows = [dict(record) for record in records]
    try:
        first = rows[0]
        tree = Tree(seed=first["seed"], score_of=first["score_of"], about=json.loads(first["about"]))
        for index, record in enumerate(rows):
            if record["node"] != index:
                raise ValueError(f"node {shown(record['node'])} stands where node {index} belongs")
            tree.add(node_from_json(_as_saved(record)), played=record["played"])
        ranked = sorted((record["chosen"], record["node"]) for record in rows if record["chosen"] >= 0)
        tree.choose([node for _, node in ranked])
        if NAME in tree.about:
            of = {record["node"]: tuple(record["advantages"]) for record in rows if record.get("advantages")}
            keep_learned(tree, Learned(learned_from(tree).estimator, of))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidTree(f"{place}: not the nodes of a tree ({error})") from error
    return tree


def _as_saved(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a node record in the form of `node_to_json`."""
    kept = ("depth", "reward", "score", "terminated", "truncated")
    return {
        **{name: record[name] for name in kept},
        "parent": None if record["parent"] < 0 else record["parent"],
        "candidate": [
            json.loads(record["text"]),
            *(record[name] for name in ("prompt_ids", "token_ids", "logprobs")),
            *([record["weight_version"]] if record["weight_version"] >= 0 else []),
        ],
        "observation": json.loads(record["observation"]),
        "info": json.loads(record["info"]),
        "snapshot": None,
        "state_key": record["state_key"] or None,
    }


def _facts(tree: Tree) -> dict[str, Any]:
    """Return the facts of a tree without the advantages, which are columns of the nodes."""
    if NAME not in tree.about:
        return tree.about
    return {**tree.about, NAME: {"estimator": learned_from(tree).estimator, "of": {}}}


def _json(value: Any) -> str:
    return json.dumps(value, default=plain)
