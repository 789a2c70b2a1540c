"""Evaluation of a run: held-out instances played without search, and the line that is written about it."""

from collections.abc import Callable
from dataclasses import asdict
from time import perf_counter
from typing import Any

from tsr_gym.agents.episodes.held_out import HeldOut
from tsr_gym.agents.episodes.play import Examined, summarise_examined
from tsr_gym.agents.runs.checkpoint import Progress
from tsr_gym.agents.runs.config import RunConfig
from tsr_gym.seeds import derive_seed


def evaluation_record(
    instances: HeldOut, examine: Callable[[int], Examined], run: RunConfig, progress: Progress
) -> dict[str, Any]:
    """Have held-out instances played and return the line of it.

    Args:
        instances: What is played.
        examine: Plays all of them, by a seed from which and from its own each instance's samples and dice derive.
        run: Whose seed it is.
        progress: How far the run has come.
    """
    started = perf_counter()
    bars = instances.bars
    played = summarise_examined(examine(derive_seed(run.seed, progress.update)))
    return {
        "step": progress.update,
        "sampled_tokens_total": progress.sampled_tokens,
        "prompt_tokens_total": progress.prompt_tokens,
        **asdict(played),
        **asdict(bars),
        "seconds": {"evaluation": perf_counter() - started},
    }
