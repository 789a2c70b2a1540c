"""Matching: the tokens of another run, after each of its updates, which a run is to count as well; torch-free."""

import json
from pathlib import Path

from tsr_gym.agents.runs.config import TrainConfig
from tsr_gym.agents.runs.log import JsonLines
from tsr_gym.agents.runs.token_budget import counted
from tsr_gym.budget import Budget
from tsr_gym.errors import CheckpointError, ConfigError, shown

TARGETS = "token_targets.json"


def token_targets(config: TrainConfig) -> list[int] | None:
    """Return the tokens that another run had counted after each of its updates; None for a run that matches none.

    They are counted at the prices of the run that matches.

    Raises:
        ConfigError: That run has fewer updates, is none, or does not say its prompt tokens, which count.
    """
    other, run = config.search.match_tokens, config.run
    if other is None:
        return None
    records = JsonLines(other / "metrics.jsonl").read()
    if len(records) < run.updates:
        raise ConfigError(f"match_tokens: wanted a run of at least {run.updates} updates, {other} has {len(records)}")
    if run.prompt_price and not all("prompt_tokens_total" in record for record in records):
        raise ConfigError(f"match_tokens: {other} does not say its prompt tokens: wanted prompt_price=0")
    spent = [
        Budget(sampled_tokens=record["sampled_tokens_total"], prompt_tokens=record.get("prompt_tokens_total", 0))
        for record in records
    ]
    return [round(counted(one, run)) for one in spent]


def read_targets(run: Path) -> list[int] | None:
    """Return what `token_targets` returned when a run began, from its folder; None for a run that matches none.

    Raises:
        CheckpointError: The file is damaged.
    """
    path = run / TARGETS
    if not path.exists():
        return None
    try:
        known = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: damaged ({error}): restore it from a copy") from error
    if not (isinstance(known, list) and all(type(count) is int and count >= 0 for count in known)):
        raise CheckpointError(f"{path}: wanted a list of counts, got {shown(known)}: damaged")
    return known
