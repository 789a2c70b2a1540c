"""Evaluation of a run: held-out instances played without search, and the line that is written about it."""

from dataclasses import asdict
from time import perf_counter
from typing import Any

from tsr_gym.agents.episodes.held_out import HeldOut
from tsr_gym.agents.episodes.play import evaluate
from tsr_gym.agents.runs.checkpoint import Progress
from tsr_gym.agents.runs.config import RunConfig
from tsr_gym.seeds import derive_seed
from tsr_gym.tree import Policy


def evaluation_record(instances: HeldOut, policy: Policy, run: RunConfig, progress: Progress) -> dict[str, Any]:
    """Play held-out instances and return the line of it.

    Args:
        instances: What is played.
        policy: Who plays.
        run: Whose seed it is.
        progress: How far the run has come.
    """
    started = perf_counter()
    bars = instances.bars
    seed = derive_seed(run.seed, progress.update)
    played = evaluate(instances.pool, policy, tasks=instances.tasks, seed=seed)
    return {
        "step": progress.update,
        "sampled_tokens_total": progress.sampled_tokens,
        "prompt_tokens_total": progress.prompt_tokens,
        **asdict(played),
        **asdict(bars),
        "seconds": {"evaluation": perf_counter() - started},
    }
