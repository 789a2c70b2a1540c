"""Analysis: from finished runs to the rows of a table, over paired seeds; from the result file's runs alone."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from benchmarks.papers.plan import Method, Scale, Setting, Table
from benchmarks.pay.analysis import interval

Row = dict[str, Any]
COSTS = ("model_calls", "env_steps", "restores", "optimizer_steps", "groups", "groups_kept", "seconds")
# Shares of the final success that count as a first success and as convergence.
FIRST, CONVERGED = 0.8, 0.95


def rows_of(table: Table, scale: Scale, runs: Sequence[Row]) -> list[Row]:
    """Return a row per setting and method, with the paper's numbers where nothing was run.

    Args:
        table: What is compared.
        scale: At which size.
        runs: As the result file holds them.
    """
    return [row for setting in table.settings[scale] for row in _rows_in(table, scale, setting, runs)]


def _rows_in(table: Table, scale: Scale, setting: Setting, runs: Sequence[Row]) -> Iterator[Row]:
    here = [run for run in runs if run["setting"] == setting.name]
    methods = table.methods_at(scale)
    first = next((method.name for method in methods if method.trains), "")
    for method in methods:
        mine = [run for run in here if run["method"] == (method.name if method.trains else first)]
        row: Row = {"setting": setting.name, "method": method.name, "paper": paper_of(table, setting, method)}
        if mine:
            row |= _results(mine, ends=method.trains)
        if mine and method.trains:
            theirs = {run["seed"]: run for run in here if run["method"] == table.control}
            row |= _costs(mine) | _times(mine) | _beside(mine, {} if method.name == table.control else theirs)
        yield row


def paper_of(table: Table, setting: Setting, method: Method) -> dict[str, Mapping[str, float]]:
    """Return the paper's numbers for a row, by model."""
    known = table.paper.get(setting.published or setting.world, {})
    found = {model: known.get(model, {}).get(method.name, {}) for model in setting.models}
    return {model: numbers for model, numbers in found.items() if numbers}


def _results(runs: Sequence[Row], *, ends: bool) -> Row:
    """Return how the held-out instances were played after training, or before it."""
    points = [run["points"][-1 if ends else 0] for run in runs]
    return {
        "seeds": len(runs),
        "success": interval([100 * point["success"] for point in points]),
        "success_by_seed": [round(100 * point["success"], 1) for point in points],
        "reward": interval([point["total_reward"] for point in points]),
        **{name: round(fmean(point[name] for point in points), 2) for name in ("response_length", "turns")},
        **{name: percent(points[0][name]) for name in ("random", "optimal")},
    }


def percent(share: float | None) -> float | None:
    """Return a share in per cent; None for one that is not known."""
    return None if share is None else round(100 * share, 1)


def _costs(runs: Sequence[Row]) -> Row:
    tokens = ("sampled_tokens", "prompt_tokens")
    return {
        **{name: round(fmean(run["points"][-1][name] for run in runs)) for name in tokens},
        **{name: round(fmean(run[name] for run in runs)) for name in COSTS},
    }


def _times(runs: Sequence[Row]) -> Row:
    """Return updates and seconds to the first evaluation with a share of the final success, means over seeds."""
    found: Row = {}
    for name, share in (("to_80", FIRST), ("to_convergence", CONVERGED)):
        reached = [reached_at(run["points"], share) for run in runs]
        known = [point for point in reached if point is not None]
        for measure in ("step", "seconds"):
            found[f"{measure}_{name}"] = round(fmean(point[measure] for point in known), 1) if known else None
    return found


def reached_at(points: Sequence[Row], share: float) -> Row | None:
    """Return the first evaluation with a share of the final success; None where that is 0."""
    final = points[-1]["success"]
    return next((point for point in points if point["success"] >= share * final), None) if final else None


def _beside(runs: Sequence[Row], control: Mapping[int, Row]) -> Row:
    """Return the difference to the control's evaluation at the nearest number of sampled tokens, paired by seed."""
    pairs = []
    for run in runs:
        if run["seed"] in control:
            end = run["points"][-1]
            pairs.append((end, nearest(control[run["seed"]]["points"], end["sampled_tokens"])))
    if not pairs:
        return {}
    return {
        "pairs": len(pairs),
        "difference": interval([100 * (ours["success"] - theirs["success"]) for ours, theirs in pairs]),
        "control_success": round(fmean(100 * theirs["success"] for _, theirs in pairs), 2),
        "control_sampled_tokens": round(fmean(theirs["sampled_tokens"] for _, theirs in pairs)),
    }


def nearest(points: Sequence[Row], tokens: int) -> Row:
    """Return the evaluation nearest to a number of sampled tokens."""
    return min(points, key=lambda point: abs(point["sampled_tokens"] - tokens))
