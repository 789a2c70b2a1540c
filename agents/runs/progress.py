"""Progress: how far a run has come in updates and in counted tokens, and what depends on it; torch-free.

Budgets, the matching of another run's tokens and the schedules all read the same counts, which a checkpoint holds.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tsr_gym.agents.config import RunConfig, TrainConfig
from tsr_gym.agents.learning.settings import LearnConfig
from tsr_gym.agents.runs.log import JsonLines
from tsr_gym.errors import CheckpointError, ConfigError, shown
from tsr_gym.tree import Budget

# Counted tokens after each update of the run that a run matches, in the folder of the run that matches.
TARGETS = "token_targets.json"


class Tokens(Protocol):
    """Counts of tokens, such as a run's progress or the cost of a search."""

    @property
    def sampled_tokens(self) -> int:
        """Tokens that were sampled."""

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompts, once per sample."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come.

    Attributes:
        update: Updates done.
        tasks: Task instances drawn.
        sampled_tokens: Tokens that the model has sampled in training.
        prompt_tokens: Tokens of the prompts in training, once per sample; 0 in checkpoints that do not have it.
        optimizer_steps: Optimizer steps of the policy; 0 in checkpoints that do not have it.
    """

    update: int = 0
    tasks: int = 0
    sampled_tokens: int = 0
    prompt_tokens: int = 0
    optimizer_steps: int = 0


def name_of(progress: Progress) -> str:
    """Return the name of the checkpoint of some progress."""
    return f"{progress.update:06d}"


def checkpoints(run: Path) -> list[Path]:
    """Return the complete checkpoints of a run, oldest first; folders with other names, such as copies, are none."""
    named = re.compile(r"[0-9]{6}|[1-9][0-9]{6,}")
    folders = [path for path in (run / "checkpoints").glob("[0-9]*") if named.fullmatch(path.name) and path.is_dir()]
    return sorted(folders, key=lambda path: int(path.name))


def counted(tokens: Tokens, run: RunConfig) -> float:
    """Return the number of tokens that count towards the budget of a run, each kind at its price.

    >>> from tsr_gym import Budget
    >>> counted(Budget(sampled_tokens=100, prompt_tokens=900), RunConfig(prompt_price=0.1))
    190.0
    """
    return run.sampled_price * tokens.sampled_tokens + run.prompt_price * tokens.prompt_tokens


def total_of(run: RunConfig, targets: Sequence[int] | None) -> int | None:
    """Return the counted tokens at which a run ends; None if no number of tokens ends it.

    Args:
        run: Settings of the run.
        targets: Counted tokens of the matched run after each of its updates; None without a matched run.
    """
    matched = targets[run.updates - 1] if targets and run.updates else None
    return min((total for total in (run.total_tokens, matched) if total is not None), default=None)


def update_end(run: RunConfig, targets: Sequence[int] | None, update: int) -> int | None:
    """Return the counted tokens of the run at which update number `update`, from 0, ends; None if others decide."""
    if run.update_tokens is not None:
        return (update + 1) * run.update_tokens
    return None if targets is None else targets[update]


def share_done(progress: Progress, run: RunConfig) -> float:
    """Return the share of a run that is done, 0 to 1: of its total tokens, or of its updates if it has no total."""
    done, whole = (
        (progress.update, run.updates) if run.total_tokens is None else (counted(progress, run), run.total_tokens)
    )
    return min(1.0, done / max(1, whole))


def lr_scale(share: float, learn: LearnConfig) -> float:
    """Return the factor of the learning rates: ``clamp((1 - share) / (1 - lr_decay_from), lr_floor, 1)``.

    >>> lr_scale(0.75, LearnConfig(lr_decay_from=0.5))
    0.5
    """
    if learn.lr_decay_from == 1:
        return 1.0
    return min(1.0, max(learn.lr_floor, (1 - share) / (1 - learn.lr_decay_from)))


def token_targets(config: TrainConfig) -> list[int] | None:
    """Return the counted tokens of the matched run after each of its updates; None for a run that matches none.

    They are counted at the prices of the run that matches.

    Raises:
        ConfigError: The matched run has too few updates, or lacks the prompt tokens, which count.
    """
    other, run = config.search.match_tokens, config.run
    if other is None:
        return None
    # Only counts are read, so the other run may be of another environment, model or search.
    records = JsonLines(other / "metrics.jsonl").read()
    if len(records) < run.updates:
        raise ConfigError(f"match_tokens: wanted a run of at least {run.updates} updates, {other} has {len(records)}")
    if run.prompt_price and not all("prompt_tokens_total" in record for record in records):
        raise ConfigError(f"match_tokens: {other} has no prompt_tokens_total: wanted prompt_price=0")
    spent = [
        Budget(sampled_tokens=record["sampled_tokens_total"], prompt_tokens=record.get("prompt_tokens_total", 0))
        for record in records
    ]
    return [round(counted(budget, run)) for budget in spent]


def read_targets(run: Path) -> list[int] | None:
    """Read the result of `token_targets` at the beginning of a run from its folder; None for a run that matches none.

    Raises:
        CheckpointError: The file is damaged.
    """
    path = run / TARGETS
    if not path.exists():
        return None
    try:
        targets = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: damaged ({error}): restore it from a copy") from error
    if not (isinstance(targets, list) and all(type(count) is int and count >= 0 for count in targets)):
        raise CheckpointError(f"{path}: wanted a list of counts, got {shown(targets)}: damaged")
    return targets
