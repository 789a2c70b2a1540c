"""Report: several runs held beside each other, over seeds, with intervals and with what they cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from tsr_gym.agents.runs.config import TrainConfig
from tsr_gym.agents.runs.files import JsonLines
from tsr_gym.errors import CheckpointError, ConfigError
from tsr_gym.registration import env_id

# Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom.
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
PARTS = ("model", "env", "tree", "update")


@dataclass(frozen=True, slots=True)
class Run:
    """One run, as its files tell it.

    Attributes:
        label: The method.
        config: All settings.
        updates: The lines of ``metrics.jsonl``.
        evaluations: The lines of ``evaluations.jsonl``.
    """

    label: str
    config: TrainConfig
    updates: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Table:
    """A table of methods.

    Attributes:
        title: What it shows.
        caption: How to read it.
        columns: Their names; the first one is the method.
        rows: One per method.
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
    """

    ends: Table
    by_updates: Table
    by_tokens: Table


def load_run(folder: Path) -> Run:
    """Read a run's folder.

    Raises:
        CheckpointError: The folder holds no run, or one without any evaluation.
    """
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder}: wanted the folder of a run with config.json, found none")
    config = TrainConfig.from_json((folder / "config.json").read_text(), source=str(folder / "config.json"))
    evaluations = JsonLines(folder / "evaluations.jsonl").read()
    if not evaluations:
        raise CheckpointError(f"{folder}: the run has not been evaluated yet")
    return Run(label_of(config), config, JsonLines(folder / "metrics.jsonl").read(), evaluations)


def label_of(config: TrainConfig) -> str:
    """Return what reports call a run's method."""
    search = config.search
    if config.run.label:
        return config.run.label
    score = "" if config.task.score == "reward" else f", {config.task.score}"
    matched = ", matched tokens" if search.match_tokens else ""
    return f"{search.search}{score}{matched}"


def summarise_runs(folders: Sequence[Path]) -> Report:
    """Return the tables of some runs, methods in the order in which they come.

    Raises:
        CheckpointError: A folder holds no evaluated run.
        ConfigError: There is no folder, or the runs were evaluated on different instances.
    """
    methods: dict[str, list[Run]] = {}
    for run in _load_comparable(folders):
        methods.setdefault(run.label, []).append(run)
    first = next(iter(methods.values()))[0]
    known = first.evaluations[0]
    bars = ", ".join(f"{name} {100 * known[name]:.1f} %" for name in ("random", "optimal") if known[name] is not None)
    fewest = min(map(len, methods.values()))
    caption = f"On the same held-out instances: {bars or 'bars not known'}. Intervals: 95 % over seeds (Student's t)."
    if fewest < 8:
        caption += f" {fewest} {'seed does' if fewest == 1 else 'seeds do'} not rank methods; 8 or more may."
    task = f"{first.config.env}, preset {first.config.task.preset}"
    title = f"{task}, {known['instances']} held-out instances, no search at test time"
    costs = ("tokens", "s/update", *[f"{part} %" for part in PARTS])
    columns = ("method", "per instance", "seeds", "base %", "final %", "gain", "worst gain", *costs)
    return Report(
        Table(title, caption, columns, [_row(label, members) for label, members in methods.items()]),
        _over("step", "updates", methods),
        _over("sampled_tokens_total", "sampled tokens", methods),
    )


def _load_comparable(folders: Sequence[Path]) -> list[Run]:
    if not folders:
        raise ConfigError("wanted the folder of at least one run")
    runs = [load_run(folder) for folder in folders]
    for folder, run in zip(folders, runs, strict=True):
        if _instances_of(run) != _instances_of(runs[0]):
            raise ConfigError(f"{folder} was evaluated on other instances than {folders[0]}: report them apart")
    return runs


def _instances_of(run: Run) -> tuple[Any, ...]:
    """Return all that decides which held-out instances a run was evaluated on."""
    task = run.config.task
    return env_id(run.config.env), task.preset, task.env_set, task.eval_split, run.evaluations[0]["instances"]


def _over(key: str, name: str, methods: Mapping[str, Sequence[Run]]) -> Table:
    """Return success at some points of an axis, interpolated between evaluations, where all runs got that far."""
    ends = [run.evaluations[-1][key] for members in methods.values() for run in members]
    points = sorted({max(1, max(ends) * share // 16) for share in (1, 2, 4, 8, 16)})
    rows = []
    for label, members in methods.items():
        cells = []
        for point in points:
            reached = all(run.evaluations[-1][key] >= point for run in members)
            cells.append(_interval([float(np.interp(point, *_curve(run, key))) for run in members]) if reached else "-")
        rows.append((label, *cells))
    title = f"held-out success, %, after so many {name}"
    return Table(
        title,
        "Interpolated between evaluations; - where not all runs got that far.",
        ("method", *[f"{point:,}" for point in points]),
        rows,
    )


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
    if len(values) < 2:
        return f"{values[0]:.1f}"
    quantile = _T[min(len(values) - 1, len(_T)) - 1]
    return f"{fmean(values):.1f} ± {quantile * stdev(values) / sqrt(len(values)):.1f}"


def draw_curves(folders: Sequence[Path], out: Path) -> None:
    """Draw success on held-out instances over updates and over sampled tokens, a line per method, and save a PNG.

    Raises:
        CheckpointError: A folder holds no evaluated run.
        ConfigError: There is no folder, or the runs were evaluated on different instances.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    runs = _load_comparable(folders)
    labels = list(dict.fromkeys(run.label for run in runs))
    figure, panels = pyplot.subplots(1, 2, figsize=(12, 4.5), sharey=True, layout="constrained")
    for panel, key, name in zip(panels, ("step", "sampled_tokens_total"), ("updates", "sampled tokens"), strict=True):
        for number, label in enumerate(labels):
            members = [run for run in runs if run.label == label]
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
    panels[0].set_ylabel("held-out success, %")
    panels[0].legend(fontsize=8)
    figure.savefig(out, dpi=150)
    pyplot.close(figure)


def _curve(run: Run, key: str) -> tuple[list[float], list[float]]:
    return [record[key] for record in run.evaluations], [100 * record["success"] for record in run.evaluations]
