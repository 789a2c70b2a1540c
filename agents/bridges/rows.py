"""Rows: trajectories as training rows, token ids exactly as sampled, and back again; torch-free."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, get_args

import numpy as np

from tsr_gym.agents.episodes.trajectory import Group, Trajectory, Turn, harvest, harvest_all, harvest_leaves
from tsr_gym.errors import ConfigError, InvalidTree
from tsr_gym.records import read_records
from tsr_gym.seeds import derive_seed
from tsr_gym.tree import Tree

if TYPE_CHECKING:
    from tsr_gym.agents.learning.estimators import Estimator

Taken = Literal["chosen", "episodes", "leaves"]
AnyT = TypeVar("AnyT")


class Row(NamedTuple):
    """A training sequence: an episode, or a turn of one where prompts do not extend what was said before.

    Attributes:
        task: Seed of the tree.
        trajectory: Number of the trajectory in its tree.
        input_ids: `[T]` token ids.
        mask: `[T]` 1 where the model sampled the token, 0 elsewhere.
        logprobs: `[T]` log-probability of each sampled token when it was sampled; 0 elsewhere.
        starts: `[K]` where the tokens of each turn begin in `input_ids`.
        ends: `[K]` where they end, excluded.
        turns: `[K]` numbers of these turns in the trajectory, from 0.
        nodes: `[K]` nodes of the tree that they led to; rows that share one have sampled that turn once.
        rewards: `[K]` rewards.
        scores: `[K]` the search's judgement.
        total_reward: Sum of the rewards of the whole trajectory.
        score: What the search thought of the whole trajectory.
        success: Whether it solved the task.
        finished: Whether its episode ended.
        selected_by: How it came to be.
    """

    task: int
    trajectory: int
    input_ids: tuple[int, ...]
    mask: tuple[int, ...]
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
    """Return a trajectory as rows: one where each prompt extends what stands before it, else a new one at each break.

    A turn without tokens has no place in a row; its reward still counts in `Row.total_reward`.

    Args:
        trajectory: An episode.
        task: Seed of its instance.
        number: Which trajectory of its tree it is.
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
        logprobs[start:end] = turn.logprobs
    return Row(
        task,
        number,
        tuple(ids),
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
        keep: How many are chosen.
        successes: Whether to take only those that solved their task, as for a warm start.

    Raises:
        ConfigError: There is no such way to take them.
    """
    if take not in get_args(Taken):
        raise ConfigError(f"wanted take of {list(get_args(Taken))}, got {take!r}")
    if take == "chosen":
        found = harvest(tree, keep, selected_by="search")
    else:
        found = harvest_all(tree) if take == "episodes" else harvest_leaves(tree)
    return [
        row
        for number, trajectory in enumerate(found)
        if trajectory.success or not successes
        for row in rows_of(trajectory, task=tree.seed, number=number)
    ]


def read_groups(path: Path) -> list[Group]:
    """Return the groups of a file that `export` wrote with ``kind="trajectories"``, for `collate` and estimators.

    The trajectories of a task are a group, each tree of it with a number of its own. Turns without tokens are not in
    the file.

    Raises:
        InvalidTree: The file is damaged, or is none of trajectories.
        OSError: There is no such file.
    """
    records = read_records(path, error=InvalidTree)
    try:
        groups: dict[int, list[Trajectory]] = {}
        trees: dict[tuple[int, str], int] = {}
        for (task, tree, _), rows in groupby(records, key=lambda row: (row["task"], row["tree"], row["trajectory"])):
            known = sum(of_task == task for of_task, _ in trees)
            number = trees.setdefault((task, tree), known)
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
    if not len(ids) == len(logprobs) == len(row["mask"]) or places != sorted(places):
        raise ValueError("ids, mask and log-probabilities are of different lengths, or turns overlap")
    columns = zip(row["starts"], row["ends"], row["nodes"], row["rewards"], row["scores"], strict=True)
    return [
        Turn(ids[:start], ids[start:end], logprobs[start:end], reward, True, 0, node=node, score=score)
        for start, end, node, reward, score in columns
    ]


class TrainedRow(NamedTuple):
    """A row and what is learned from it.

    Attributes:
        row: Tokens, mask and log-probabilities.
        rewards: `[T]` of each turn on its last sampled token; 0 elsewhere.
        advantages: `[T]` 0 where nothing was sampled; None without an estimator.
    """

    row: Row
    rewards: list[float]
    advantages: list[float] | None


def trained_rows(groups: Sequence[Group], estimator: "Estimator | None") -> list[list[list[TrainedRow]]]:
    """Return the rows of each trajectory of each group; trajectories without tokens are left out.

    Args:
        groups: Trajectories, which have their advantages among themselves.
        estimator: Whose advantages the rows have; None for none.
    """
    if not any(trajectory.num_tokens for group in groups for trajectory in group.trajectories):
        return [[] for _ in groups]
    # Learning needs torch, exported rows do not.
    from tsr_gym.agents.learning.batch import collate

    batch = collate(groups)
    # A batch has a row wherever a trajectory has tokens, in the order of `rows_of`.
    rewards = iter(batch.rewards)
    advantages = iter(()) if estimator is None else iter(estimator(batch))
    found = []
    for group in groups:
        trajectories: list[list[TrainedRow]] = []
        for number, trajectory in enumerate(group.trajectories):
            parts = []
            for row in rows_of(trajectory, task=group.task, number=number):
                length = len(row.input_ids)
                given = None if estimator is None else next(advantages)[:length].tolist()
                parts.append(TrainedRow(row, next(rewards)[:length].tolist(), given))
            trajectories += [parts] if parts else []
        found.append(trajectories)
    return found


def drawn_evenly(found: Sequence[AnyT], size: int, *parts: int | str) -> list[AnyT]:
    """Return `size` of what was found, drawn evenly and in its order, or all of it where there is no more.

    Args:
        found: What to draw from.
        size: How many.
        parts: What the draw derives from, beside how much there is.
    """
    if len(found) <= size:
        return list(found)
    rng = np.random.default_rng(derive_seed("rows", *parts, len(found)))
    return [found[index] for index in sorted(rng.choice(len(found), size, replace=False))]
