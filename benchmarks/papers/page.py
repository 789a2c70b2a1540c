"""Page: the tables of docs/paper_tables.md, written from the result files; the paper's numbers stand beside ours."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.marked_tables import table_of, words, write_between_marks
from benchmarks.papers.analysis import rows_of
from benchmarks.papers.asked import published
from benchmarks.papers.plan import Scale, Table

Row = Mapping[str, Any]
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
    """Return what the page says of a table: where the numbers come from, and a table for each result."""
    notes = [f"The paper's numbers: {table.source}.", *table.remarks]
    parts = [" ".join(notes)]
    if table.asks:
        return "\n\n".join([*parts, *_asked(table, results)])
    for result in results:
        parts += [said_of(result), _rows(table, result["rows"])]
        if table.view not in ("rows", "times"):
            parts.append(f"![{table.title}](images/{table.name}.png)")
    if not results:
        scale: Scale = "tiny"
        parts += ["Ours: not run yet.", _rows(table, rows_of(table, scale, []))]
    return "\n\n".join(parts)


def said_of(result: Row) -> str:
    """Return in a sentence what kind of run a result is from."""
    kind = f"Ours: scale {result['scale']}, {result['seeds']} seeds, {result['date'][:10]}."
    if result["quick"]:
        kind += " **A quick run of a few updates, which shows that everything runs and ranks nothing.**"
    controlled = f" The control is {result['control']}." if result["control"] else ""
    bases = [
        f"{base['base']}: {100 * base['success_skilled']:.0f} % before its skill was hidden"
        for base in result["bases"]
        if "success_skilled" in base
    ]
    return kind + controlled + (f" Base models: {'; '.join(bases)}." if bases else "")


def _asked(table: Table, results: Sequence[Row]) -> list[str]:
    paper = [(world, model, f"{success:g}", *(NOTHING,) * len(ASKED_FOR)) for world, model, success in published(table)]
    ours = [(row["setting"], row["method"], NOTHING, *_answered(row)) for result in results for row in result["rows"]]
    said = [said_of(result) for result in results] or ["Ours: not run yet."]
    return [*said, table_of(("where", "model", "paper: success", *ASKED_FOR), [*paper, *ours])]


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
    said = []
    for model, numbers in paper.items():
        name = model.removeprefix("Qwen2.5-").removesuffix("-Instruct")
        named = len(numbers) != len(columns)
        values = (
            f"{column} {numbers[column]:g}" if named else f"{numbers[column]:g}"
            for column in columns
            if column in numbers
        )
        said.append(f"{name}: {', '.join(values)}")
    return "; ".join(said) or NOTHING


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
        difference = f"**{words(row['difference'])}** (at {row['control_sampled_tokens'] / 1000:.0f}k)"
    spent = (f"{row[name] / 1000:.0f}k" for name in ("sampled_tokens", "prompt_tokens"))
    asked, kept = ((f"{row[name]:,}" for name in names) for names in (ASKED, ("optimizer_steps", "seconds")))
    groups = f"{row['groups_kept']} of {row['groups']}"
    return (*played, difference, str(row["seeds"]), *spent, *asked, groups, *kept)


def _timed(row: Row) -> tuple[str, ...]:
    if "seconds" not in row:
        return (NOTHING,) * len(TIMED)
    names = ("seconds", "step_to_80", "seconds_to_80", "step_to_convergence", "seconds_to_convergence", "seeds")
    return tuple(NOTHING if row[name] is None else f"{row[name]:g}" for name in names)


def mean_words(found: Row, digits: int) -> str:
    """Return a mean with its interval, where there is one."""
    mean = f"{found['points']:.{digits}f}"
    return mean if found["low"] is None else f"{mean} [{found['low']:.{digits}f}, {found['high']:.{digits}f}]"
