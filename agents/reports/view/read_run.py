"""Read a run for the viewer: its numbers as columns, as far as its files are whole."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Any

from tsr_gym.agents.reports.diagnosis import Finding, at_random, diagnose
from tsr_gym.agents.reports.methods import label_of
from tsr_gym.agents.runs.config import TrainConfig
from tsr_gym.errors import ConfigError

Record = dict[str, Any]

# What a run page draws of ``metrics.jsonl``, by the names of its columns.
METRICS = (
    *("success", "reward_mean", "entropy", "grad_norm", "response_length", "turns", "sampled_tokens", "env_steps"),
    *("valid", "groups_kept", "groups"),
)
_EVALUATED = ("success", "total_reward", "turns", "response_length")


def read_run(folder: Path) -> dict[str, Any]:
    """Return what a run page shows of a run, in JSON's own types.

    Args:
        folder: Of the run; what is missing or damaged in it is left out and named in ``notes``.

    Returns:
        ``label``, ``env``, ``about`` (settings by name), ``updates`` and ``evaluations`` (columns by name, with
        ``step`` and ``tokens``), ``counters`` (groups: seen, kept, and dropped by reason), ``findings``, ``notes``.
    """
    config, *notes = _read_config(folder / "config.json")
    updates, harm = whole_lines(folder / "metrics.jsonl")
    evaluations, other = whole_lines(folder / "evaluations.jsonl")
    return {
        "label": _label(config, folder),
        "env": config.get("env"),
        "about": _about(config),
        "updates": _columns(updates, METRICS),
        "evaluations": _columns(evaluations, _EVALUATED) | {"interval": [_pair(one) for one in evaluations]},
        "counters": _counters(updates),
        "findings": [asdict(finding) for finding in _findings(updates, evaluations)],
        "notes": [*notes, *harm, *other],
    }


def whole_lines(path: Path) -> tuple[list[Record], list[str]]:
    """Return the lines of a log up to the first that is no object with a step, and what is wrong with that one."""
    if not path.is_file():
        return [], [f"{path.name}: not written yet"]
    records: list[Record] = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            record = json.loads(line)
            if type(record["step"]) is not int:
                raise ValueError
        except (ValueError, LookupError, TypeError, RecursionError):
            return records, [f"{path.name}, line {number}: not whole; shown up to the line before"]
        records.append(record)
    return records, []


def _read_config(path: Path) -> tuple[Any, ...]:
    """Return a run's settings, and where they cannot be read a note that says so."""
    try:
        config = json.loads(path.read_bytes())
        return (config,) if isinstance(config, dict) else ({}, f"{path.name}: not the configuration of a run")
    except (OSError, ValueError, RecursionError) as error:
        return {}, f"{path.name}: cannot be read ({error})"


def _label(config: Record, folder: Path) -> str:
    try:
        return label_of(TrainConfig.from_json(json.dumps(config)))
    except ConfigError:
        return folder.name


def _about(config: Record) -> dict[str, str]:
    """Return the settings by their names on the command line, as text."""
    sections = [(config, "")] + [(part, f"{name}.") for name, part in config.items() if isinstance(part, dict)]
    return {
        f"{prefix}{name}": value if isinstance(value, str) else json.dumps(value)
        for section, prefix in sections
        for name, value in section.items()
        if not isinstance(value, dict)
    }


def _number(value: object) -> float | int | None:
    """Return a number that JSON can hold, None for anything else."""
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)
    return value if known else None  # type: ignore[return-value]


def _columns(records: Sequence[Record], names: Sequence[str]) -> dict[str, list[Any]]:
    columns = {name: [_number(record.get(name)) for record in records] for name in names}
    ends = {"step": [record["step"] for record in records]}
    return {**ends, "tokens": [_number(record.get("sampled_tokens_total")) for record in records], **columns}


def _pair(record: Record) -> list[float | int | None] | None:
    interval = record.get("interval")
    return list(map(_number, interval)) if isinstance(interval, list) and len(interval) == 2 else None


def _counters(updates: Sequence[Record]) -> dict[str, Any]:
    """Return how many groups were sampled, learned from, and dropped for which reason."""
    dropped: Counter[str] = Counter()
    for record in updates:
        reasons = record.get("dropped")
        for reason, count in reasons.items() if isinstance(reasons, Mapping) else ():
            dropped[reason] += int(_number(count) or 0)
    seen, kept = (sum(int(_number(record.get(name)) or 0) for record in updates) for name in ("groups", "groups_kept"))
    return {"groups": seen, "kept": kept, "dropped": dict(dropped.most_common())}


def _findings(updates: Sequence[Record], evaluations: Sequence[Record]) -> list[Finding]:
    numbers = [{name: _number(value) for name, value in record.items()} for record in updates]
    bar = _number(evaluations[0].get("random")) if evaluations else None
    found = at_random(numbers, bar)
    return [*diagnose(numbers), *([found] if found else [])]
