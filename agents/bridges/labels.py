"""Preferences: pairs of candidates that were sampled at the same node, one better than the other; torch-free."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from math import nan
from typing import Literal, NamedTuple, get_args

from tsr_gym.agents.episodes.trajectory import Group, harvest_leaves
from tsr_gym.agents.lessons.filters import are_equal
from tsr_gym.errors import ConfigError
from tsr_gym.tree import Tree

Worth = Callable[[Tree], Sequence[float]]
Pairing = Literal["extremes", "against_best", "all"]


class Pair(NamedTuple):
    """Two candidates that answered the same prompt.

    Attributes:
        prompt_ids: Token ids that the model saw.
        chosen_ids: Token ids of the better candidate.
        rejected_ids: Token ids of the worse one.
        chosen_logprobs: Log-probability of each of `chosen_ids` when it was sampled.
        rejected_logprobs: Of each of `rejected_ids`.
        gap: How much more the better one is worth.
        node: Index of the node at which both were sampled.
    """

    prompt_ids: tuple[int, ...]
    chosen_ids: tuple[int, ...]
    rejected_ids: tuple[int, ...]
    chosen_logprobs: tuple[float, ...]
    rejected_logprobs: tuple[float, ...]
    gap: float
    node: int


def merit(tree: Tree) -> list[float]:
    """Return the merit of each node, by which the search kept some candidates and left others."""
    return [nan if node.parent is None else tree.merit(index) for index, node in enumerate(tree.nodes)]


def mean_return(tree: Tree) -> list[float]:
    """Return for each node the mean return of the finished episodes through it; NaN where there is none.

    A return is not compared with one that is not complete, so branches that a search left have no worth.
    """
    sums, counts = [0.0] * len(tree.nodes), [0] * len(tree.nodes)
    for index in reversed(range(len(tree.nodes))):
        node = tree.nodes[index]
        if node.done:
            sums[index] += tree.total(index, "reward")
            counts[index] += 1
        if node.parent is not None:
            sums[node.parent] += sums[index]
            counts[node.parent] += counts[index]
    return [total / count if count else nan for total, count in zip(sums, counts, strict=True)]


WORTHS: dict[str, Worth] = {"merit": merit, "mean_return": mean_return}


def sibling_pairs(
    tree: Tree, *, worth: Worth | str = merit, margin: float = 0.0, pairing: Pairing = "extremes"
) -> list[Pair]:
    """Return the preferences among candidates of one node, for all nodes of a tree.

    Only candidates with tokens that answered the same prompt are compared; one that was sampled twice stands once, with
    the first of its nodes; equal worth (`are_equal`) is no preference.

    Args:
        tree: A grown tree.
        worth: What makes a candidate better: `merit` (the search's judgement) or `mean_return` (how episodes ended), by
            name or as a function of yours.
        margin: The least difference in worth that is a preference.
        pairing: ``"extremes"``: the best against the worst. ``"against_best"``: the best against each other one.
            ``"all"``: each against each that is worse.

    Raises:
        ConfigError: There is no such worth or pairing.
    """
    if pairing not in get_args(Pairing) or (isinstance(worth, str) and worth not in WORTHS):
        wanted = f"worth of {list(WORTHS)} and pairing of {list(get_args(Pairing))}"
        raise ConfigError(f"wanted {wanted}, got {worth!r} and {pairing!r}")
    values = (WORTHS[worth] if isinstance(worth, str) else worth)(tree)
    pairs = []
    for parent in range(len(tree.nodes)):
        for siblings in _comparable(tree, parent, values):
            for better, worse in _pairings(siblings, pairing):
                gap = values[better] - values[worse]
                if gap > margin and not are_equal((values[better], values[worse])):
                    pairs.append(_pair(tree, better, worse, gap))
    return pairs


def _comparable(tree: Tree, parent: int, values: Sequence[float]) -> Iterator[list[int]]:
    """Yield the children of a node that answered the same prompt, best first, each text once."""
    different: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
    for child in tree.children(parent):
        candidate = tree.nodes[child].candidate
        if candidate.token_ids and values[child] == values[child]:
            different.setdefault((candidate.prompt_ids, candidate.token_ids), child)
    for _, siblings in groupby(sorted(different), key=lambda both: both[0]):
        children = sorted(different[both] for both in siblings)
        yield sorted(children, key=lambda child: -values[child])


def _pairings(siblings: list[int], pairing: Pairing) -> list[tuple[int, int]]:
    if len(siblings) < 2:
        return []
    if pairing == "extremes":
        return [(siblings[0], siblings[-1])]
    if pairing == "against_best":
        return [(siblings[0], other) for other in siblings[1:]]
    return [(better, worse) for place, better in enumerate(siblings) for worse in siblings[place + 1 :]]


def _pair(tree: Tree, better: int, worse: int, gap: float) -> Pair:
    chosen, rejected = tree.nodes[better].candidate, tree.nodes[worse].candidate
    parent = tree.nodes[better].parent
    assert parent is not None
    ids, logprobs = (chosen.token_ids, rejected.token_ids), (chosen.logprobs, rejected.logprobs)
    return Pair(chosen.prompt_ids, *ids, *logprobs, gap, parent)


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
    # Learning needs torch, pairs of siblings do not.
    from tsr_gym.agents.learning.advantages.turn_table import (
        Backup,
        back_up,
        check_nodes,
        first_entries,
        rewards_of,
        table_of,
    )
    from tsr_gym.agents.learning.batch import collate

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
