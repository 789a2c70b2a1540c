"""Report: several runs held beside each other, over seeds, with intervals, with what they cost and what they show."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from tsr_gym.agents.reports.diagnosis import Finding, diagnose
from tsr_gym.agents.runs.config import TrainConfig
from tsr_gym.agents.runs.log import JsonLines
from tsr_gym.errors import CheckpointError, ConfigError
from tsr_gym.registration import env_id

# Two-sided 95 % quantiles of Student's t for 2 to 30 degrees of freedom.
_T = (
    4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
PARTS = ("model", "env", "tree", "update")
# Settings in which the runs of one method may differ.
_NO_METHOD = (
    *("env", "run.seed", "run.out", "run.label"),
    *("run.checkpoint_every", "run.keep_checkpoints", "run.save_trees"),
)


@dataclass(frozen=True, slots=True)
class Run:
    """One run, as its files tell it.

    Attributes:
        folder: Where it lies.
        label: What its method is called.
        config: All settings.
        updates: The lines of ``metrics.jsonl``.
        evaluations: The lines of ``evaluations.jsonl``.
    """

    folder: Path
    label: str
    config: TrainConfig
    updates: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]


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
        findings: Signs of collapse or of waste in runs, by folder; runs without any are left out.
    """

    ends: Table
    by_updates: Table
    by_tokens: Table
    runs: Table
    findings: dict[str, list[Finding]]


def load_run(folder: Path) -> Run:
    """Read a run's folder.

    Raises:
        CheckpointError: The folder holds no run, or one without any evaluation.
    """
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder}: wanted the folder of a run with config.json, found none")
    config = TrainConfig.from_json((folder / "config.json").read_bytes(), source=str(folder / "config.json"))
    evaluations = JsonLines(folder / "evaluations.jsonl").read()
    if not evaluations:
        raise CheckpointError(f"{folder}: the run has not been evaluated yet")
    return Run(folder, label_of(config), config, JsonLines(folder / "metrics.jsonl").read(), evaluations)


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

    Runs with the same settings but for the seed are one method, which their label names. Where runs of one label have
    other settings, these stand in the name.

    Raises:
        CheckpointError: A folder holds no evaluated run.
        ConfigError: There is no folder, two runs of a method have the same seed, or the runs were evaluated on
            different instances.
    """
    runs = _load_comparable(folders)
    methods = _methods(runs)
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
    findings = {str(run.folder): diagnose(run.updates) for run in runs}
    return Report(
        Table(title, caption, columns, [_row(name, members) for name, members in methods.items()]),
        _over("step", "updates", methods),
        _over("sampled_tokens_total", "sampled tokens", methods),
        _each(methods),
        {folder: found for folder, found in findings.items() if found},
    )


def _methods(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Return the runs of each method by its name.

    Raises:
        ConfigError: Two runs of a method have the same seed, so that one of them says nothing of its own.
    """
    found: dict[str, list[Run]] = {}
    settings = [dict(_settings(asdict(run.config))) for run in runs]
    for run, own in zip(runs, settings, strict=True):
        alike = [other for twin, other in zip(runs, settings, strict=True) if twin.label == run.label]
        differing = [name for name in own if any(other[name] != own[name] for other in alike)]
        words = [f"{name.rpartition('.')[2]}={own[name]}" for name in differing]
        found.setdefault(", ".join([run.label, *words]), []).append(run)
    for name, members in found.items():
        by_seed: dict[int, Run] = {}
        for run in members:
            twin = by_seed.setdefault(run.config.run.seed, run)
            if twin is not run:
                raise ConfigError(
                    f"{twin.folder} and {run.folder} are both seed {run.config.run.seed} of {name}: report one of them"
                )
    return found


def _settings(section: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the settings that make a method, by section and name."""
    for name, value in section.items():
        if isinstance(value, Mapping):
            yield from _settings(value, f"{path}{name}.")
        elif path + name == "search.match_tokens":
            # Every seed has a run of its own to match.
            yield "match_tokens", value is not None
        elif path + name not in _NO_METHOD:
            yield path + name, value


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
    # The interval of two is so wide that it says nothing.
    if len(values) < 3:
        return f"{fmean(values):.1f}"
    quantile = _T[min(len(values) - 3, len(_T) - 1)]
    return f"{fmean(values):.1f} ± {quantile * stdev(values) / sqrt(len(values)):.1f}"


def draw_curves(folders: Sequence[Path], out: Path) -> None:
    """Draw success on held-out instances over updates and over sampled tokens, a line per method, and save a PNG.

    Raises:
        CheckpointError: A folder holds no evaluated run.
        ConfigError: As `summarise_runs` does.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    runs = _load_comparable(folders)
    methods = _methods(runs)
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
