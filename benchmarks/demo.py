"""The demonstration: search in training where plain play hardly ever succeeds, for two cores and a quarter of an hour.

Sokoban rooms of 10 to 16 moves, which the embedded base model solves once in a thousand episodes at the temperature of
training (1), and about once in a hundred at that of evaluation (0.5). ``tsr+`` searches, by a public guide, only the
rooms that plain play fails; instance filtering plays plainly. Both sample as many tokens from the same rooms, and are
evaluated without search on held-out rooms. `benchmarks.does_search_pay` is the whole study, with its other controls and
the settings in which search loses.
"""

import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from benchmarks.measure import write_result
from benchmarks.pay.plan import BASES, FILTERING, TSR_PLUS, UPDATES, Cell, Contrast, row_of, sokoban, train_cells
from benchmarks.pay.report import difference
from benchmarks.tsr_runs import Row, build_bases
from tsr_gym.agents.cli.output import show_tables
from tsr_gym.agents.models.settings import SHIPPED
from tsr_gym.agents.reports.report import draw_curves, summarise_runs
from tsr_gym.records import to_json

BASE = "S1"
CONTRAST = Contrast("headline", sokoban(10, 16, 90_000), BASE, TSR_PLUS, FILTERING)
QUESTION = (
    "Does search during training pay? Sokoban rooms of 10 to 16 moves, played without search on held-out rooms after "
    "training with and without it, at equal sampled tokens"
)
SMOKE = "smoke only shows that it runs: these numbers say nothing about the methods"
# The command that this Python has.
TSR = os.path.relpath(Path(sys.executable).with_name("tsr"))


@dataclass(frozen=True, slots=True)
class DemoArgs:
    """Train with and without search on Sokoban and compare, at equal sampled tokens, on paired seeds."""

    seeds: int = 8
    """Pairs of runs; fewer than eight may show that learning works, and rank nothing."""
    smoke: bool = False
    """Only show that everything runs: one pair and a few updates."""
    build: bool = False
    """Build the base model by its recipe, in place of taking the one that comes with the package."""
    out: Path = Path("runs/demo")
    """Where everything goes; what is there already is continued or kept."""
    workers: int = os.cpu_count() or 1
    """Runs side by side."""
    record: bool = False
    """Also write the result to benchmarks/results/demo.json."""


def main() -> int:
    """Build the base model, train everything, report."""
    args = tyro.cli(DemoArgs)
    out = args.out / "smoke" if args.smoke else args.out
    contrast, pairs = CONTRAST, args.seeds
    if args.smoke:
        contrast = replace(CONTRAST, setting=replace(CONTRAST.setting, tokens=6_400, eval_instances=64))
        pairs = 1
    print(QUESTION, flush=True)
    base = out / "bases" / BASE
    if args.build:
        print(f"building the base model {BASE} in {base}: two to three minutes", flush=True)
        build_bases(out, {BASE: BASES[BASE]}, args.workers)
    elif not base.exists():
        shutil.copytree(SHIPPED / BASE, base)
    cells = [
        Cell(contrast.setting, BASE, method, seed)
        for seed in range(pairs)
        for method in (contrast.method, contrast.control)
    ]
    print(f"{len(cells)} runs of {contrast.setting.tokens:,} sampled tokens, {args.workers} side by side", flush=True)
    with _bars() as bars:
        tasks = {cell: bars.add_task(cell.title, total=UPDATES, last="waiting") for cell in cells}
        train_cells(out, cells, args.workers, watch=partial(_show, out, tasks, bars))
    folders = [out / "cells" / cell.name for cell in sorted(cells, key=lambda cell: cell.method.name, reverse=True)]
    report = summarise_runs(folders)
    show_tables((report.ends, report.by_tokens))
    draw_curves(folders, out / "report.png")
    rows = [row for cell in cells if (row := row_of(out, cell)) is not None]
    contrast_row = difference(contrast, rows, [])
    (out / "report.json").write_text(to_json(asdict(report) | {"difference": contrast_row}, indent=2))
    if args.record:
        write_result("demo", asdict(report) | {"difference": contrast_row, "rows": rows})
    print(SMOKE if args.smoke else headline(contrast_row))
    print(f"curves: {out / 'report.png'}   table: {out / 'report.json'}   one run: {TSR} report {folders[0]}")
    return 0


def headline(row: Row | None) -> str:
    """Return the result in a sentence or two."""
    if row is None:
        return "One pair of runs says nothing about the methods: make demo SEEDS=8 has eight."
    if row["low"] is None:
        return "Two pairs of runs say nothing about the methods: make demo SEEDS=8 has eight."
    shown = "search paid" if row["low"] > 0 else "search lost" if row["high"] < 0 else "nothing is shown"
    return (
        f"{shown}: {row['method']} {row['success']:.1f} %, {row['control']} {row['control_success']:.1f} %, "
        f"paired difference {row['points']:+.1f} points, 95 % interval {row['low']:+.1f} to {row['high']:+.1f}, "
        f"{row['seeds']} pairs, {row['sampled_tokens']:,} and {row['control_sampled_tokens']:,} sampled tokens; "
        "benchmarks.does_search_pay has the settings where it does not"
    )


@contextmanager
def _bars() -> Iterator[Progress]:
    columns = (TextColumn("{task.description:<18}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    last = TextColumn("{task.fields[last]}")
    with Progress(*columns, last, console=Console(), disable=not Console().is_terminal) as bars:
        yield bars


def _show(out: Path, tasks: Mapping[Cell, TaskID], bars: Progress) -> None:
    for cell, task in tasks.items():
        folder = out / "cells" / cell.name
        done = _lines(folder / "metrics.jsonl")
        held_out = _lines(folder / "evaluations.jsonl")
        last = f"held out {100 * json.loads(held_out[-1])['success']:.0f} %" if held_out else "waiting"
        before = bars.tasks[task].fields["last"]
        bars.update(task, completed=len(done), last=last)
        # Where no bar can be drawn, a line for each evaluation with a new result.
        if bars.disable and last != before:
            print(f"{cell.title}: {len(done)} of {UPDATES} updates, {last}", flush=True)


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


if __name__ == "__main__":
    sys.exit(main())
