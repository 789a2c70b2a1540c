"""Analysis: paired differences, and whether tokens per success foretell them; from the result file's rows alone."""

from collections.abc import Mapping, Sequence
from math import isnan, nan
from statistics import fmean, stdev
from typing import Any

import numpy as np

from benchmarks.pay.plan import Contrast
from tsr_gym.agents.episodes.intervals import Interval, pooled, student
from tsr_gym.agents.probing.rankings import spearman

Row = dict[str, Any]
ENDS = ("points", "low", "high")
# Settings below which a rank correlation says nothing.
FEWEST = 8
SHARES = {"at_half": 0.5, "at_three_quarters": 0.75, "at_end": 1.0}
# What else than sampled tokens both sides of a pair can be given equally.
PRICES = ("prompt_tokens", "seconds")


def success_at(row: Row, share: float) -> float:
    """Return success in per cent at the evaluation nearest to a share of a run's sampled tokens."""
    whole = row["points"][-1]["sampled_tokens"]
    nearest = min(row["points"], key=lambda point: abs(point["sampled_tokens"] - share * whole))
    return 100.0 * float(nearest["success"])


def equal_difference(ours: Row, theirs: Row, price: str) -> float:
    """Return the difference where both have spent as much as the cheaper of two runs did in all.

    Between evaluations success is taken to lie on a line.
    """
    spent = min(row["points"][-1][price] for row in (ours, theirs))
    mine, other = (
        np.interp(spent, [point[price] for point in row["points"]], [point["success"] for point in row["points"]])
        for row in (ours, theirs)
    )
    return 100.0 * float(mine - other)


def interval(values: Sequence[float]) -> Row:
    """Return mean and 95 % interval of Student's t over pairs; fewer than three have none."""
    found = student(values) or Interval(fmean(values), nan, nan)
    return {name: None if isnan(end) else round(end, 2) for name, end in zip(ENDS, found, strict=True)}


def difference(contrast: Contrast, runs: Sequence[Row], probes: Sequence[Row]) -> Row | None:
    """Return the row of a contrast over the seeds that both sides have finished; None where there are not two."""
    setting = contrast.setting
    place = (setting.world, setting.name, contrast.base)
    here = [run for run in runs if (run["world"], run["setting"], run["base"]) == place]
    ours = {run["seed"]: run for run in here if run["method"] == contrast.method.name}
    theirs = {run["seed"]: run for run in here if run["method"] == contrast.control.name}
    seeds = sorted(ours.keys() & theirs.keys())[: contrast.seeds]
    if len(seeds) < 2:
        return None
    found: Row = {
        "part": contrast.part,
        "world": setting.world,
        "setting": setting.name,
        "base": contrast.base,
        "method": contrast.method.name,
        "control": contrast.control.name,
        "guide": contrast.method.guide,
        "seeds": len(seeds),
    }
    for name, share in SHARES.items():
        found[name] = interval([success_at(ours[seed], share) - success_at(theirs[seed], share) for seed in seeds])
    found |= found.pop("at_end")
    for price in PRICES:
        found[f"at_equal_{price}"] = interval([equal_difference(ours[seed], theirs[seed], price) for seed in seeds])
    for prefix, side in (("", ours), ("control_", theirs)):
        rows = [side[seed] for seed in seeds]
        ends = [success_at(row, 1.0) for row in rows]
        found[f"{prefix}success"] = round(fmean(ends), 2)
        found[f"{prefix}success_sd"] = round(stdev(ends), 2)
        found[f"{prefix}success_by_seed"] = [round(end, 1) for end in ends]
        for name in ("sampled_tokens", "prompt_tokens"):
            found[f"{prefix}{name}"] = round(fmean(row["points"][-1][name] for row in rows))
        for name in ("env_steps", "optimizer_steps", "seconds"):
            found[f"{prefix}{name}"] = round(fmean(row[name] for row in rows))
    return found | _prices(contrast, probes)


def _prices(contrast: Contrast, probes: Sequence[Row]) -> Row:
    """Return the probe's tokens per success of both sides, and their ratio.

    Where nothing succeeded, the price is unknown; the ratio then counts half a success.
    """
    place = (contrast.setting.world, contrast.setting.name, contrast.base)
    here = [probe for probe in probes if (probe["world"], probe["setting"], probe["base"]) == place]
    other, searched = (
        next((row for probe in here for row in probe["rows"] if (row["search"], row["score"]) == wanted), None)
        for wanted in (contrast.control.probe or ("naive", "reward"), contrast.probe)
    )
    if other is None or searched is None:
        return {"tokens_per_success": None, "control_tokens_per_success": None, "ratio": None}
    return {
        "tokens_per_success": searched["tokens_per_success"],
        "control_tokens_per_success": other["tokens_per_success"],
        "ratio": round(_price(other) / _price(searched), 3),
    }


def _price(row: Mapping[str, Any]) -> float:
    return float(row["sampled_tokens"] / max(0.5, row["success"] * row["episodes"]))


def law(differences: Sequence[Row]) -> Row | None:
    """Return the rank correlation of the probe's ratio and the difference after training, over settings.

    The interval is a bootstrap over settings. Settings that share a base model hang together, which it does not know.
    """
    rows = [row for row in differences if row.get("ratio") is not None]
    found = pooled(spearman, [row["ratio"] for row in rows], [row["points"] for row in rows], range(len(rows)))
    if len(rows) < FEWEST or found is None:
        return None
    return {
        "settings": len(rows),
        "worlds": sorted({row["world"] for row in rows}),
        "rank_correlation": round(found.mean, 3),
        "low": round(found.low, 3),
        "high": round(found.high, 3),
        "rows": [
            {name: row[name] for name in ("world", "setting", "base", "ratio", "points", "low", "high")} for row in rows
        ],
    }
