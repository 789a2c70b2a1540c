"""Collect: from task instances to groups of trajectories, by any search."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import add
from time import perf_counter
from typing import Any, NamedTuple

from tsr_gym.agents.episodes.env_pool import EnvPool
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.episodes.settings import SearchConfig
from tsr_gym.agents.episodes.start_states import StartState
from tsr_gym.agents.episodes.trajectory import (
    Edge,
    Group,
    Trajectory,
    harvest,
    harvest_all,
    harvest_edges,
    harvest_leaves,
    trajectory_to,
)
from tsr_gym.agents.strategies import check_numbers, naive
from tsr_gym.agents.strategies.order import Harvest, harvesting_of, leaves_by_tree
from tsr_gym.agents.strategies.play_on import to_the_end
from tsr_gym.errors import ConfigError
from tsr_gym.keywords import with_defaults
from tsr_gym.seeds import derive_seed
from tsr_gym.tree import Budget, Candidate, Expand, Policy, Rater, Strategy, Tree

Harvested = Callable[[Tree, int], list[Trajectory]]


class Tried(NamedTuple):
    """What a way to collect has cost and brought.

    Attributes:
        groups: Groups that it was applied to.
        useful: Those that it gave successes next to failures.
        tokens: Tokens that it sampled.
    """

    groups: int = 0
    useful: int = 0
    tokens: int = 0


# The ways to collect: plain episodes, or a search where these fail.
PLAY, SEARCH = "play", "search"


@dataclass(frozen=True, slots=True)
class Collected:
    """Result of a round of searches.

    Attributes:
        groups: The selected trajectories, one group per task.
        trees: The trees that they were selected from, one list per task.
        spent: What it cost.
        model_calls: Rounds in which the policy was asked, all trees together.
        seconds: Wall-clock by part: model, env, tree.
        tried: What each way has cost and brought, where plain play comes first and searches where it fails.
    """

    groups: list[Group]
    trees: list[list[Tree]]
    spent: Budget
    model_calls: int
    seconds: dict[str, float]
    tried: Mapping[str, Tried] = field(default_factory=dict)

    def shares(self) -> dict[str, float]:
        """Return the share of groups that were searched; empty where plain play is not first."""
        groups = {way: tried.groups for way, tried in self.tried.items()}
        return {"share_search": groups.get(SEARCH, 0) / groups[PLAY]} if groups.get(PLAY) else {}

    def __add__(self, other: "Collected") -> "Collected":
        """Return the result for these tasks followed by that for others."""
        return Collected(
            self.groups + other.groups,
            self.trees + other.trees,
            self.spent + other.spent,
            self.model_calls + other.model_calls,
            {part: self.seconds[part] + other.seconds[part] for part in self.seconds},
            {
                way: _total(self.tried.get(way), other.tried.get(way))
                for way in dict.fromkeys((*self.tried, *other.tried))
            },
        )

    def __or__(self, other: "Collected") -> "Collected":
        """Return the result for the other's tasks, with the trajectories of this one first where a task is in both."""
        # With search_when=failed only some tasks are searched, and the played groups hold all of them.
        own = {group.task: (group.trajectories, grown) for group, grown in zip(self.groups, self.trees, strict=True)}
        before = [own.get(group.task, ((), [])) for group in other.groups]
        pairs = zip(before, other.groups, strict=True)
        groups = [Group(group.task, trajectories + group.trajectories) for (trajectories, _), group in pairs]
        trees = [grown + played for (_, grown), played in zip(before, other.trees, strict=True)]
        return replace(self + other, groups=groups, trees=trees)


def side_by_side(parts: Sequence[Collected]) -> Collected:
    """Return the sum of results that were collected at the same time; clocks and rounds are those of the slowest."""
    seconds = {name: max(part.seconds[name] for part in parts) for name in parts[0].seconds}
    return replace(reduce(add, parts), model_calls=max(part.model_calls for part in parts), seconds=seconds)


def edges_by_task(collected: Collected) -> dict[int, list[Edge]]:
    """Return the moves that all trees of each task tried."""
    trees = zip(collected.groups, collected.trees, strict=True)
    return {group.task: harvest_edges(grown) for group, grown in trees}


class Place(NamedTuple):
    """The place at which an episode begins.

    Attributes:
        number: Of its instance in the run's sequence.
        start_state: The start state in it, None for its start.
        again: Part of the seed, for several searches of one instance that are to draw different samples.
    """

    number: int
    start_state: StartState | None = None
    again: tuple[int, ...] = ()


def task_seed(run: int, number: int) -> int:
    """Return the seed of an instance of a run's sequence, by the run's seed and its number."""
    return derive_seed(run, "task", number)


class ChosenSearch(NamedTuple):
    """How a configuration searches.

    Attributes:
        strategy: With its numbers.
        name: Of the strategy, as it was written.
        harvest: What becomes of its trees.
        searches: How many there are per instance.
        paths: Paths taken from each, where paths are selected.
    """

    strategy: "partial[Any]"
    name: str
    harvest: Harvest
    searches: int
    paths: int

    def to_the_end(self) -> Strategy:
        """Return the strategy, extended to play every path to its end that is learned from as a whole episode."""
        # Leaves and branches are learned from as they grew: estimators for trees read unfinished paths, too.
        if self.harvest in ("leaves", "branches"):
            return self.strategy
        return to_the_end(self.strategy, paths=self.paths if self.harvest == "selected" else None)

    @property
    def words(self) -> str:
        """A short description of how the trajectories of an instance are made."""
        if self.harvest in ("episodes", "branches"):
            rollouts = self.strategy.keywords.get("rollouts")
            return f"all episodes of {self.name}" if rollouts is None else f"{rollouts} rollouts"
        taken = f" x {self.paths}" if self.harvest == "selected" else ", all leaves"
        return f"{self.searches} search{'' if self.searches == 1 else 'es'}{taken}"


def choose_search(config: SearchConfig) -> ChosenSearch:
    """Return the search of a configuration.

    A strategy whose number `keep` says how many paths it selects takes all trajectories of an instance from one search,
    unless its call says another number; a strategy of `rollouts` whose episodes are taken plays as many as there are
    trajectories.

    Raises:
        ConfigError: There is no such strategy, it cannot have these numbers, or the trajectories of an instance do not
            come out of its searches.
    """
    wanted = config.trajectories
    strategy = _offered(config, keep=wanted)
    harvest = harvesting_of(strategy).kind if config.learn_from == "auto" else config.learn_from
    if harvest == "branches" and config.dead_ends != "off":
        raise ConfigError(
            f"{config.search} forks at nodes of whole episodes: wanted dead_ends=off, got {config.dead_ends}"
        )
    if harvest in ("episodes", "branches"):
        strategy = _offered(config, rollouts=wanted)
        if (rollouts := strategy.keywords.get("rollouts", wanted)) != wanted:
            raise ConfigError(
                f"{config.search} plays {rollouts} episodes per instance and trajectories is {wanted}: leave out "
                "rollouts, or make them equal"
            )
        return ChosenSearch(strategy, config.name, harvest, 1, 1)
    numbers = {name: parameter.default for name, parameter in inspect.signature(strategy).parameters.items()}
    paths = config.paths_per_search
    if "keep" in numbers:
        if paths != 1:
            raise ConfigError(
                f"{config.name} says by its keep how many paths it selects: write {config.name}(keep={paths}), and "
                "leave out paths_per_search"
            )
        paths = numbers["keep"]
    if wanted % paths:
        raise ConfigError(
            f"wanted trajectories to be a multiple of the paths of a search, got trajectories={wanted} and {paths}"
        )
    ends = ("n",) if "n" in numbers else ("width", "branching") if {"width", "branching"} <= numbers.keys() else ()
    if short := [name for name in ends if numbers[name] < paths]:
        raise ConfigError(
            f"{config.search} may select fewer than the {paths} paths that are taken of each search: raise {short[0]}, "
            "or lower trajectories or paths_per_search"
        )
    return ChosenSearch(strategy, config.name, harvest, wanted // paths, paths)


def _offered(config: SearchConfig, **numbers: int) -> "partial[Any]":
    """Return the strategy with numbers of the configuration that its call leaves open, checked by the strategy."""
    strategy = with_defaults(config.search.bound, **numbers)
    try:
        check_numbers(strategy)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the strategy {config.search!s} cannot be used: {error}") from error
    return strategy


class Collector:
    """Search task instances by a configuration.

    Every search that selects paths yields the same number of trajectories per instance, see `choose_search`. A
    strategy all of whose episodes are taken decides the size of its groups. With ``learn_from="leaves"`` a searched
    group is every branch of its trees, and with ``naive`` each group also has trajectories of plain play, on dice of
    their own. With ``search_when="failed"`` a group whose plain play has succeeded has these alone, and with
    ``search_when="cheaper"`` failed play is searched by chance.

    Args:
        config: The search.
        pool: Environments.
        policy: Answers the searches.
        seed: Seed of the run.
        rater: Scores what grows in place of the environment's own score.
        searcher: Answers the searches in place of `policy`, which then answers plain play alone.
    """

    def __init__(
        self,
        config: SearchConfig,
        pool: EnvPool,
        policy: Policy,
        *,
        seed: int,
        rater: Rater | None = None,
        searcher: Policy | None = None,
    ) -> None:
        self.config = config
        self.pool = pool
        self.policy = policy
        self.searcher = policy if searcher is None else searcher
        self.seed = seed
        self.rater = rater
        self.search = choose_search(config)
        self.strategy = self.search.to_the_end()

    def collect(
        self, first: int, count: int, starts: Sequence[StartState | None] = (), *, chance: float = 1.0
    ) -> Collected:
        """Search the instances number `first` to `first + count` of the run's sequence.

        Args:
            first: Number of the first instance.
            count: How many.
            starts: Start state of each, None for the instance's own start; empty if all begin at their own starts.
            chance: That failed play is searched, where ``search_when`` is not ``"always"``.
        """
        numbers = range(first, first + count)
        places = [
            Place(number, start_state) for number, start_state in zip(numbers, starts or (None,) * count, strict=True)
        ]
        return self.collect_at(places, chance=chance)

    def begin(
        self, first: int, count: int, starts: Sequence[StartState | None] = (), *, chance: float = 1.0
    ) -> Callable[[], Collected]:
        """Search by the present weights and return a function that returns the result; see `collect`."""
        collected = self.collect(first, count, starts, chance=chance)
        return lambda: collected

    def collect_at(self, places: Sequence[Place], *, chance: float = 1.0) -> Collected:
        """Search from some places.

        Args:
            places: Where to begin; with plain play (``naive``) each instance at most once.
            chance: See `collect`.
        """
        config = self.config
        if config.search_when == "always":
            searched = self._searched(places)
            return searched | self._play(places, config.naive) if config.naive else searched
        played = self._play(places, config.naive)
        failed = [place for place, group in zip(places, played.groups, strict=True) if not group.has_success]
        collected, tried = played, {PLAY: _tried(played, [group.has_mixed_success for group in played.groups])}
        # A resumed run and workers draw the same, as the number depends on nothing else.
        drawn = [
            place for place in failed if derive_seed(self.seed, "way", place.number, *place.again) / 2**63 < chance
        ]
        if drawn:
            searched = self._searched(drawn)
            tried[SEARCH] = _tried(searched, [group.has_success for group in searched.groups])
            collected = searched | played
        return replace(collected, tried=tried)

    def play_at(self, places: Sequence[Place]) -> Collected:
        """Play as many plain episodes from some places as a search and plain play would bring."""
        return self._play(places, self.config.trajectories + self.config.naive)

    def metrics(self) -> dict[str, Any]:
        """Return metrics of how the collection was done; empty, because it was done in this process."""
        return {}

    def _searched(self, places: Sequence[Place]) -> Collected:
        return self._search(places, self.strategy, self.search.searches, "tree", self._harvest)

    def _play(self, places: Sequence[Place], rollouts: int) -> Collected:
        play = to_the_end(partial(naive, rollouts=rollouts), paths=None)
        return self._search(places, play, 1, "naive", self._harvest_naive)

    def _search(
        self, places: Sequence[Place], strategy: Strategy, copies: int, name: str, harvested: "Harvested"
    ) -> Collected:
        """Run searches from some places, `copies` of each."""
        started = perf_counter()
        tasks = [task_seed(self.seed, place.number) for place in places]
        envs = self.pool.set(tasks, copies, [place.start_state for place in places])
        reset_seconds = perf_counter() - started
        # A seed depends on the instance's number and not on its place in the call, so budgets, workers and processes
        # can cut the instances of an update into any parts. Its name keeps search and plain play on different dice.
        seeds = [
            derive_seed(self.seed, name, place.number, copy, *place.again) for place in places for copy in range(copies)
        ]
        clock = _Clock(self.searcher if name == "tree" else self.policy)
        trees = search(envs, clock, strategy, seeds=seeds, noise=self.config.noise, rater=self.rater)
        by_task = [trees[start : start + copies] for start in range(0, len(trees), copies)]
        spent = sum((tree.spent for tree in trees), Budget())
        groups = [
            Group(
                task,
                tuple(
                    self._named(trajectory, tree.spent.expansions)
                    for number, tree in enumerate(grown)
                    for trajectory in harvested(tree, number)
                ),
            )
            for task, grown in zip(tasks, by_task, strict=True)
        ]
        seconds = {
            "model": clock.seconds,
            "env": reset_seconds + spent.env_seconds,
            "tree": perf_counter() - started - reset_seconds - clock.seconds - spent.env_seconds,
        }
        return Collected(groups, by_task, spent, clock.calls, seconds)

    def _harvest(self, tree: Tree, number: int) -> list[Trajectory]:
        strategy, name, harvest_of, _, paths = self.search
        if harvest_of == "episodes":
            return harvest_all(tree, selected_by=name)
        if harvest_of == "branches":
            by_tree = enumerate(leaves_by_tree(strategy, tree))
            return [
                trajectory_to(tree, leaf, selected_by=name, number=branch)
                for branch, leaves in by_tree
                for leaf in leaves
            ]
        if harvest_of == "leaves":
            return harvest_leaves(tree, selected_by=name, number=number)
        return harvest(tree, paths, selected_by=name, number=number)

    def _named(self, trajectory: Trajectory, expansions: int) -> Trajectory:
        """Return a trajectory with the guide and the expansions of its search."""
        if trajectory.selected_by == "naive" or self.search.harvest in ("episodes", "branches"):
            return trajectory
        # Reports compare searches by their guides, so a trajectory keeps the name of the guide that selected it.
        by_reward = harvesting_of(self.search.strategy).by == "reward"
        by = "reward" if by_reward else self.config.rater or self.pool.score
        # A proof is not public, so a search that prunes by it is named after it too.
        by = by if self.config.dead_ends == "off" else f"{by}, dead ends {self.config.dead_ends}"
        return replace(trajectory, selected_for=by, expansions=expansions)

    def _harvest_naive(self, tree: Tree, number: int) -> list[Trajectory]:
        # Numbers of trees continue after those of the searches, so that no two trees of a group share a number.
        return harvest_all(tree, number=self.search.searches)


def _total(*parts: Tried | None) -> Tried:
    return Tried(*map(sum, zip(*(part or Tried() for part in parts), strict=True)))


def _tried(collected: Collected, useful: Sequence[bool]) -> Tried:
    return Tried(len(useful), sum(useful), collected.spent.sampled_tokens)


class _Clock:
    """A policy that times and counts its calls."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.seconds = 0.0
        self.calls = 0

    def __call__(self, requests: Sequence[tuple[Tree, Expand]]) -> list[list[Candidate]]:
        started = perf_counter()
        answers = self.policy(requests)
        self.seconds += perf_counter() - started
        self.calls += 1
        return answers
