"""Step values: what every sampled turn of some trees led to, as data for a process reward model or for self-training.

Made by the backup that `tree_backup` uses, so that a reward model learns what the estimator would have given.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from tsr_gym.agents.episodes.trajectory import Group, harvest_leaves
from tsr_gym.agents.learning.advantages.turn_table import (
    Backup,
    back_up,
    check_nodes,
    first_entries,
    rewards_of,
    table_of,
)
from tsr_gym.agents.learning.batch import collate
from tsr_gym.tree import Tree


class StepValue(NamedTuple):
    """One sampled turn and what it led to.

    Attributes:
        task: Seed of the task instance.
        prompt_ids: Token ids that the model saw.
        response_ids: Token ids that it sampled.
        value: Backed-up return of the trajectories through the turn.
        trajectories: How many these are.
        turn: Number of the turn, from 0.
    """

    task: int
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    value: float
    trajectories: int
    turn: int


def step_values(
    groups: Sequence[Group],
    *,
    backup: Literal["child_mean", "leaf_mean"] = "child_mean",
    unfinished: Literal["return", "score", "skip"] = "skip",
) -> list[StepValue]:
    """Return the value of every sampled turn, each node once (step labels as ReST-MCTS*, arXiv 2406.03816, uses them).

    Args:
        groups: Trajectories with nodes; of all leaves (`harvest_leaves`) where rejected turns are wanted, too.
        backup: A node's value: the mean of its children's, or the mean of its leaves'.
        unfinished: What a branch that the search left is worth, see `Backup`; turns of which nothing is known are left
            out. Unknown by default, because a label should be what happened.
    """
    batch = collate(groups)
    tasks = [group.task for group in groups if any(trajectory.num_tokens for trajectory in group.trajectories)]
    table, rule = table_of(batch), Backup(kind=backup, unfinished=unfinished)
    check_nodes(table)
    worth = back_up(table, rewards_of(table, rule), rule)
    entries, starts, sharers = first_entries(table), table.starts, table.sharers
    found = []
    for entry in entries[worth.known[entries]].tolist():
        row, start = int(table.row[starts[entry]]), int(table.column[starts[entry]])
        ids = batch.ids[row].tolist()
        found.append(
            StepValue(
                task=tasks[int(table.group[entry])],
                prompt_ids=tuple(ids[:start]),
                response_ids=tuple(ids[start : start + int(table.tokens[entry])]),
                value=float(worth.values[entry]),
                trajectories=int(sharers[entry]),
                turn=int(table.turn[entry]),
            )
        )
    return found


def tree_step_values(
    tree: Tree,
    *,
    backup: Literal["child_mean", "leaf_mean"] = "child_mean",
    unfinished: Literal["return", "score", "skip"] = "skip",
) -> list[StepValue]:
    """Return the values of all sampled turns of a tree, those of rejected branches too; see `step_values`.

    The task of each is the seed of the tree.
    """
    leaves = tuple(harvest_leaves(tree))
    if not any(leaf.num_tokens for leaf in leaves):
        return []
    return step_values([Group(tree.seed, leaves)], backup=backup, unfinished=unfinished)
