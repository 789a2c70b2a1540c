"""Evaluate: play held-out instances without search, beside the random and the optimal bar of the same instances."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

from tsr_gym.agents.episodes.env_pool import EnvPool
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.episodes.trajectory import Trajectory, harvest_all, success_rate, trajectory_to
from tsr_gym.agents.strategies import naive
from tsr_gym.seeds import derive_seed
from tsr_gym.stack import Noise
from tsr_gym.tree import Policy, Rater, Strategy
from tsr_gym.wrappers.grow import play_out


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How a policy plays.

    Attributes:
        success: Share of instances solved.
        interval: 95 % Wilson interval of `success`, over instances.
        total_reward: Mean return.
        turns: Mean turns.
        response_length: Mean tokens per episode.
        valid: Share of turns that had the wanted form.
        instances: How many.
    """

    success: float
    interval: tuple[float, float]
    total_reward: float
    turns: float
    response_length: float
    valid: float
    instances: int


@dataclass(frozen=True, slots=True)
class Bars:
    """What any result on the same instances is to be held against; None where the environment does not know.

    Attributes:
        random: Success of uniformly random actions.
        optimal: Success of the best possible policy.
    """

    random: float | None
    optimal: float | None


def held_out(number: int) -> list[int]:
    """Return the seeds of the first held-out instances: the same for every run, so that runs can be compared."""
    return [derive_seed("held-out", index) for index in range(number)]


def evaluate(
    pool: EnvPool,
    policy: Policy,
    *,
    tasks: Sequence[int],
    seed: int = 0,
    strategy: Strategy | None = None,
    noise: Noise = "fresh",
    rater: Rater | None = None,
    batch: int = 512,
) -> Evaluation:
    """Play every instance once.

    Args:
        pool: Environments of the held-out split.
        policy: Who plays.
        tasks: Seeds of the instances.
        seed: Of the policy's samples and the dice, which do not depend on the instances' seeds.
        strategy: None plays without search; otherwise every turn is searched on imagined dice, then really played.
        noise: The imagined dice; ``"same"`` lets a search see the episode's own.
        rater: Scores what a search grows in place of the environment's own score.
        batch: Instances that are played side by side.
    """
    played: list[Trajectory] = []
    for start in range(0, len(tasks), batch):
        part = tasks[start : start + batch]
        seeds = [derive_seed(seed, "evaluation", task) for task in part]
        envs = pool.set(part)
        if strategy is None:
            played += [episode for tree in search(envs, policy, naive, seeds=seeds) for episode in harvest_all(tree)]
            continue
        for env, fresh in zip(envs, seeds, strict=True):
            env.begin(fresh, dice=derive_seed(fresh, "dice"))
        play_out(envs, policy, strategy, noise=noise, rater=rater)
        played += [trajectory_to(env.tree, env.tree.played[-1], selected_by="naive") for env in envs]
    return summarise(played)


def summarise(played: Sequence[Trajectory]) -> Evaluation:
    """Return the means over some episodes."""
    turns = [turn for trajectory in played for turn in trajectory.turns]
    return Evaluation(
        success=success_rate(played),
        interval=wilson(sum(trajectory.success for trajectory in played), len(played)),
        total_reward=_mean([trajectory.total_reward for trajectory in played]),
        turns=_mean([len(trajectory.turns) for trajectory in played]),
        response_length=_mean([trajectory.num_tokens for trajectory in played]),
        valid=_mean([turn.is_valid for turn in turns]),
        instances=len(played),
    )


def bars(pool: EnvPool, *, tasks: Sequence[int]) -> Bars:
    """Return the exact bars of some instances, from the environment's oracle."""
    found = []
    for task in tasks:
        env = pool.set([task])[0]
        base: Any = env.unwrapped
        found.append(base.success_bars(base.state))
    if not found or any(pair is None for pair in found):
        return Bars(None, None)
    return Bars(_mean([pair[0] for pair in found]), _mean([pair[1] for pair in found]))


def wilson(successes: int, number: int, z: float = 1.96) -> tuple[float, float]:
    """Return the Wilson score interval of a share.

    >>> [round(end, 3) for end in wilson(8, 10)]
    [0.49, 0.943]
    """
    if number == 0:
        return 0.0, 1.0
    share = successes / number
    centre = share + z**2 / (2 * number)
    spread = z * sqrt(share * (1 - share) / number + z**2 / (4 * number**2))
    scale = 1 + z**2 / number
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
