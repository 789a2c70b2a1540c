"""Report: several runs held beside each other, over seeds, with intervals, with what they cost and what they show."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

from tsr_gym.agents.episodes.intervals import student
from tsr_gym.agents.reports.diagnosis import Finding, diagnose
from tsr_gym.agents.reports.methods import (
    COSTS,
    Cost,
    Difference,
    Run,
    differences,
    group_cost,
    load_comparable,
    runs_by_method,
)

PARTS = ("model", "env", "tree", "update")


@dataclass(frozen=True, slots=True)
class Table:
    """A table.

    Attributes:
        title: What it shows.
        caption: How to read it.
        columns: Their names; the first one says what a row is about.
        rows: As many cells as there are columns.
    """

    title: str
    caption: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Report:
    """Some methods held beside each other.

    Attributes:
        ends: Where each began and ended, and what it cost.
        by_updates: Success after some numbers of updates.
        by_tokens: Success after some numbers of sampled tokens.
        runs: Which runs these are.
        pairs: What each method gains over the control, seed by seed; without rows where there is nothing to pair.
        differences: The same as numbers.
        findings: Signs of collapse or of waste in runs, by folder; runs without any are left out.
    """

    ends: Table
    by_updates: Table
    by_tokens: Table
    runs: Table
    pairs: Table
    differences: list[Difference]
    findings: dict[str, list[Finding]]


def summarise_runs(
    folders: Sequence[Path],
    *,
    against: str | None = None,
    equal: Cost = "sampled_tokens",
    with_student: bool = False,
) -> Report:
    """Return the tables of some runs, methods in the order in which they come.

    Runs with the same settings but for the seed are one method, which their label names. Where runs of one label have
    other settings, these stand in the name.

    Args:
        folders: Of the runs.
        against: Name or label of the method that the others are paired with; None for the first one.
        equal: What pairs are held equal in.
        with_student: Whether the table of pairs shows Student's interval over seeds as well.

    Raises:
        CheckpointError: A folder holds no evaluated run, or one that does not say what is to be equal.
        ConfigError: There is no folder, two runs of a method have the same seed, or the runs were evaluated on
            different instances, or there is no such control.
    """
    runs = load_comparable(folders)
    methods = runs_by_method(runs)
    first, known = runs[0], runs[0].evaluations[0]
    bars = ", ".join(f"{name} {100 * known[name]:.1f} %" for name in ("random", "optimal") if known[name] is not None)
    fewest = min(map(len, methods.values()))
    caption = f"On the same held-out instances: {bars or 'bars not known'}. Intervals: 95 % over seeds (Student's t)."
    if fewest < 8:
        caption += f" {fewest} {'seed does' if fewest == 1 else 'seeds do'} not rank methods; 8 or more may."
    task = f"{first.config.env}, preset {first.config.task.preset}"
    title = f"{task}, {known['instances']} held-out instances, no search at test time"
    costs = ("tokens", "s/update", *[f"{part} %" for part in PARTS])
    columns = ("method", "per instance", "seeds", "base %", "final %", "gain", "worst gain", *costs)
    paired = differences(methods, against=against, equal=equal)
    findings = {str(run.folder): diagnose(run.updates) for run in runs}
    return Report(
        Table(title, caption, columns, [_row(name, members) for name, members in methods.items()]),
        _over("step", "updates", methods),
        _over("sampled_tokens_total", "sampled tokens", methods),
        _each(methods),
        _pairs(paired, equal, with_student),
        paired,
        {folder: found for folder, found in findings.items() if found},
    )


def _each(methods: Mapping[str, Sequence[Run]]) -> Table:
    rows: list[tuple[str, ...]] = [
        (
            str(run.folder),
            name,
            str(run.config.run.seed),
            f"{run.evaluations[-1]['step']:,}",
            *[f"{100 * run.evaluations[place]['success']:.1f}" for place in (0, -1)],
        )
        for name, members in methods.items()
        for run in members
    ]
    caption = "Updates and success at the last evaluation."
    return Table("each run", caption, ("run", "method", "seed", "updates", "base %", "final %"), rows)


def _over(key: str, name: str, methods: Mapping[str, Sequence[Run]]) -> Table:
    """Return success at some points of an axis, interpolated between evaluations, where all runs got that far."""
    ends = [run.evaluations[-1][key] for members in methods.values() for run in members]
    points = sorted({max(1, max(ends) * share // 16) for share in (1, 2, 4, 8, 16)})
    rows = []
    for label, members in methods.items():
        cells = []
        for point in points:
            reached = all(run.evaluations[-1][key] + _slack(run, key) >= point for run in members)
            cells.append(_interval([float(np.interp(point, *_curve(run, key))) for run in members]) if reached else "-")
        rows.append((label, *cells))
    title = f"held-out success, %, after so many {name}"
    return Table(
        title,
        "Interpolated between evaluations; - where not all runs got that far, or within a group of it.",
        ("method", *[f"{point:,}" for point in points]),
        rows,
    )


def _slack(run: Run, key: str) -> float:
    """Return how much further a run is taken to have come: runs that end by their tokens end a group apart."""
    return group_cost(run, "sampled_tokens") if key == "sampled_tokens_total" else 0.0


def _pairs(found: Sequence[Difference], equal: Cost, with_student: bool) -> Table:
    words = equal.replace("_", " ")
    caption = (
        f"1/2, 3/4, 1: at equal {words}, shares of what the shorter run of each pair took, interpolated between "
        "evaluations; a run that ended within a group of that is read at its end. Success over distinct instances."
    )
    if any(one.at == "end" for one in found):
        caption += " end: at the ends of runs, which are further apart than a group."
    kinds = {one.instances > 1 for one in found}
    caption += f" Intervals: 95 %, bootstrap over {'seeds and instances' if kinds == {True} else 'seeds'}."
    names = ("method", "against", "at", "pairs", "%", "control %", "points", "95 %")
    columns = (*names, *(("Student's t",) if with_student else ()), *(cost.replace("_", " ") for cost in COSTS))
    rows: list[tuple[str, ...]] = [
        (
            *(one.method, one.control, one.at, str(len(one.seeds)), f"{one.success:.1f}", f"{one.control_success:.1f}"),
            *(f"{one.points:+.1f}", f"{one.low:+.1f} to {one.high:+.1f}"),
            *([_ends(one.student)] if with_student else []),
            *(f"{_amount(one.spent[cost])} / {_amount(one.control_spent[cost])}" for cost in COSTS),
        )
        for one in found
    ]
    return Table(f"pairs of equal seeds, at equal {words}", caption, columns, rows)


def _ends(interval: tuple[float, float] | None) -> str:
    return "-" if interval is None else f"{interval[0]:+.1f} to {interval[1]:+.1f}"


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
    final = [100 * run.evaluations[-1]["success"] for run in runs]
    gains = [after - before for before, after in zip(base, final, strict=True)]
    tokens = fmean([run.evaluations[-1]["sampled_tokens_total"] for run in runs])
    seconds = [update["seconds"] for run in runs for update in run.updates]
    return (
        label,
        runs[0].updates[0].get("per_instance", "-") if runs[0].updates else "-",
        str(len(runs)),
        _interval(base),
        _interval(final),
        _interval(gains),
        f"{min(gains):+.1f}",
        f"{tokens / 1000:,.0f}k",
        *_times(seconds),
    )


def _times(seconds: Sequence[Mapping[str, float]]) -> list[str]:
    """Return the seconds of an update and the share of each part in percent."""
    if not seconds:
        return ["-"] * (1 + len(PARTS))
    total = sum(update["all"] for update in seconds)
    shares = [100 * sum(update[part] for update in seconds) / total for part in PARTS]
    return [f"{total / len(seconds):.2f}", *[f"{share:.0f}" for share in shares]]


def _interval(values: Sequence[float]) -> str:
    known = student(values)
    return f"{fmean(values):.1f}" if known is None else f"{known.mean:.1f} ± {known.high - known.mean:.1f}"


def draw_curves(folders: Sequence[Path], out: Path) -> None:
    """Draw success on held-out instances over updates and over sampled tokens, a line per method, and save a PNG.

    Raises:
        CheckpointError: A folder holds no evaluated run.
        ConfigError: As `summarise_runs` does.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    runs = load_comparable(folders)
    methods = runs_by_method(runs)
    figure, panels = pyplot.subplots(1, 2, figsize=(12, 4.5), sharey=True, layout="constrained")
    for panel, key, name in zip(panels, ("step", "sampled_tokens_total"), ("updates", "sampled tokens"), strict=True):
        for number, (label, members) in enumerate(methods.items()):
            for run in members:
                panel.plot(*_curve(run, key), color=f"C{number}", alpha=0.25, linewidth=1)
            length = min(len(run.evaluations) for run in members)
            curves = [_curve(run, key) for run in members]
            mean = [[fmean([curve[axis][i] for curve in curves]) for i in range(length)] for axis in (0, 1)]
            panel.plot(*mean, color=f"C{number}", linewidth=2, marker="o", markersize=3, label=label)
        known = runs[0].evaluations[0]
        for bar, style in (("random", ":"), ("optimal", "--")):
            if known[bar] is not None:
                panel.axhline(100 * known[bar], color="grey", linestyle=style, linewidth=1, label=bar)
        panel.set_xlabel(name)
        panel.grid(alpha=0.3)
    panels[1].set_xscale("symlog", linthresh=10_000)
    panels[1].set_xlim(left=0)
    # The ticks of a symlog axis stand so close below its threshold that they cannot be read.
    panels[1].set_xticks(_powers(max(run.evaluations[-1]["sampled_tokens_total"] for run in runs)))
    panels[1].minorticks_off()
    panels[1].xaxis.set_major_formatter(lambda tokens, place: _short(tokens))
    panels[0].set_ylabel("held-out success, %")
    panels[0].legend(fontsize=8)
    figure.savefig(out, dpi=150)
    pyplot.close(figure)


def _powers(most: int) -> list[int]:
    """Return 0 and the round numbers of tokens, 1, 2 or 5 times a power of ten, from 10,000 to `most`."""
    found = [first * 10**power for power in range(4, 16) for first in (1, 2, 5)]
    found = [0, *[number for number in found if number <= max(most, 10_000)]]
    # Labels of more would touch.
    return found if len(found) <= 9 else [number for number in found if str(number)[0] in "01"]


def _short(tokens: float) -> str:
    """Return a number of tokens as a label.

    >>> _short(20_000), _short(1_500_000), _short(0)
    ('20k', '1.5M', '0')
    """
    return f"{tokens / 1e6:g}M" if tokens >= 1e6 else f"{tokens / 1e3:g}k" if tokens >= 1e3 else f"{tokens:g}"


def _curve(run: Run, key: str) -> tuple[list[float], list[float]]:
    return [record[key] for record in run.evaluations], [100 * record["success"] for record in run.evaluations]
