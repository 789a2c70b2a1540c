"""Calibration: what a score is worth as the guide of a search, held against exact values.

The value of a state is the highest chance of success from it within the limits (`TextEnv.best_value`). Only success of
played episodes is called success; what a search imagined is never counted.
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

# Values and scores that differ by less are equal: digits behind the point that count, as in `Tree.best`.
_DIGITS = 9
_TIE = 1e-9
_LAST = -1e12


def ranks(values: Sequence[float]) -> NDArray[np.float64]:
    """Return ranks from 1 upwards; equal values share the mean of theirs.

    >>> ranks([3.0, 1.0, 3.0]).tolist()
    [2.5, 1.0, 2.5]
    """
    _, place, counts = np.unique(np.round(values, _DIGITS), return_inverse=True, return_counts=True)
    shared: NDArray[np.float64] = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return shared


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation, the correlation of the ranks; None where one side says nothing.

    >>> spearman([1.0, 2.0, 3.0], [0.1, 0.3, 0.2])
    0.5
    """
    mean = (len(first) + 1) / 2
    one, two = ranks(first) - mean, ranks(second) - mean
    spread = sqrt(float(one @ one) * float(two @ two))
    return float(one @ two) / spread if spread else None


def kendall(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return Kendall's tau-b: pairs in the same order minus pairs in the opposite one, corrected for ties.

    ``(C - D) / sqrt((P - T1) (P - T2))``, where of P pairs C are concordant, D discordant, and T1 and T2 tied on the
    one and on the other side (Kendall 1945, "The treatment of ties in ranking problems"). None where one side says
    nothing.

    >>> kendall([1.0, 2.0, 3.0], [1.0, 3.0, 2.0])
    0.3333333333333333
    """
    one, two = np.round(first, _DIGITS), np.round(second, _DIGITS)
    order = untied_one = untied_two = 0
    for start in range(1, len(one)):
        # Each row of the triangle of pairs at once; the whole square would not fit into memory.
        up_one, up_two = np.sign(one[start:] - one[start - 1]), np.sign(two[start:] - two[start - 1])
        order += int(up_one @ up_two)
        untied_one += int(np.count_nonzero(up_one))
        untied_two += int(np.count_nonzero(up_two))
    return order / sqrt(untied_one * untied_two) if untied_one and untied_two else None


@dataclass(frozen=True, slots=True)
class TurnRanking:
    """How scores rank the states that one turn of the policy's play reached, all instances together.

    Attributes:
        turn: Number of the turn, from 1.
        states: How many.
        value: Mean value.
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
    """How scores rank the candidates of one place: what a search compares.

    Attributes:
        sets: Places at which candidates differ in value.
        decided: Places at which they do not, so that any choice is as good; left out.
        spearman: Mean of Spearman's correlation within a set; 0 where all scores of a set are equal.
        kendall: Mean of Kendall's tau-b within a set, likewise.
        lost: Value that is lost by taking the candidate with the best score, one of them at random where several are.
        lost_by_chance: Value that is lost by taking any candidate.
    """

    sets: int
    decided: int
    spearman: Interval | None
    kendall: Interval | None
    lost: Interval | None
    lost_by_chance: Interval | None


@dataclass(frozen=True, slots=True)
class Drops:
    """What a search under one setting drops. A prefix is an episode that goes on; shares are of prefixes.

    Attributes:
        dropped: Prefixes at which the search stopped, those aside that it chose in the end.
        winnable_dropped: Share of them that could still have been won.
        kept: Prefixes that the search went on from.
        dead_kept: Share of them that could no longer be won.
        winnable: Share of all prefixes that could still be won: `winnable_dropped` of a search that drops at random.
        lost_a_turn: By how much the best dropped prefix of a turn is worth more than the best kept one, 0 where it is
            not; mean over turns at which something was dropped and kept.
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
        score: What the search ranks it by.
        value: Its value.
        is_prefix: Whether the episode goes on from it.
        went_on: Whether the search did, or chose it.
    """

    owner: int
    tree: int
    parent: int
    turn: int
    score: float
    value: float
    is_prefix: bool
    went_on: bool


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
    """The nodes of some trees but their first ones: those whose value is known, and how many others there are."""

    nodes: list[Rated]
    num_unknown: int


def rate(trees: Sequence[Tree], owners: Sequence[int], base: TextEnv[Any]) -> RatedNodes:
    """Return scores and values of the nodes of some trees, each tree of the instance that is its owner."""
    found, num_unknown = [], 0
    for number, (tree, owner) in enumerate(zip(trees, owners, strict=True)):
        for index, node in enumerate(tree.nodes):
            if node.parent is None:
                continue
            value = value_at(base, tree, index)
            if value is None:
                num_unknown += 1
                continue
            # What a scorer has proved lost is ranked last, whatever its score.
            score = _LAST if node.info.get("dead_end") else tree.merit(index)
            went_on = bool(tree.children(index)) or index in tree.chosen
            found.append(Rated(owner, number, node.parent, node.depth, score, value, not node.done, went_on))
    return RatedNodes(found, num_unknown)


def siblings_walk(tree: Tree, *, branching: int) -> Iterator[list[Expand]]:
    """Try several candidates at every turn and go on from the first, so that scores have no say in what is compared."""
    here = tree.root
    while not tree.nodes[here].done:
        yield [Expand(here, branching)]
        here = tree.children(here)[-branching]


def rank_turns(rated: Sequence[Rated]) -> list[TurnRanking]:
    """Return how well scores rank states, turn by turn."""
    rows = []
    for turn in sorted({one.turn for one in rated}):
        nodes = [one for one in rated if one.turn == turn]
        scores, values = [one.score for one in nodes], [one.value for one in nodes]
        estimate = pooled(spearman, scores, values, [one.owner for one in nodes])
        rows.append(TurnRanking(turn, len(nodes), fmean(values), estimate, kendall(scores, values)))
    return rows


def rank_siblings(rated: Sequence[Rated]) -> SiblingRanking:
    """Return how well scores rank the candidates of one place."""
    places = [nodes for nodes in _grouped(rated, "tree", "parent") if len(nodes) > 1]
    pairs, owners = [], []
    for nodes in places:
        scores, values = [one.score for one in nodes], [one.value for one in nodes]
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
    """Return the value that is lost by taking a candidate with the best score, any of them where several are.

    >>> lost([1.0, 1.0, 0.0], [0.5, 0.25, 1.0])
    0.625
    """
    taken = [value for score, value in zip(scores, values, strict=True) if score > max(scores) - _TIE]
    return max(values) - fmean(taken)


def find_drops(rated: Sequence[Rated]) -> Drops:
    """Return what a search dropped and kept."""
    prefixes = [one for one in rated if one.is_prefix]
    dropped = [one for one in prefixes if not one.went_on]
    kept = [one for one in prefixes if one.went_on]
    losses, owners = [], []
    for nodes in _grouped(prefixes, "tree", "turn"):
        best = {went_on: [one.value for one in nodes if one.went_on == went_on] for went_on in (False, True)}
        if best[False] and best[True]:
            losses.append(max(0.0, max(best[False]) - max(best[True])))
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
    """Return nodes by the attributes of these names, in their order."""
    key = attrgetter(*names)
    return [list(nodes) for _, nodes in groupby(sorted(rated, key=key), key=key)]


def _share(nodes: Sequence[Rated], *, winnable: bool) -> Interval | None:
    """Return the share of nodes that can be won, or that cannot."""
    return pooled_mean([float((one.value > 0) == winnable) for one in nodes], [one.owner for one in nodes])


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
        strategy: How they go.
        tasks: Seeds of the instances.
        seeds: Each gives other samples and dice.
        noise: The dice.
        batch: Trees that are grown side by side.
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
        nodes += [one._replace(tree=one.tree + start) for one in rated.nodes]
        num_unknown += rated.num_unknown
        watch(start + len(part))
    return RatedNodes(nodes, num_unknown)
