"""Collect: from task instances to groups of trajectories, by whatever search."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

from tsr_gym.agents.config import SearchConfig
from tsr_gym.agents.filters import Filter, keep_all, keep_mixed_success, keep_uncertain
from tsr_gym.agents.search import search
from tsr_gym.agents.stage import Stage
from tsr_gym.agents.trajectory import Group, Trajectory, harvest, harvest_all
from tsr_gym.budget import Budget
from tsr_gym.errors import ConfigError
from tsr_gym.optional import load
from tsr_gym.seeds import derive_seed
from tsr_gym.tree import Candidate, Expand, Policy, Strategy, Tree


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
        return Collected(
            self.groups + other.groups,
            self.trees + other.trees,
            self.spent + other.spent,
            self.model_calls + other.model_calls,
            {part: self.seconds[part] + other.seconds[part] for part in self.seconds},
        )


class Collector:
    """Search task instances as a configuration says.

    Every method yields the same number of trajectories per instance: naive plays them; best-of-N plays `n` and keeps
    the best by return; beam, lookahead and other strategies run a search for each, or for each `paths_per_search`.

    Args:
        config: The search.
        stage: Environments.
        policy: Answers the searches.
        seed: Seed of the run.
    """

    def __init__(self, config: SearchConfig, stage: Stage, policy: Policy, *, seed: int) -> None:
        self.config = config
        self.stage = stage
        self.policy = policy
        self.seed = seed
        self.strategy = pick_strategy(config)
        plain = config.search in ("naive", "best_of_n")
        self.trees_per_task = 1 if plain else config.trajectories // config.paths_per_search

    def collect(self, first: int, count: int) -> Collected:
        """Search the instances number `first` to `first + count` of the run's sequence."""
        started = perf_counter()
        tasks = [derive_seed(self.seed, "task", number) for number in range(first, first + count)]
        copies = self.trees_per_task
        envs = self.stage.set(tasks, copies)
        reset_seconds = perf_counter() - started
        seeds = [derive_seed(self.seed, "tree", first + i // copies, i % copies) for i in range(len(envs))]
        clock = _Clock(self.policy)
        trees = search(envs, clock, self.strategy, seeds=seeds, noise=self.config.noise)
        by_task = [trees[start : start + copies] for start in range(0, len(trees), copies)]
        spent = sum((tree.spent for tree in trees), Budget())
        groups = [Group(task, _flat(map(self._harvest, grown))) for task, grown in zip(tasks, by_task, strict=True)]
        seconds = {
            "model": clock.seconds,
            "env": reset_seconds + spent.env_seconds,
            "tree": perf_counter() - started - reset_seconds - clock.seconds - spent.env_seconds,
        }
        return Collected(groups, by_task, spent, clock.calls, seconds)

    def _harvest(self, tree: Tree) -> list[Trajectory]:
        config = self.config
        if config.search == "naive":
            return harvest_all(tree)
        if config.search == "best_of_n":
            return harvest(tree, config.trajectories, by="reward", selected_by="best_of_n")
        return harvest(tree, config.paths_per_search, selected_by=config.search)


def pick_strategy(config: SearchConfig) -> Strategy:
    """Return the strategy that a configuration names, its numbers bound by their names.

    Raises:
        ConfigError: There is no such strategy, or it needs a number that the configuration does not have.
    """
    path = config.search if ":" in config.search else f"tsr_gym.agents.strategies:{config.search}"
    try:
        strategy: Any = load(path)
        wanted = inspect.signature(strategy).parameters
    except (ImportError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"wanted search naive, best_of_n, beam, lookahead or package.module:name, got {config.search!r} ({error})"
        ) from error
    numbers = {
        "rollouts": config.trajectories,
        "n": config.n,
        "width": config.width,
        "branching": config.branching,
        "depth": None if config.search == "beam" else config.depth,
    }
    _, *names = wanted
    missing = [name for name in names if name not in numbers and wanted[name].default is inspect.Parameter.empty]
    if missing:
        raise ConfigError(
            f"the strategy {config.search!r} needs {missing}: give them defaults, or name them {sorted(numbers)}"
        )
    bound: Strategy = partial(strategy, **{name: numbers[name] for name in names if name in numbers})
    return bound


def pick_filter(config: SearchConfig) -> Callable[[Collected], list[Group]]:
    """Return what chooses the groups to learn from."""
    filters: dict[str, Filter] = {
        "uncertainty": partial(keep_uncertain, ratio=config.keep),
        "mixed_success": partial(keep_mixed_success, ratio=config.keep),
        "none": keep_all,
    }
    keep = filters[config.filter]

    def choose(collected: Collected) -> list[Group]:
        if config.filter_when == "after":
            return keep(collected.groups)
        everything = [
            Group(group.task, _flat(map(harvest_all, grown)))
            for group, grown in zip(collected.groups, collected.trees, strict=True)
        ]
        kept = {group.task for group in keep(everything)}
        return [group for group in collected.groups if group.task in kept]

    return choose


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


def _flat(parts: Any) -> tuple[Trajectory, ...]:
    return tuple(trajectory for part in parts for trajectory in part)
