"""Rows and nodes: trees as data, and back; torch-free but for advantages.

A row is a trajectory, or a turn of one, with exactly the sampled token ids. A node record is a node of a tree; only the
snapshots are lost.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, get_args

import numpy as np

from tsr_gym.agents.bridges.audit import IGNORED
from tsr_gym.agents.episodes.trajectory import (
    NAME,
    Group,
    Learned,
    Trajectory,
    Turn,
    harvest,
    harvest_all,
    harvest_leaves,
    keep_learned,
    learned_from,
)
from tsr_gym.errors import ConfigError, InvalidTree, shown
from tsr_gym.node import node_from_json
from tsr_gym.records import read_records, to_json
from tsr_gym.seeds import derive_seed
from tsr_gym.tree import Tree

if TYPE_CHECKING:
    from tsr_gym.agents.learning.estimators import Estimator


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
    played, about = set(tree.played), to_json(_facts(tree))
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
                text=to_json(candidate.text),
                observation=to_json(node.observation),
                reward=float(node.reward),
                score=float(node.score),
                terminated=node.terminated,
                truncated=node.truncated,
                chosen=places.get(index, -1),
                played=index in played,
                info=to_json(dict(node.info)),
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


Taken = Literal["chosen", "episodes", "leaves"]
AnyT = TypeVar("AnyT")


class Row(NamedTuple):
    """A training sequence: an episode, or a part of one that begins where a prompt does not extend the tokens before.

    Attributes:
        task: Seed of the tree.
        trajectory: Number of the trajectory in its tree.
        input_ids: `[T]` token ids.
        labels: `[T]` the token ids that the model sampled, `IGNORED` elsewhere, as losses of Hugging Face read them.
        completion_mask: `[T]` 1 where the model sampled the token, 0 elsewhere.
        logprobs: `[T]` log-probability of each sampled token when it was sampled; 0 elsewhere.
        starts: `[K]` index of the first sampled token of each turn in `input_ids`.
        ends: `[K]` index after the last one.
        turns: `[K]` numbers of these turns in the trajectory, from 0.
        nodes: `[K]` nodes of the tree that the turns led to; rows that share a node share one sampled turn.
        rewards: `[K]` rewards.
        scores: `[K]` scores of the search.
        total_reward: Sum of the rewards of the whole trajectory.
        score: Score of the whole trajectory.
        success: Whether the trajectory solved the task.
        finished: Whether its episode ended.
        selected_by: What selected the trajectory, such as ``"search"``.
    """

    task: int
    trajectory: int
    input_ids: tuple[int, ...]
    labels: tuple[int, ...]
    completion_mask: tuple[int, ...]
    logprobs: tuple[float, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    turns: tuple[int, ...]
    nodes: tuple[int, ...]
    rewards: tuple[float, ...]
    scores: tuple[float, ...]
    total_reward: float
    score: float
    success: bool
    finished: bool
    selected_by: str


def rows_of(trajectory: Trajectory, *, task: int = 0, number: int = 0) -> list[Row]:
    """Return a trajectory as rows: a new row begins where a prompt does not extend the tokens of the turn before.

    A turn without tokens has no place in a row; its reward still counts in `Row.total_reward`.

    Args:
        trajectory: An episode.
        task: Seed of its instance.
        number: Number of the trajectory in its tree.
    """
    pieces: list[tuple[list[int], list[tuple[int, Turn, int]]]] = []
    for place, turn in enumerate(trajectory.turns):
        if not turn.token_ids:
            continue
        if not pieces or tuple(pieces[-1][0]) != turn.prompt_ids[: len(pieces[-1][0])]:
            pieces.append(([], []))
        ids, turns = pieces[-1]
        ids.extend(turn.prompt_ids[len(ids) :])
        turns.append((place, turn, len(ids)))
        ids.extend(turn.token_ids)
    return [_row(ids, turns, trajectory, task, number) for ids, turns in pieces]


def _row(ids: list[int], turns: list[tuple[int, Turn, int]], trajectory: Trajectory, task: int, number: int) -> Row:
    mask, logprobs = [0] * len(ids), [0.0] * len(ids)
    for _, turn, start in turns:
        end = start + len(turn.token_ids)
        mask[start:end] = [1] * len(turn.token_ids)
        # An engine without log-probabilities leaves zeros.
        logprobs[start : start + len(turn.logprobs)] = turn.logprobs
    return Row(
        task,
        number,
        tuple(ids),
        tuple(token if sampled else IGNORED for token, sampled in zip(ids, mask, strict=True)),
        tuple(mask),
        tuple(logprobs),
        starts=tuple(start for *_, start in turns),
        ends=tuple(start + len(turn.token_ids) for _, turn, start in turns),
        turns=tuple(place for place, *_ in turns),
        nodes=tuple(turn.node for _, turn, _ in turns),
        rewards=tuple(float(turn.reward) for _, turn, _ in turns),
        scores=tuple(float(turn.score) for _, turn, _ in turns),
        total_reward=trajectory.total_reward,
        score=float(trajectory.score),
        success=trajectory.success,
        finished=trajectory.finished,
        selected_by=trajectory.selected_by,
    )


def tree_rows(tree: Tree, *, take: Taken = "chosen", keep: int = 1, successes: bool = False) -> list[Row]:
    """Return the trajectories of a tree as rows.

    Args:
        tree: A grown tree.
        take: ``"chosen"``: the best `keep` episodes, those that the search chose first. ``"episodes"``: all that ended.
            ``"leaves"``: the path to every leaf, so that each sampled answer lies on one of them.
        keep: Number of chosen episodes.
        successes: Whether to take only those that solved their task, as for a warm start.

    Raises:
        ConfigError: `take` is none of these words.
    """
    if take not in get_args(Taken):
        raise ConfigError(f"wanted take of {list(get_args(Taken))}, got {take!r}")
    if take == "chosen":
        trajectories = harvest(tree, keep, selected_by="search")
    else:
        trajectories = harvest_all(tree) if take == "episodes" else harvest_leaves(tree)
    return [
        row
        for number, trajectory in enumerate(trajectories)
        if trajectory.success or not successes
        for row in rows_of(trajectory, task=tree.seed, number=number)
    ]


def read_groups(path: Path) -> list[Group]:
    """Return the groups of a file that `export` wrote with ``kind="trajectories"``, for `collate` and estimators.

    The trajectories of a task are a group, in which each tree has its own number. Turns without tokens are not in the
    file.

    Raises:
        InvalidTree: The file is damaged, or does not hold trajectories.
        OSError: There is no such file.
    """
    records = read_records(path, error=InvalidTree)
    try:
        groups: dict[int, list[Trajectory]] = {}
        trees: dict[tuple[int, str], int] = {}
        for (task, tree, _), rows in groupby(records, key=lambda row: (row["task"], row["tree"], row["trajectory"])):
            # Trees are numbered within their task, in the order of their first row.
            number = trees.setdefault((task, tree), sum(of_task == task for of_task, _ in trees))
            groups.setdefault(task, []).append(_trajectory(list(rows), number))
    except (ValueError, LookupError, TypeError) as error:
        raise InvalidTree(f"{path}: not the rows of trajectories ({error!r})") from error
    return [Group(task, tuple(trajectories)) for task, trajectories in groups.items()]


def _trajectory(rows: Sequence[dict[str, Any]], tree: int) -> Trajectory:
    turns, first = tuple(turn for row in rows for turn in _turns(row)), rows[0]
    return Trajectory(turns, first["success"], first["score"], first["selected_by"], tree, first["finished"])


def _turns(row: dict[str, Any]) -> list[Turn]:
    ids, logprobs = tuple(row["input_ids"]), tuple(row["logprobs"])
    places = [0, *(place for both in zip(row["starts"], row["ends"], strict=True) for place in both), len(ids)]
    if not len(ids) == len(logprobs) == len(row["completion_mask"]) or places != sorted(places):
        raise ValueError("ids, mask and log-probabilities are of different lengths, or turns overlap")
    columns = zip(row["starts"], row["ends"], row["nodes"], row["rewards"], row["scores"], strict=True)
    return [
        Turn(ids[:start], ids[start:end], logprobs[start:end], reward, True, 0, node=node, score=score)
        for start, end, node, reward, score in columns
    ]


class TrainedRow(NamedTuple):
    """A row with rewards and advantages per token.

    Attributes:
        row: Tokens, labels and log-probabilities.
        rewards: `[T]` reward of each turn on its last sampled token; 0 elsewhere.
        advantages: `[T]` 0 where no token was sampled; None without an estimator.
    """

    row: Row
    rewards: list[float]
    advantages: list[float] | None


def trained_rows(groups: Sequence[Group], estimator: "Estimator | None") -> list[list[list[TrainedRow]]]:
    """Return the rows of each trajectory of each group; trajectories without tokens are left out.

    Args:
        groups: Trajectories; advantages are computed within each group.
        estimator: Computes the advantages; None for no advantages.
    """
    if not any(trajectory.num_tokens for group in groups for trajectory in group.trajectories):
        return [[] for _ in groups]
    # Learning needs torch, exported rows do not.
    from tsr_gym.agents.learning.batch import collate

    batch = collate(groups)
    # The rows of a batch are those of `rows_of`, in the same order, so both are read in step.
    rewards = iter(batch.rewards)
    advantages = iter(()) if estimator is None else iter(estimator(batch))
    rows_by_group = []
    for group in groups:
        trajectories: list[list[TrainedRow]] = []
        for number, trajectory in enumerate(group.trajectories):
            parts = []
            for row in rows_of(trajectory, task=group.task, number=number):
                length = len(row.input_ids)
                given = None if estimator is None else next(advantages)[:length].tolist()
                parts.append(TrainedRow(row, next(rewards)[:length].tolist(), given))
            trajectories += [parts] if parts else []
        rows_by_group.append(trajectories)
    return rows_by_group


def drawn_evenly(items: Sequence[AnyT], size: int, *parts: int | str) -> list[AnyT]:
    """Return `size` of some items, drawn uniformly and in their order; all items where there are not more.

    Args:
        items: To draw from.
        size: Number of items to draw.
        parts: The seed of the draw, with the number of items.
    """
    if len(items) <= size:
        return list(items)
    rng = np.random.default_rng(derive_seed("rows", *parts, len(items)))
    return [items[index] for index in sorted(rng.choice(len(items), size, replace=False))]
