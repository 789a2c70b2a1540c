"""Rankings: the scores of search trees compared with the exact values of their states.

The value of a state is the highest chance of success from it within the limits (`TextEnv.best_value`). Only success of
played episodes is called success; imagined success is never counted.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import sqrt
from operator import attrgetter
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tsr_gym.agents.episodes.env_pool import EnvPool
from tsr_gym.agents.episodes.intervals import Interval, pooled, pooled_mean
from tsr_gym.agents.episodes.search import search
from tsr_gym.seeds import derive_seed
from tsr_gym.stack import Noise
from tsr_gym.state_env import episode_of
from tsr_gym.text_env import TextEnv
from tsr_gym.tree import Expand, Policy, Strategy, Tree

# Values and scores are compared with 9 digits after the point, as in `Tree.best`: sums of the same rewards in another
# order differ in the last digits.
_DIGITS = 9
_TIE = 1e-9
# The score of a node that a scorer has proved lost: below all other scores.
_LAST = -1e12


def ranks(values: Sequence[float]) -> NDArray[np.float64]:
    """Return the ranks of values, from 1 upwards; equal values share the mean of their ranks.

    >>> ranks([3.0, 1.0, 3.0]).tolist()
    [2.5, 1.0, 2.5]
    """
    _, place, counts = np.unique(np.round(values, _DIGITS), return_inverse=True, return_counts=True)
    shared: NDArray[np.float64] = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return shared


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation, the correlation of the ranks; None where one side is constant.

    >>> spearman([1.0, 2.0, 3.0], [0.1, 0.3, 0.2])
    0.5
    """
    mean = (len(first) + 1) / 2
    left, right = ranks(first) - mean, ranks(second) - mean
    spread = sqrt(float(left @ left) * float(right @ right))
    return float(left @ right) / spread if spread else None


def kendall(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return Kendall's tau-b: pairs in the same order minus pairs in the opposite order, corrected for ties.

    ``(C - D) / sqrt((P - T1) (P - T2))``, where of P pairs C are concordant, D discordant, and T1 and T2 tied on the
    first and on the second side (Kendall 1945, "The treatment of ties in ranking problems"). None where one side is
    constant.

    >>> kendall([1.0, 2.0, 3.0], [1.0, 3.0, 2.0])
    0.3333333333333333
    """
    left, right = np.round(first, _DIGITS), np.round(second, _DIGITS)
    order = untied_left = untied_right = 0
    # A row of the triangle of pairs at a time: the whole square of a large calibration would not fit into memory.
    for start in range(1, len(left)):
        left_signs, right_signs = np.sign(left[start:] - left[start - 1]), np.sign(right[start:] - right[start - 1])
        order += int(left_signs @ right_signs)
        untied_left += int(np.count_nonzero(left_signs))
        untied_right += int(np.count_nonzero(right_signs))
    return order / sqrt(untied_left * untied_right) if untied_left and untied_right else None


@dataclass(frozen=True, slots=True)
class TurnRanking:
    """How scores rank the states that a turn of the policy's play reached, over all instances.

    Attributes:
        turn: Number of the turn, from 1.
        states: Number of states.
        value: Mean value of the states.
        spearman: Spearman's rank correlation of score and value; None where either is the same everywhere.
        kendall: Kendall's tau-b of the same.
    """

    turn: int
    states: int
    value: float
    spearman: Interval | None
    kendall: float | None


@dataclass(frozen=True, slots=True)
class SiblingRanking:
    """How scores rank the candidates of the same state, which is the comparison that a search makes.

    Attributes:
        sets: States whose candidates differ in value.
        decided: States whose candidates are equal in value, so that every choice is as good; left out of the means.
        spearman: Mean of Spearman's correlation within a set; a set with equal scores counts as 0.
        kendall: Mean of Kendall's tau-b within a set; a set with equal scores counts as 0.
        lost: Value that is lost by taking the candidate with the best score, a random one where several share it.
        lost_by_chance: Value that is lost by taking a random candidate.
    """

    sets: int
    decided: int
    spearman: Interval | None
    kendall: Interval | None
    lost: Interval | None
    lost_by_chance: Interval | None


@dataclass(frozen=True, slots=True)
class Drops:
    """The prefixes that a search drops and keeps. A prefix is the path to a state in which the episode is not over.

    Attributes:
        dropped: Prefixes that the search neither expanded nor chose in the end.
        winnable_dropped: Share of the dropped prefixes that could still have been won.
        kept: Prefixes that the search expanded or chose.
        dead_kept: Share of the kept prefixes that could no longer be won.
        winnable: Share of all prefixes that could still be won: `winnable_dropped` of a search that drops at random.
        lost_a_turn: Value of the best dropped prefix of a turn minus that of the best kept one, at least 0; the mean
            over turns with dropped and kept prefixes.
    """

    dropped: int
    winnable_dropped: Interval | None
    kept: int
    dead_kept: Interval | None
    winnable: Interval | None
    lost_a_turn: Interval | None


class Rated(NamedTuple):
    """A node with its score and its value.

    Attributes:
        owner: Number of the instance.
        tree: Number of the tree.
        parent: Index of the parent in its tree.
        turn: Depth in its tree.
        score: The number by which the search ranks it.
        value: Its exact value.
        is_prefix: Whether the episode is not over there.
        kept: Whether the search expanded or chose it.
    """

    owner: int
    tree: int
    parent: int
    turn: int
    score: float
    value: float
    is_prefix: bool
    kept: bool


def value_at(base: TextEnv[Any], tree: Tree, node: int) -> float | None:
    """Return the value of a node, None where the environment does not know it."""
    episode, limits = episode_of(tree.nodes[node].snapshot), base.limits
    if episode.terminated:
        return float(base.is_success(episode.state))
    turns = None if limits.max_turns is None else limits.max_turns - episode.turns
    actions = None if limits.max_actions is None else limits.max_actions - episode.actions
    return base.best_value(episode.state, turns, actions)


@dataclass(frozen=True, slots=True)
class RatedNodes:
    """The nodes of some trees without their roots.

    Attributes:
        nodes: The nodes whose value is known.
        num_unknown: Number of the other nodes.
    """

    nodes: list[Rated]
    num_unknown: int


def rate(trees: Sequence[Tree], owners: Sequence[int], base: TextEnv[Any]) -> RatedNodes:
    """Return the scores and values of the nodes of some trees; `owners` has the instance of each tree."""
    nodes, num_unknown = [], 0
    for number, (tree, owner) in enumerate(zip(trees, owners, strict=True)):
        for index, node in enumerate(tree.nodes):
            if node.parent is None:
                continue
            value = value_at(base, tree, index)
            if value is None:
                num_unknown += 1
                continue
            # A search never expands a node that a scorer has proved lost, so it ranks last, independent of its score.
            score = _LAST if node.info.get("dead_end") else tree.merit(index)
            kept = bool(tree.children(index)) or index in tree.chosen
            nodes.append(Rated(owner, number, node.parent, node.depth, score, value, not node.done, kept))
    return RatedNodes(nodes, num_unknown)


def siblings_walk(tree: Tree, *, branching: int) -> Iterator[list[Expand]]:
    """Try several candidates at every turn and continue from the first of them.

    Scores do not influence the walk, so every scorer is compared on the same states.
    """
    here = tree.root
    while not tree.nodes[here].done:
        yield [Expand(here, branching)]
        here = tree.children(here)[-branching]


def rank_turns(rated: Sequence[Rated]) -> list[TurnRanking]:
    """Return the ranking of the states of each turn, in the order of the turns."""
    rows = []
    for turn in sorted({node.turn for node in rated}):
        nodes = [node for node in rated if node.turn == turn]
        scores, values = [node.score for node in nodes], [node.value for node in nodes]
        estimate = pooled(spearman, scores, values, [node.owner for node in nodes])
        rows.append(TurnRanking(turn, len(nodes), fmean(values), estimate, kendall(scores, values)))
    return rows


def rank_siblings(rated: Sequence[Rated]) -> SiblingRanking:
    """Return the mean ranking of candidates of the same state."""
    places = [nodes for nodes in _grouped(rated, "tree", "parent") if len(nodes) > 1]
    pairs, owners = [], []
    # Where all candidates have the same value, every order is right, so a correlation would measure nothing.
    for nodes in places:
        scores, values = [node.score for node in nodes], [node.value for node in nodes]
        if max(values) - min(values) > _TIE:
            pairs.append((scores, values))
            owners.append(nodes[0].owner)
    return SiblingRanking(
        len(pairs),
        len(places) - len(pairs),
        pooled_mean([spearman(*pair) or 0.0 for pair in pairs], owners),
        pooled_mean([kendall(*pair) or 0.0 for pair in pairs], owners),
        pooled_mean([lost(*pair) for pair in pairs], owners),
        pooled_mean([max(values) - fmean(values) for _, values in pairs], owners),
    )


def lost(scores: Sequence[float], values: Sequence[float]) -> float:
    """Return the value that is lost by taking the candidate with the best score, a random one where several share it.

    >>> lost([1.0, 1.0, 0.0], [0.5, 0.25, 1.0])
    0.625
    """
    taken = [value for score, value in zip(scores, values, strict=True) if score > max(scores) - _TIE]
    return max(values) - fmean(taken)


def find_drops(rated: Sequence[Rated]) -> Drops:
    """Return the numbers of prefixes that a search dropped and kept, and the value that it lost by that."""
    prefixes = [node for node in rated if node.is_prefix]
    dropped = [node for node in prefixes if not node.kept]
    kept = [node for node in prefixes if node.kept]
    losses, owners = [], []
    for nodes in _grouped(prefixes, "tree", "turn"):
        dropped_values = [node.value for node in nodes if not node.kept]
        kept_values = [node.value for node in nodes if node.kept]
        # A turn at which nothing was dropped, or nothing kept, was no choice.
        if dropped_values and kept_values:
            losses.append(max(0.0, max(dropped_values) - max(kept_values)))
            owners.append(nodes[0].owner)
    return Drops(
        len(dropped),
        _share(dropped, winnable=True),
        len(kept),
        _share(kept, winnable=False),
        _share(prefixes, winnable=True),
        pooled_mean(losses, owners),
    )


def _grouped(rated: Sequence[Rated], *names: str) -> list[list[Rated]]:
    """Return the nodes with equal values of some attributes, group by group, in the order of the values."""
    key = attrgetter(*names)
    return [list(nodes) for _, nodes in groupby(sorted(rated, key=key), key=key)]


def _share(nodes: Sequence[Rated], *, winnable: bool) -> Interval | None:
    """Return the share of nodes from which the task can be won, or, without `winnable`, cannot."""
    return pooled_mean([float((node.value > 0) == winnable) for node in nodes], [node.owner for node in nodes])


def grow_rated(
    pool: EnvPool,
    policy: Policy,
    strategy: Strategy,
    *,
    tasks: Sequence[int],
    seeds: Sequence[int],
    noise: Noise = "fresh",
    batch: int = 256,
    watch: Callable[[int], None] = lambda done: None,
) -> RatedNodes:
    """Search every instance from its start, once per seed, and return the rated nodes of the trees.

    Args:
        pool: Environments.
        policy: Answers the searches.
        strategy: The search.
        tasks: Seeds of the instances.
        seeds: Each gives other samples and random numbers.
        noise: Of imagined turns.
        batch: Trees that are grown at a time.
        watch: Called with the number of trees that were grown.
    """
    work = [(owner, task, seed) for owner, task in enumerate(tasks) for seed in seeds]
    nodes: list[Rated] = []
    num_unknown = 0
    for start in range(0, len(work), batch):
        part = work[start : start + batch]
        envs = pool.set([task for _, task, _ in part])
        tree_seeds = [derive_seed(seed, "calibration", task) for _, task, seed in part]
        trees = search(envs, policy, strategy, seeds=tree_seeds, noise=noise)
        rated = rate(trees, [owner for owner, *_ in part], pool.base)
        nodes += [node._replace(tree=node.tree + start) for node in rated.nodes]
        num_unknown += rated.num_unknown
        watch(start + len(part))
    return RatedNodes(nodes, num_unknown)
