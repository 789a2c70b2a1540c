"""Report: tables that compare runs over seeds, with intervals, costs and findings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from tsr_gym.agents.episodes.intervals import student
from tsr_gym.agents.reports.diagnosis import Finding, diagnose
from tsr_gym.agents.reports.methods import (
    COSTS,
    PARTS,
    Cost,
    Difference,
    Run,
    differences,
    group_cost,
    load_comparable,
    runs_by_method,
)
from tsr_gym.tree import Meter


@dataclass(frozen=True, slots=True)
class Table:
    """A table.

    Attributes:
        title: Its title.
        caption: How to read it.
        columns: Names of the columns; the first column names the row.
        rows: Cells, one per column.
    """

    title: str
    caption: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Report:
    """A comparison of methods.

    Attributes:
        ends: Success of each method at the start and at the end, and its costs.
        by_updates: Success after some numbers of updates.
        by_tokens: Success after some numbers of sampled tokens.
        runs: The runs.
        pairs: Gain of each method over the control, seed by seed; without rows where no seeds are equal.
        differences: The same as numbers.
        findings: Symptoms of collapse or of waste, by the run's folder; runs without any are left out.
        searched: The share of groups that were searched, in words, by the run's folder; only of runs that play first.
        unfinished: Progress of the runs that have not ended, by folder; they are in no final success and no pair.
    """

    ends: Table
    by_updates: Table
    by_tokens: Table
    runs: Table
    pairs: Table
    differences: list[Difference]
    findings: dict[str, list[Finding]]
    searched: dict[str, str]
    unfinished: dict[str, str]


def summarise_runs(
    folders: Sequence[Path],
    *,
    against: str | None = None,
    equal: Cost = "sampled_tokens",
    watch: Meter = lambda stage, done, total: None,
) -> Report:
    """Return the tables of some runs, with methods in the order of their first runs.

    Runs whose settings differ only in the seed are one method, named by their label. Where runs with the same label
    differ in other settings, these are added to the name.

    Args:
        folders: Of the runs.
        against: Name or label of the method that the others are paired with; None for the first one.
        equal: The cost at which pairs are compared.
        watch: See `Meter`; counts the runs that were read.

    Raises:
        CheckpointError: A folder holds no evaluated run, or a run does not record the equal cost.
        ConfigError: There is no folder, two runs of a method have the same seed, or the runs were evaluated on
            different instances, or there is no such control.
    """
    runs = load_comparable(folders, watch)
    methods = runs_by_method(runs)
    config, start = runs[0].config, runs[0].evaluations[0]
    bars = ", ".join(f"{name} {100 * start[name]:.1f} %" for name in ("random", "optimal") if start[name] is not None)
    unfinished = {str(run.folder): _progress(run) for run in runs if not run.is_finished}
    fewest = min(sum(run.is_finished for run in members) for members in methods.values())
    caption = f"On the same held-out instances: {bars or 'bars not known'}. Intervals: 95 % over seeds (Student's t)."
    if fewest < 8:
        caption += f" {fewest} {'seed does' if fewest == 1 else 'seeds do'} not rank methods; 8 or more may."
    title = (
        f"{config.env}, preset {config.task.preset}, {start['instances']} held-out instances, no search at test time"
    )
    costs = ("tokens", "s/update", *[f"{part} %" for part in PARTS])
    columns = ("method", "per instance", "seeds", "base %", "final %", "gain", "worst gain", *costs)
    paired = differences(methods, against=against, equal=equal)
    findings = {str(run.folder): diagnose(run.updates) for run in runs}
    searched = {str(run.folder): searched_groups(run.updates) for run in runs}
    return Report(
        Table(title, caption, columns, [_row(name, members) for name, members in methods.items()]),
        _over("step", "updates", methods),
        _over("sampled_tokens_total", "sampled tokens", methods),
        _each(methods),
        _pairs(paired, equal),
        paired,
        {folder: symptoms for folder, symptoms in findings.items() if symptoms},
        {folder: words for folder, words in searched.items() if words},
        unfinished,
    )


def searched_groups(updates: Sequence[Mapping[str, Any]]) -> str:
    """Return how many groups a run searched, before and after the update at which that changed; "" if not recorded.

    The change is where the sum of the shares so far is furthest from a straight line (CUSUM). It is named only if the
    shares before and after differ by a factor of two.

    >>> searched_groups([{"step": step, "share_search": 0.5 if step < 3 else 0.0} for step in range(1, 9)])
    'searched in 50 % of groups until update 2, then not'
    """
    rows = [(line["step"], line["share_search"]) for line in updates if line.get("share_search") is not None]
    if not rows:
        return ""
    shares = np.array([share for _, share in rows])
    until = int(np.abs(np.cumsum(shares - shares.mean())).argmax()) + 1
    before, after = shares[:until].mean(), shares[until:].mean() if until < len(rows) else shares.mean()
    if max(before, after) <= 2 * min(before, after):
        return f"searched in {100 * shares.mean():.0f} % of groups"
    later = f"in {100 * after:.0f} %" if after >= 0.005 else "not"
    return f"searched in {100 * before:.0f} % of groups until update {rows[until - 1][0]:,}, then {later}"


def _progress(run: Run) -> str:
    return f"unfinished, {run.evaluations[-1]['step']:,} of {run.config.run.updates:,} updates evaluated"


def _each(methods: Mapping[str, Sequence[Run]]) -> Table:
    rows: list[tuple[str, ...]] = [
        (
            str(run.folder),
            name,
            str(run.config.run.seed),
            f"{run.evaluations[-1]['step']:,}{'' if run.is_finished else ' (unfinished)'}",
            *[f"{100 * run.evaluations[place]['success']:.1f}" for place in (0, -1)],
        )
        for name, members in methods.items()
        for run in members
    ]
    caption = "Updates and success at the last evaluation."
    return Table("each run", caption, ("run", "method", "seed", "updates", "base %", "final %"), rows)


def _over(key: str, name: str, methods: Mapping[str, Sequence[Run]]) -> Table:
    """Return success at some points of an axis, interpolated between evaluations, where all runs reached them."""
    ends = [run.evaluations[-1][key] for members in methods.values() for run in members]
    points = sorted({max(1, max(ends) * share // 16) for share in (1, 2, 4, 8, 16)})
    rows = []
    for label, members in methods.items():
        cells = []
        for point in points:
            reached = all(run.evaluations[-1][key] + _slack(run, key) >= point for run in members)
            cells.append(_interval([float(np.interp(point, *_curve(run, key))) for run in members]) if reached else "-")
        rows.append((label, *cells))
    title = f"held-out success, %, by {name}"
    return Table(
        title,
        "Interpolated between evaluations; - where not all runs came within a group of the point.",
        ("method", *[f"{point:,}" for point in points]),
        rows,
    )


def _slack(run: Run, key: str) -> float:
    """Return the tolerance with which a run reaches a point: runs that end by their tokens can end a group apart."""
    return group_cost(run, "sampled_tokens") if key == "sampled_tokens_total" else 0.0


def _pairs(gains: Sequence[Difference], equal: Cost) -> Table:
    words = equal.replace("_", " ")
    caption = (
        f"1/2, 3/4, 1: at equal {words}, as shares of the cost of the shorter run of each pair, interpolated between "
        "evaluations; a run that ended within a group of that is read at its end. Success over distinct instances."
    )
    if any(gain.at == "end" for gain in gains):
        caption += " end: at the ends of runs, which are further apart than a group."
    by_instance = bool(gains) and all(gain.instances > 1 for gain in gains)
    caption += (
        f" Intervals: 95 % over {'seeds and instances' if by_instance else 'seeds'} (Student's t), from 3 pairs on."
    )
    names = ("method", "against", "at", "pairs", "%", "control %", "points", "95 %")
    columns = (*names, *(cost.replace("_", " ") for cost in COSTS))
    rows: list[tuple[str, ...]] = [
        (
            *(gain.method, gain.control, gain.at, str(len(gain.seeds))),
            *(f"{gain.success:.1f}", f"{gain.control_success:.1f}"),
            *(f"{gain.points:+.1f}", "-" if gain.low is None else f"{gain.low:+.1f} to {gain.high:+.1f}"),
            *(f"{_amount(gain.spent[cost])} / {_amount(gain.control_spent[cost])}" for cost in COSTS),
        )
        for gain in gains
    ]
    return Table(f"pairs of equal seeds, at equal {words}", caption, columns, rows)


def _amount(number: float | None) -> str:
    """Return an amount as a cell.

    >>> _amount(1_040_000), _amount(121_437), _amount(30), _amount(None)
    ('1.04M', '121k', '30', '-')
    """
    if number is None:
        return "-"
    return f"{number / 1e6:.2f}M" if number >= 1e6 else f"{number / 1e3:.0f}k" if number >= 1e4 else f"{number:.0f}"


def _row(label: str, runs: Sequence[Run]) -> tuple[str, ...]:
    base = [100 * run.evaluations[0]["success"] for run in runs]
    ended = [run for run in runs if run.is_finished]
    final = [100 * run.evaluations[-1]["success"] for run in ended]
    gains = [after - 100 * run.evaluations[0]["success"] for after, run in zip(final, ended, strict=True)]
    tokens = [run.evaluations[-1]["sampled_tokens_total"] for run in ended]
    seconds = [update["seconds"] for run in runs for update in run.updates]
    return (
        label,
        runs[0].updates[0].get("per_instance") or "-" if runs[0].updates else "-",
        str(len(runs)) if len(ended) == len(runs) else f"{len(ended)} of {len(runs)}",
        *map(_interval, (base, final, gains)),
        f"{min(gains):+.1f}" if gains else "-",
        f"{fmean(tokens) / 1000:,.0f}k" if tokens else "-",
        *_times(seconds),
    )


def _times(seconds: Sequence[Mapping[str, float]]) -> list[str]:
    """Return the seconds of an update and the share of each part in percent, as cells."""
    total = sum(update["all"] for update in seconds)
    if not total:
        return ["-"] * (1 + len(PARTS))
    shares = [100 * sum(update[part] for update in seconds) / total for part in PARTS]
    return [f"{total / len(seconds):.2f}", *[f"{share:.0f}" for share in shares]]


def _interval(values: Sequence[float]) -> str:
    if not values:
        return "-"
    interval = student(values)
    return f"{fmean(values):.1f}" if interval is None else f"{interval.mean:.1f} ± {interval.high - interval.mean:.1f}"


def draw_curves(folders: Sequence[Path], out: Path) -> None:
    """Draw success on held-out instances by updates and by sampled tokens, a line per method, and save a PNG.

    Raises:
        CheckpointError: A folder holds no evaluated run.
        ConfigError: As `summarise_runs` does.
    """
    from matplotlib.figure import Figure

    runs = load_comparable(folders)
    methods = runs_by_method(runs)
    figure = Figure(figsize=(12, 4.5), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for panel, key, name in zip(panels, ("step", "sampled_tokens_total"), ("updates", "sampled tokens"), strict=True):
        for number, (label, members) in enumerate(methods.items()):
            for run in members:
                panel.plot(*_curve(run, key), color=f"C{number}", alpha=0.25, linewidth=1)
            length = min(len(run.evaluations) for run in members)
            curves = [_curve(run, key) for run in members]
            mean = [[fmean([curve[axis][i] for curve in curves]) for i in range(length)] for axis in (0, 1)]
            panel.plot(*mean, color=f"C{number}", linewidth=2, marker="o", markersize=3, label=label)
        start = runs[0].evaluations[0]
        for bar, style in (("random", ":"), ("optimal", "--")):
            if start[bar] is not None:
                panel.axhline(100 * start[bar], color="grey", linestyle=style, linewidth=1, label=bar)
        panel.set_xlabel(name)
        panel.grid(alpha=0.3)
    panels[1].set_xscale("symlog", linthresh=10_000)
    panels[1].set_xlim(left=0)
    # matplotlib's ticks of a symlog axis stand so close below its threshold that they cannot be read.
    panels[1].set_xticks(_powers(max(run.evaluations[-1]["sampled_tokens_total"] for run in runs)))
    panels[1].minorticks_off()
    panels[1].xaxis.set_major_formatter(lambda tokens, place: _short(tokens))
    panels[0].set_ylabel("held-out success, %")
    panels[0].legend(fontsize=8)
    figure.savefig(out, dpi=150)


def _powers(most: int) -> list[int]:
    """Return 0 and the round numbers of tokens, 1, 2 or 5 times a power of ten, from 10,000 to `most`."""
    rounds = [first * 10**power for power in range(4, 16) for first in (1, 2, 5)]
    ticks = [0, *[number for number in rounds if number <= max(most, 10_000)]]
    # More than nine labels would overlap.
    return ticks if len(ticks) <= 9 else [number for number in ticks if str(number)[0] in "01"]


def _short(tokens: float) -> str:
    """Return a number of tokens as a label.

    >>> _short(20_000), _short(1_500_000), _short(0)
    ('20k', '1.5M', '0')
    """
    return f"{tokens / 1e6:g}M" if tokens >= 1e6 else f"{tokens / 1e3:g}k" if tokens >= 1e3 else f"{tokens:g}"


def _curve(run: Run, key: str) -> tuple[list[float], list[float]]:
    return [record[key] for record in run.evaluations], [100 * record["success"] for record in run.evaluations]
