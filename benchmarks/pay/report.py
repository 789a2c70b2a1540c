"""From the rows of the result file to paired differences, the law, the figure and the tables of the page.

Everything here is computed from benchmarks/results/does_search_pay.json; nothing reads a run's folder.
"""

from collections.abc import Mapping, Sequence
from math import isnan, nan
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.measure import RESULTS, difference_words, table_of, write_between_marks
from benchmarks.pay.plan import EASIER, FILTERING, LEVIN, TSR_PLUS, Contrast
from tsr_gym.agents.episodes.intervals import Interval, poisson, pooled, student
from tsr_gym.agents.probing.rankings import spearman

Row = dict[str, Any]
ENDS = ("points", "low", "high")
# Least number of cells for which a rank correlation is reported, and of base models for its interval.
FEWEST = 5
FEWEST_BASES = 4
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
    bounds = student(values) or Interval(fmean(values), nan, nan)
    return {name: None if isnan(end) else round(end, 2) for name, end in zip(ENDS, bounds, strict=True)}


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
    result: Row = {
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
        result[name] = interval([success_at(ours[seed], share) - success_at(theirs[seed], share) for seed in seeds])
    result |= result.pop("at_end")
    for price in PRICES:
        result[f"at_equal_{price}"] = interval([equal_difference(ours[seed], theirs[seed], price) for seed in seeds])
    for prefix, side in (("", ours), ("control_", theirs)):
        rows = [side[seed] for seed in seeds]
        ends = [success_at(row, 1.0) for row in rows]
        result[f"{prefix}success"] = round(fmean(ends), 2)
        result[f"{prefix}success_sd"] = round(stdev(ends), 2)
        result[f"{prefix}success_by_seed"] = [round(end, 1) for end in ends]
        for name in ("sampled_tokens", "prompt_tokens"):
            result[f"{prefix}{name}"] = round(fmean(row["points"][-1][name] for row in rows))
        for name in ("env_steps", "optimizer_steps", "seconds"):
            result[f"{prefix}{name}"] = round(fmean(row[name] for row in rows))
    return result | _prices(contrast, probes)


def _prices(contrast: Contrast, probes: Sequence[Row]) -> Row:
    """Return the probe's tokens per success of both sides, and their ratio; None where a side's search was not probed.

    Where nothing succeeded, the price is unknown; the ratio then counts half a success.
    """
    place = (contrast.setting.world, contrast.setting.name, contrast.base)
    here = [probe for probe in probes if (probe["world"], probe["setting"], probe["base"]) == place]
    other, searched = (
        next((row for probe in here for row in probe["rows"] if (row["search"], row["score"]) == wanted), None)
        for wanted in (contrast.control.search, contrast.method.search)
    )
    if other is None or searched is None:
        return {"tokens_per_success": None, "control_tokens_per_success": None, "ratio": None}
    return {
        "tokens_per_success": searched["tokens_per_success"],
        "tokens_per_success_interval": _price_interval(searched),
        "control_tokens_per_success": other["tokens_per_success"],
        "control_tokens_per_success_interval": _price_interval(other),
        "ratio": round(_price(other) / _price(searched), 3),
    }


def _price_interval(row: Mapping[str, Any]) -> list[int | None]:
    """Return the ends between which a price lies at 95 %, for a Poisson count of successes; None without success.

    The episodes count as independent. The probes' rows hold bootstraps over instances, which have no upper end where
    one to three episodes succeeded.
    """
    fewest, most = poisson(round(row["success"] * row["episodes"]))
    return [round(row["sampled_tokens"] / most), round(row["sampled_tokens"] / fewest) if fewest else None]


def _price(row: Mapping[str, Any]) -> float:
    return float(row["sampled_tokens"] / max(0.5, row["success"] * row["episodes"]))


def law(differences: Sequence[Row]) -> Row | None:
    """Return the rank correlation of the probe's ratio and the difference after training.

    Cells (world, setting, base model) count once, with the first method listed. They share base models, so intervals
    are bootstraps over base models. Worlds differ in more than their ratio: the correlation is given over all cells,
    within each world, and over all worlds but one.
    """
    cells: dict[tuple[str, ...], Row] = {}
    for row in differences:
        if row.get("ratio") is not None:
            cells.setdefault((row["world"], row["setting"], row["base"]), row)
    rows = list(cells.values())
    whole = _correlation(rows)
    if whole is None:
        return None
    worlds = sorted({row["world"] for row in rows})
    within = {world: _correlation([row for row in rows if row["world"] == world]) for world in worlds}
    without = {world: _correlation([row for row in rows if row["world"] != world]) for world in worlds}
    return {
        "worlds": worlds,
        **whole,
        "within": {world: numbers for world, numbers in within.items() if numbers is not None},
        "without": {world: numbers for world, numbers in without.items() if numbers is not None},
        "clear": len(clear := [row for row in rows if row["low"] is not None and row["low"] * row["high"] > 0]),
        "right": sum((row["ratio"] > 1) == (row["points"] > 0) for row in clear),
        "rows": [
            {name: row[name] for name in ("world", "setting", "base", "ratio", "points", "low", "high")} for row in rows
        ],
    }


def _correlation(rows: Sequence[Row]) -> Row | None:
    """Return numbers of cells and base models, and their rank correlation; None for fewer than `FEWEST` cells.

    Fewer than `FEWEST_BASES` base models have no interval.
    """
    ratios, points, bases = ([row[name] for row in rows] for name in ("ratio", "points", "base"))
    estimate = pooled(spearman, ratios, points, bases) if len(rows) >= FEWEST else None
    if estimate is None:
        return None
    few = len(set(bases)) < FEWEST_BASES
    ends = {"low": None, "high": None} if few else {"low": round(estimate.low, 2), "high": round(estimate.high, 2)}
    return {"cells": len(rows), "bases": len(set(bases)), "rank_correlation": round(estimate.mean, 2)} | ends


COLOURS = {"tsr+": "C0", "filtering": "C1", "levin and its loss": "C3"}
COLUMNS = 3


def draw(result: Row, out: Path) -> None:
    """Draw a panel per base model of the headline, a thin line per run, and a panel of the law; save a PNG."""
    headline = [row for row in result["differences"] if row["part"] == "headline"]
    high = -(-(len(headline) + 1) // COLUMNS)
    figure = Figure(figsize=(4 * COLUMNS, 3.6 * high), layout="constrained")
    panels = figure.subplots(high, COLUMNS, squeeze=False).flatten()
    for panel, row in zip(panels, headline, strict=False):
        _curves(panel, row, result["runs"])
        panel.sharey(panels[0])
    panels[0].set_ylabel("held-out success, %")
    panels[0].legend(fontsize=8)
    _law(panels[len(headline)], (result["law"] or {"rows": []})["rows"])
    for unused in panels[len(headline) + 1 :]:
        unused.remove()
    figure.savefig(out, dpi=140)


def _curves(panel: Any, row: Row, runs: Sequence[Row]) -> None:
    for method, colour in COLOURS.items():
        mine = [
            run
            for run in runs
            if all(run[name] == row[name] for name in ("world", "setting", "base")) and run["method"] == method
        ]
        curves = [
            (
                [point["sampled_tokens"] / 1000 for point in run["points"]],
                [100 * point["success"] for point in run["points"]],
            )
            for run in mine
        ]
        for curve in curves:
            panel.plot(*curve, color=colour, alpha=0.25, linewidth=1)
        mean = [[fmean(values) for values in zip(*(curve[axis] for curve in curves), strict=False)] for axis in (0, 1)]
        if curves:
            panel.plot(*mean, color=colour, linewidth=2, label=method)
    panel.set_title(f"{row['base']}: tsr+ {difference_words(row)}", fontsize=10)
    panel.set_xlabel("sampled tokens, thousands")
    panel.grid(alpha=0.3)


def _law(panel: Any, rows: Sequence[Row]) -> None:
    for number, world in enumerate(sorted({row["world"] for row in rows})):
        mine = [row for row in rows if row["world"] == world]
        panel.plot(
            [row["ratio"] for row in mine], [row["points"] for row in mine], "o", color=f"C{number + 2}", label=world
        )
    panel.axhline(0, color="grey", linewidth=1)
    panel.set_xscale("log")
    panel.set_xlabel("tokens per success before training:\nby plain play / by search")
    panel.set_ylabel("points that search gained")
    panel.grid(alpha=0.3)
    if rows:
        panel.legend(fontsize=8)


PLAIN = (FILTERING.name, EASIER.name)
ROOT = Path(__file__).resolve().parents[2]
PAGE, README = ROOT / "docs" / "does_search_pay.md", ROOT / "README.md"
COMMANDS = RESULTS / "does_search_pay_commands.txt"


def write_tables(page: str, result: Row) -> str:
    """Return a page, or the README, whose tables are those of a result."""
    tables = {
        "cells": cells(result),
        "bases": bases(result["bases"]),
        "equal": equal(result, ("headline", "unguided")),
        "searches": differences(result, ("unguided",), TSR_PLUS.name),
        "easier": differences(result, ("easier",)),
        "ablation": differences(result, ("estimate", "ablation", "by levin", "moments")),
        "law": law_table(result["law"]),
        "headline": headline(result["differences"]),
        "losses": losses(result["differences"]),
        "forecast": forecast(result["law"]),
    }
    return write_between_marks(page, tables)


def headline(rows: Sequence[Row]) -> str:
    """Return the README's table: a row per base model of rooms of 10 to 16 moves."""
    plain = [row for row in rows if row["control"] == FILTERING.name]
    guided = {row["base"]: row for row in plain if row["part"] == "headline"}
    levin = {row["base"]: row for row in plain if row["part"] == "unguided"}
    table = []
    for base, row in guided.items():
        pair = (row, levin[base])
        prices = ", ".join(price_words(other) for other in pair)
        steps = (row["control_optimizer_steps"], *(other["optimizer_steps"] for other in pair))
        table.append(
            (
                base,
                f"{price_words(row, 'control_')}; {prices}",
                f"{row['control_success']:.1f} ± {row['control_success_sd']:.1f}",
                *map(_ended, pair),
                *(f"**{difference_words(other)}**" for other in pair),
                ", ".join(map(str, steps)),
            )
        )
    head = ("base model", "tokens per success before: plain; `tsr+`, `levin`", "filtering", "`tsr+`", "`levin`")
    return table_of((*head, "`tsr+` - filtering", "`levin` - filtering", "steps"), table)


def price_words(row: Row, side: str = "") -> str:
    """Return the tokens per success of a side with their interval, in thousands and two digits."""
    price, *ends = (
        f"{float(f'{number:.2g}') / 1000:,g}k"
        for number in (row[f"{side}tokens_per_success"], *row[f"{side}tokens_per_success_interval"])
    )
    return f"{price} [{', '.join(ends)}]"


LOSSES = {
    ("webshop", "compact"): "shop of 1,000 products: a success costs about as much by search as without",
    ("retrieval_qa", "compact"): "questions of one or two hops: the same",
    ("retrieval_qa", "2 to 4 hops"): "questions of two to four hops: the same",
    ("webshop", "2 options and more"): "a shop where plain play succeeds once in 3,840 episodes: search wins",
}


def losses(rows: Sequence[Row]) -> str:
    """Return the README's second table: worlds of words, where search mostly loses."""
    first: dict[tuple[str, str], Row] = {}
    for row in rows:
        first.setdefault((row["world"], row["setting"]), row)
    table = []
    for place, words in LOSSES.items():
        row = first[place]
        steps = f"{row['control_optimizer_steps']}, {row['optimizer_steps']}"
        table.append((words, f"**{difference_words(row)}**", str(row["seeds"]), steps))
    return table_of(("where", "search - filtering", "pairs", "steps"), table)


def forecast(correlation: Row) -> str:
    """Return the README's sentences on what the probe's ratio is worth."""
    rooms, others = correlation["within"]["sokoban"], correlation["without"]["sokoban"]
    ends = f"[{rooms['low']:.2f}, {rooms['high']:.2f}]"
    return (
        f"Over {rooms['cells']} cells within Sokoban its ratio orders the gains, by length and rarity of success:\n"
        f"rank correlation {rooms['rank_correlation']:.2f}, interval over base models {ends}. "
        f"Over {others['cells']} cells elsewhere it is {others['rank_correlation']:.2f}:\n"
        "the forecast decides whether to search, and not how much it pays."
    )


def cells(result: Row) -> str:
    """Return a row per setting and base model: forecast, success of control and searches, differences, steps, pairs."""
    places: dict[tuple[str, ...], list[Row]] = {}
    for row in result["differences"]:
        if row["control"] == FILTERING.name and row["part"] not in ("ablation", "by levin", "moments"):
            places.setdefault((row["world"], row["setting"], row["base"]), []).append(row)
    rows = []
    for place, here in places.items():
        guided = next((row for row in here if row["method"] != LEVIN.name), None)
        levin = next((row for row in here if row["method"] == LEVIN.name), None)
        first = guided or here[0]
        steps = [first["control_optimizer_steps"], *(row["optimizer_steps"] for row in (guided, levin) if row)]
        rows.append(
            (
                ", ".join(place),
                "" if first["ratio"] is None else f"{first['ratio']:.1f}",
                f"{first['control_success']:.1f} ± {first['control_success_sd']:.1f}",
                *(_ended(row) for row in (guided, levin)),
                *(f"**{difference_words(row)}**" if row else "" for row in (guided, levin)),
                ", ".join(map(str, steps)),
                f"{first['seeds']}",
            )
        )
    head = ("setting, base", "forecast", "control %", "tsr+ %", "levin %", "tsr+ - control", "levin - control", "steps")
    return table_of((*head, "pairs"), rows)


def _ended(row: Row | None) -> str:
    return f"{row['success']:.1f} ± {row['success_sd']:.1f}" if row else ""


def differences(result: Row, parts: Sequence[str], control: str | None = None) -> str:
    """Return a row per contrast of some parts; with `control`, of those against it."""
    rows = [
        (
            f"{row['world']}, {row['setting']}, {row['base']}",
            row["method"] if row["control"] in PLAIN else f"{row['method']}, against {row['control']}",
            f"{row['success']:.1f} ± {row['success_sd']:.1f}",
            f"{row['control_success']:.1f} ± {row['control_success_sd']:.1f}",
            f"**{difference_words(row)}**",
            difference_words(row["at_half"]),
            difference_words(row["at_three_quarters"]),
            str(row["seeds"]),
            f"{row['sampled_tokens'] / 1000:.0f}k, {row['control_sampled_tokens'] / 1000:.0f}k",
            f"{row['prompt_tokens'] / 1e6:.2f}M, {row['control_prompt_tokens'] / 1e6:.2f}M",
            f"{row['optimizer_steps']}, {row['control_optimizer_steps']}",
        )
        for row in result["differences"]
        if row["part"] in parts and control in (None, row["control"])
    ]
    return table_of(
        (
            *("where", "method", "success %", "control %", "difference", "at half the tokens", "at three quarters"),
            *("pairs", "sampled", "prompt", "steps"),
        ),
        rows,
    )


def equal(result: Row, parts: Sequence[str]) -> str:
    """Return the differences of some parts at equal sampled tokens, equal prompt tokens and equal seconds."""
    return table_of(
        ("where", "method", "at equal sampled tokens", "at equal prompt tokens", "at equal seconds", "pairs"),
        [
            (
                f"{row['world']}, {row['setting']}, {row['base']}",
                row["method"],
                difference_words(row),
                *(difference_words(row[name]) for name in ("at_equal_prompt_tokens", "at_equal_seconds")),
                str(row["seeds"]),
            )
            for row in result["differences"]
            if row["part"] in parts and row["control"] == FILTERING.name
        ],
    )


def law_table(correlation: Row | None) -> str:
    """Return a row per choice of cells: all, one world alone, all worlds but one."""
    if correlation is None:
        return "Too few cells have been run."
    choices = [("all worlds", correlation)]
    choices += [(f"{world} alone", numbers) for world, numbers in correlation["within"].items()]
    choices += [(f"all but {world}", numbers) for world, numbers in correlation["without"].items()]
    rows = [
        (
            name,
            str(numbers["cells"]),
            str(numbers["bases"]),
            f"{numbers['rank_correlation']:.2f}",
            "too few bases" if numbers["low"] is None else f"{numbers['low']:.2f} to {numbers['high']:.2f}",
        )
        for name, numbers in choices
    ]
    head = ("cells of", "cells", "base models", "rank correlation", "95 % interval over base models")
    right, clear = (correlation[name] for name in ("right", "clear"))
    return (
        f"{table_of(head, rows)}\n\nThe forecast has the sign of {right} of {clear} cells whose interval is clear of 0."
    )


def bases(rows: Sequence[Row]) -> str:
    """Return each base model's success in % before its skill was hidden, and after, in one line."""
    return "; ".join(f"{row['base']} {100 * row['success_skilled']:.1f}, {100 * row['success']:.1f}" for row in rows)


def commands(bases: Sequence[Row], runs: Sequence[Row]) -> str:
    """Return the command line of each base model, and of each method in each setting, with the first seed."""
    first: dict[tuple[str, ...], str] = {(row["base"],): f"# {row['base']}\n{row['command']}" for row in bases}
    for run in runs:
        first.setdefault((run["world"], run["setting"], run["method"]), f"# {run['method']}\n{run['command']}")
    return "\n".join(first.values()) + "\n"
