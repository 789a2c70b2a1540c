"""From finished runs to the rows of a table, its figure and its section of docs/paper_tables.md.

Everything here is computed from benchmarks/results/paper_tables; nothing reads a run's folder.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib.figure import Figure

from benchmarks.measure import difference_words, table_of, write_between_marks
from benchmarks.papers.plan import Method, Scale, Setting, Table
from benchmarks.pay.report import interval

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
    published = table.paper.get(setting.published or setting.world, {})
    by_model = {model: published.get(model, {}).get(method.name, {}) for model in setting.models}
    return {model: numbers for model, numbers in by_model.items() if numbers}


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
    means: Row = {}
    for name, share in (("to_80", FIRST), ("to_convergence", CONVERGED)):
        reached = [reached_at(run["points"], share) for run in runs]
        numbers = [point for point in reached if point is not None]
        for measure in ("step", "seconds"):
            means[f"{measure}_{name}"] = round(fmean(point[measure] for point in numbers), 1) if numbers else None
    return means


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


# What a measure is called, and what it is multiplied with.
AXES = {"success": ("held-out success, %", 100.0), "response_length": ("tokens of an episode", 1.0)}


def draw(table: Table, result: Mapping[str, Any], out: Path) -> None:
    """Draw a panel per setting, a thin line per run and a thick one per method; save a PNG."""
    runs, (name, factor) = result["runs"], AXES[table.view]
    settings = list(dict.fromkeys(run["setting"] for run in runs))
    figure = Figure(figsize=(3.4 * len(settings) + 2.6, 3.6), layout="constrained")
    panels = figure.subplots(1, len(settings), squeeze=False)[0]
    for panel, setting in zip(panels, settings, strict=True):
        for number, method in enumerate(trained.name for trained in table.methods if trained.trains):
            mine = [run["points"] for run in runs if (run["setting"], run["method"]) == (setting, method)]
            curves = [[factor * point[table.view] for point in points] for points in mine]
            steps = [[point["step"] for point in points] for points in mine]
            for axis, curve in zip(steps, curves, strict=True):
                panel.plot(axis, curve, color=f"C{number}", alpha=0.25, linewidth=1)
            if curves:
                means = [fmean(values) for values in zip(*curves, strict=False)]
                panel.plot(steps[0][: len(means)], means, color=f"C{number}", linewidth=2, label=method)
        panel.set_title(setting, fontsize=10)
        panel.set_xlabel("updates")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel(name)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    figure.savefig(out, dpi=140)


PAGE = Path(__file__).resolve().parents[2] / "docs" / "paper_tables.md"
OURS = (
    *("success %", "reward", "response length", "turns", "random, optimal %", "minus control at equal tokens"),
    *("seeds", "sampled", "prompt", "model calls", "environment steps", "groups kept", "optimizer steps", "seconds"),
)
TIMED = ("seconds", "updates to 80 %", "seconds to 80 %", "updates to convergence", "seconds to convergence", "seeds")
ASKED_FOR = ("success %", "random, optimal %", "turns", "seeds", "requests", "prompt tokens", "sampled tokens")
NOTHING = "–"
ASKED = ("model_calls", "env_steps")


def write_tables(page: str, tables: Mapping[str, Table], results: Mapping[str, Sequence[Row]]) -> str:
    """Return a page whose tables are those of the results.

    Args:
        page: With a mark for each table.
        tables: By name.
        results: What each result file of a table holds, by the table's name; none for one that was not run.
    """
    return write_between_marks(page, {name: section(table, results.get(name, ())) for name, table in tables.items()})


def section(table: Table, results: Sequence[Row]) -> str:
    """Return the section of a table: the sources of its numbers, and a table for each result."""
    notes = [f"The paper's numbers: {table.source}.", *table.remarks]
    parts = [" ".join(notes)]
    if table.asks:
        return "\n\n".join([*parts, *_asked(table, results)])
    for result in results:
        parts += [source_sentence(result), _rows(table, result["rows"])]
        if table.view not in ("rows", "times"):
            parts.append(f"![{table.title}](images/{table.name}.png)")
    if not results:
        scale: Scale = "tiny"
        parts += ["Ours: not run yet.", _rows(table, rows_of(table, scale, []))]
    return "\n\n".join(parts)


def source_sentence(result: Row) -> str:
    """Return in a sentence what kind of run a result is from."""
    sentence = f"Ours: scale {result['scale']}, {result['seeds']} seeds, {result['date'][:10]}."
    if result["quick"]:
        sentence += " **A quick run of a few updates, which shows that everything runs and ranks nothing.**"
    controlled = f" The control is {result['control']}." if result["control"] else ""
    bases = [
        f"{base['base']}: {100 * base['success_skilled']:.0f} % before its skill was hidden"
        for base in result["bases"]
        if "success_skilled" in base
    ]
    return sentence + controlled + (f" Base models: {'; '.join(bases)}." if bases else "")


def published(table: Table) -> list[tuple[str, str, float]]:
    """Return world, model and success of the paper."""
    return [
        (world, model, numbers["success"])
        for world, by_model in table.paper.items()
        for model, by_method in by_model.items()
        for numbers in by_method.values()
    ]


def _asked(table: Table, results: Sequence[Row]) -> list[str]:
    paper = [(world, model, f"{success:g}", *(NOTHING,) * len(ASKED_FOR)) for world, model, success in published(table)]
    ours = [(row["setting"], row["method"], NOTHING, *_answered(row)) for result in results for row in result["rows"]]
    sentences = [source_sentence(result) for result in results] or ["Ours: not run yet."]
    return [*sentences, table_of(("where", "model", "paper: success", *ASKED_FOR), [*paper, *ours])]


def _answered(row: Row) -> tuple[str, ...]:
    counts = (f"{row[name]:,}" for name in ("requests", "prompt_tokens", "sampled_tokens"))
    return (mean_words(row["success"], 1), _bars(row), f"{row['turns']:.1f}", str(row["seeds"]), *counts)


def _bars(row: Row) -> str:
    return ", ".join(NOTHING if row[name] is None else f"{row[name]:g}" for name in ("random", "optimal"))


def _rows(table: Table, rows: Sequence[Row]) -> str:
    is_timed = table.view == "times"
    head = ("where", "method", f"paper: {', '.join(table.columns)}", *(TIMED if is_timed else OURS))
    cells = _timed if is_timed else _ours
    named = [(row["setting"], row["method"], paper_words(row["paper"], table.columns)) for row in rows]
    if not any("success" in row for row in rows):
        return table_of(head[:3], named)
    return table_of(head, [(*name, *cells(row)) for name, row in zip(named, rows, strict=True)])


def paper_words(paper: Mapping[str, Mapping[str, float]], columns: Sequence[str]) -> str:
    """Return the paper's numbers of a row, by model."""
    parts = []
    for model, numbers in paper.items():
        name = model.removeprefix("Qwen2.5-").removesuffix("-Instruct")
        named = len(numbers) != len(columns)
        values = (
            f"{column} {numbers[column]:g}" if named else f"{numbers[column]:g}"
            for column in columns
            if column in numbers
        )
        parts.append(f"{name}: {', '.join(values)}")
    return "; ".join(parts) or NOTHING


def _ours(row: Row) -> tuple[str, ...]:
    if "success" not in row:
        return (NOTHING,) * len(OURS)
    played = (
        mean_words(row["success"], 1),
        mean_words(row["reward"], 2),
        f"{row['response_length']:.0f}",
        f"{row['turns']:.1f}",
        _bars(row),
    )
    if "sampled_tokens" not in row:
        return (*played, NOTHING, str(row["seeds"]), *(NOTHING,) * 7)
    difference = NOTHING
    if "difference" in row:
        difference = f"**{difference_words(row['difference'])}** (at {row['control_sampled_tokens'] / 1000:.0f}k)"
    spent = (f"{row[name] / 1000:.0f}k" for name in ("sampled_tokens", "prompt_tokens"))
    asked, kept = ((f"{row[name]:,}" for name in names) for names in (ASKED, ("optimizer_steps", "seconds")))
    groups = f"{row['groups_kept']} of {row['groups']}"
    return (*played, difference, str(row["seeds"]), *spent, *asked, groups, *kept)


def _timed(row: Row) -> tuple[str, ...]:
    if "seconds" not in row:
        return (NOTHING,) * len(TIMED)
    names = ("seconds", "step_to_80", "seconds_to_80", "step_to_convergence", "seconds_to_convergence", "seeds")
    return tuple(NOTHING if row[name] is None else f"{row[name]:g}" for name in names)


def mean_words(row: Row, digits: int) -> str:
    """Return a mean with its interval, where there is one."""
    mean = f"{row['points']:.{digits}f}"
    return mean if row["low"] is None else f"{mean} [{row['low']:.{digits}f}, {row['high']:.{digits}f}]"
