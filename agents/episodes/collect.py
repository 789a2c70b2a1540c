"""Collect: from task instances to groups of trajectories, by whatever search."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any

from tsr_gym.agents import strategies
from tsr_gym.agents.episodes.env_pool import EnvPool
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.episodes.trajectory import Group, Trajectory, harvest, harvest_all, harvest_leaves, trajectory_to
from tsr_gym.agents.policies.chat_policy import ChatPolicy
from tsr_gym.agents.raters import make_rater
from tsr_gym.agents.runs.config import SearchConfig
from tsr_gym.agents.strategies import naive
from tsr_gym.agents.strategies.random_branching import branching_trees
from tsr_gym.budget import Budget
from tsr_gym.errors import ConfigError
from tsr_gym.keywords import parse_call
from tsr_gym.seeds import derive_seed
from tsr_gym.tree import Candidate, Expand, Policy, Rater, Strategy, Tree

Harvested = Callable[[Tree, int], list[Trajectory]]


@dataclass(frozen=True, slots=True)
class Collected:
    """What a round of searches brought.

    Attributes:
        groups: The selected trajectories, one group per task.
        trees: The trees that they were selected from, one list per task.
        spent: What it cost.
        model_calls: Rounds in which the policy was asked, all trees together.
        seconds: Wall-clock by part: model, env, tree.
    """

    groups: list[Group]
    trees: list[list[Tree]]
    spent: Budget
    model_calls: int
    seconds: dict[str, float]

    def __add__(self, other: "Collected") -> "Collected":
        """Return what was brought for these tasks and then for others."""
        return Collected(
            self.groups + other.groups,
            self.trees + other.trees,
            self.spent + other.spent,
            self.model_calls + other.model_calls,
            {part: self.seconds[part] + other.seconds[part] for part in self.seconds},
        )

    def __or__(self, other: "Collected") -> "Collected":
        """Return what was brought in two ways for the same tasks."""
        pairs = zip(self.groups, other.groups, strict=True)
        both = self + other
        groups = [Group(one.task, one.trajectories + another.trajectories) for one, another in pairs]
        trees = [one + another for one, another in zip(self.trees, other.trees, strict=True)]
        return replace(both, groups=groups, trees=trees)


class Collector:
    """Search task instances as a configuration says.

    Every method yields the same number of trajectories per instance: naive plays them; best-of-N plays `n` and keeps
    the best by return; beam, lookahead and other strategies run a search for each, or for each `paths_per_search`. Only
    random branching and adaptive sampling have groups of their own size: all that they played. With
    ``learn_from="leaves"`` a searched group is every branch of its trees, and with ``naive`` each group has
    trajectories of plain play besides, on dice of their own.

    Args:
        config: The search.
        pool: Environments.
        policy: Answers the searches.
        seed: Seed of the run.
        rater: Scores what grows in place of the environment's own score.
    """

    def __init__(
        self, config: SearchConfig, pool: EnvPool, policy: Policy, *, seed: int, rater: Rater | None = None
    ) -> None:
        self.config = config
        self.pool = pool
        self.policy = policy
        self.seed = seed
        self.rater = rater
        self.strategy = pick_strategy(config)
        self.trees_per_task = 1 if config.search_name in PLAYED_OUT else config.trajectories // config.paths_per_search

    def collect(self, first: int, count: int) -> Collected:
        """Search the instances number `first` to `first + count` of the run's sequence."""
        config = self.config
        collected = self._search(first, count, self.strategy, self.trees_per_task, "tree", self._harvest)
        if config.naive:
            play = partial(naive, rollouts=config.naive)
            collected |= self._search(first, count, play, 1, "naive", self._harvest_naive)
        return collected

    def _search(
        self, first: int, count: int, strategy: Strategy, copies: int, name: str, harvested: "Harvested"
    ) -> Collected:
        """Run searches from the starts of some instances, `copies` of each."""
        started = perf_counter()
        tasks = [derive_seed(self.seed, "task", number) for number in range(first, first + count)]
        envs = self.pool.set(tasks, copies)
        reset_seconds = perf_counter() - started
        seeds = [derive_seed(self.seed, name, first + i // copies, i % copies) for i in range(len(envs))]
        clock = _Clock(self.policy)
        trees = search(envs, clock, strategy, seeds=seeds, noise=self.config.noise, rater=self.rater)
        by_task = [trees[start : start + copies] for start in range(0, len(trees), copies)]
        spent = sum((tree.spent for tree in trees), Budget())
        groups = [
            Group(
                task,
                tuple(one for number, tree in enumerate(grown) for one in map(self._named, harvested(tree, number))),
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
        config = self.config
        match config.search_name:
            case "naive" | "adaptive":
                return harvest_all(tree)
            case "random_branching":
                return _by_tree(tree, self.strategy)
            case "best_of_n":
                return harvest(tree, config.trajectories, by="reward", selected_by="best_of_n")
        if config.learn_from == "leaves":
            return harvest_leaves(tree, selected_by=config.search_name, number=number)
        return harvest(tree, config.paths_per_search, selected_by=config.search_name, number=number)

    def _named(self, trajectory: Trajectory) -> Trajectory:
        """Return a trajectory that knows what its search went by."""
        if trajectory.selected_by == "naive":
            return trajectory
        score = "reward" if trajectory.selected_by == "best_of_n" else self.config.rater or self.pool.score
        return replace(trajectory, selected_for=score)

    def _harvest_naive(self, tree: Tree, number: int) -> list[Trajectory]:
        return harvest_all(tree, number=self.trees_per_task)


# Strategies whose one tree per instance holds a whole group.
PLAYED_OUT = ("naive", "best_of_n", "adaptive", "random_branching")


def pick_strategy(config: SearchConfig) -> Strategy:
    """Return the strategy that a configuration names.

    Numbers that stand in the name, as in ``"puct(simulations=64)"``, are bound as they are; numbers that the strategy
    needs besides come from the configuration's settings of the same name.

    Raises:
        ConfigError: There is no such strategy, or it needs a number that neither has.
    """
    try:
        strategy, given = parse_call(config.search, home="tsr_gym.agents.strategies")
        wanted = inspect.signature(strategy).parameters
    except (ConfigError, TypeError) as error:
        raise ConfigError(
            f"wanted search {', '.join(strategies.__all__)}, one with numbers as in puct(simulations=64), or "
            f"package.module:name, got {config.search!r} ({error})"
        ) from error
    if unknown := sorted(set(given) - set(wanted)):
        raise ConfigError(f"the strategy {config.search!r} has no {unknown}; it has {sorted(list(wanted)[1:])}")
    numbers = {"n": config.n, "width": config.width, "branching": config.branching, "depth": config.depth}
    if config.search == "naive":
        given = {"rollouts": config.trajectories}
    _, *names = wanted
    needed = [name for name in names if name not in given and wanted[name].default is inspect.Parameter.empty]
    if missing := [name for name in needed if name not in numbers]:
        raise ConfigError(
            f"the strategy {config.search!r} needs {missing}: write {config.search_name}({missing[0]}=...), or give "
            "them defaults"
        )
    bound: Strategy = partial(strategy, **{name: numbers[name] for name in needed}, **given)
    return bound


def pick_rater(config: SearchConfig, chat: ChatPolicy) -> Rater | None:
    """Return the rater that a configuration names, None where the environment's own score guides.

    Raises:
        ConfigError: There is no such rater.
    """
    return None if config.rater is None else make_rater(config.rater, chat=chat)


def _by_tree(tree: Tree, strategy: Any) -> list[Trajectory]:
    """Return all episodes of random branching, numbered by the tree that they belong to."""
    names = ("trees", "nodes", "rounds")
    defaults = inspect.signature(strategy).parameters
    forest = branching_trees(tree, **{name: defaults[name].default for name in names})
    return [
        trajectory_to(tree, leaf, selected_by="naive", number=number)
        for number, leaves in enumerate(forest)
        for leaf in leaves
    ]


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
