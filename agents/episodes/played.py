"""Episodes that were really played, with a search before every turn or without, and what they cost."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tsr_gym.agents.episodes.env_pool import EnvPool
from tsr_gym.agents.episodes.evaluate import wilson
from tsr_gym.agents.episodes.intervals import Interval, pooled_mean
from tsr_gym.budget import Budget
from tsr_gym.seeds import derive_seed
from tsr_gym.stack import Noise
from tsr_gym.tree import Expand, Policy, Strategy, Tree
from tsr_gym.wrappers.grow import play_out


@dataclass(frozen=True, slots=True)
class Played:
    """Episodes of some instances, on dice that no search has seen unless it was clairvoyant.

    Attributes:
        successes: `[I, S]` as tuples, I instances and S seeds: whether the task was solved.
        spent: What everything cost, searches included.
    """

    successes: tuple[tuple[bool, ...], ...]
    spent: Budget

    @property
    def episodes(self) -> int:
        """How many."""
        return sum(map(len, self.successes))

    @property
    def success(self) -> Interval:
        """Share of episodes solved, with Wilson's interval; over instances where each was played several times."""
        flat = [float(won) for row in self.successes for won in row]
        if self.episodes == len(self.successes):
            return Interval(float(np.mean(flat)), *wilson(int(sum(flat)), len(flat)))
        owners = [owner for owner, row in enumerate(self.successes) for _ in row]
        estimate = pooled_mean(flat, owners)
        assert estimate is not None
        return estimate

    def gain_over(self, other: "Played") -> Interval:
        """Return the difference in success to other play of the same instances, instance by instance."""
        pairs = zip(self.successes, other.successes, strict=True)
        gains = [float(np.mean(mine) - np.mean(theirs)) for mine, theirs in pairs]
        estimate = pooled_mean(gains, range(len(gains)))
        assert estimate is not None
        return estimate


def play(
    pool: EnvPool,
    policy: Policy,
    strategy: Strategy | None,
    *,
    tasks: Sequence[int],
    seeds: Sequence[int],
    noise: Noise = "fresh",
    batch: int = 256,
    watch: Callable[[int], None] = lambda done: None,
) -> Played:
    """Play every instance once per seed, on the same dice whatever the strategy.

    Args:
        pool: Environments.
        policy: Who plays.
        strategy: Searches before every turn, None for the policy alone.
        tasks: Seeds of the instances.
        seeds: Each gives other samples and dice.
        noise: The imagined dice; ``"same"`` lets a search see the episode's own.
        batch: Episodes that are played side by side.
        watch: Called with the number of episodes that were played.
    """
    work = [(task, seed) for task in tasks for seed in seeds]
    won: list[bool] = []
    spent = Budget()
    for start in range(0, len(work), batch):
        part = work[start : start + batch]
        envs = pool.set([task for task, _ in part])
        for env, (task, seed) in zip(envs, part, strict=True):
            fresh = derive_seed(seed, "played", task)
            env.begin(fresh, dice=derive_seed(fresh, "dice"))
        play_out(envs, policy, strategy or _one_candidate, noise=noise)
        won += [_is_won(env.tree) for env in envs]
        spent = sum((env.tree.spent for env in envs), spent)
        watch(start + len(part))
    rows = [tuple(won[start : start + len(seeds)]) for start in range(0, len(won), len(seeds))]
    return Played(tuple(rows), spent)


def _one_candidate(tree: Tree) -> Iterator[list[Expand]]:
    """Ask for a single candidate, which is then played: the policy alone."""
    yield [Expand(tree.root)]


def _is_won(tree: Tree) -> bool:
    last = tree.nodes[tree.played[-1]]
    return last.terminated and bool(last.info.get("success", False))
