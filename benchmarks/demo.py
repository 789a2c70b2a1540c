"""The demonstration: one recipe, ``auto``, where search pays and where it does not, in four minutes of two cores.

Sokoban rooms of 10 to 16 moves, which the embedded base model solves once in a thousand episodes at the temperature of
training (1), and about once in a hundred at that of evaluation (0.5); and rooms of 1 to 4 moves, which it often solves.
``auto`` measures what a useful group costs by plain play and by search, and searches where that is cheaper. The
control, instance filtering, plays plainly. Both sample as many tokens from the same rooms, and are evaluated without
search on held-out rooms. `benchmarks.recipes` has the other worlds, and where ``auto`` loses.
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
from statistics import fmean

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from benchmarks.measure import write_result
from benchmarks.pay.plan import BASES, UPDATES, Cell, Contrast, Method, row_of, sokoban, train_cells
from benchmarks.pay.report import difference
from benchmarks.tsr_runs import Row, build_bases
from tsr_gym.agents.cli.output import show_tables
from tsr_gym.agents.models.settings import SHIPPED
from tsr_gym.agents.reports.report import draw_curves, summarise_runs
from tsr_gym.records import to_json

BASE = "S1"
RECIPES = (("auto", "levin(expansions=60)"), ("filtering", "naive"))
AUTO, FILTERING = (Method(recipe, f"--recipe {recipe} --lr 1e-3 --search {search}") for recipe, search in RECIPES)
CONTRASTS = tuple(
    Contrast("headline", replace(sokoban(low, high, tokens), learn="", eval_instances=256), BASE, AUTO, FILTERING)
    for low, high, tokens in ((10, 16, 60_000), (1, 4, 30_000))
)
QUESTION = (
    "Does search during training pay? One recipe decides by price in two settings of Sokoban, and is compared with "
    "plain play on held-out rooms, without search, at equal sampled tokens"
)
SMOKE = "smoke only shows that it runs: these numbers say nothing about the methods"
# The command that this Python has.
TSR = os.path.relpath(Path(sys.executable).with_name("tsr"))


@dataclass(frozen=True, slots=True)
class DemoArgs:
    """Train by price and by plain play in two settings and compare, at equal sampled tokens, on paired seeds."""

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
    contrasts, pairs = CONTRASTS, args.seeds
    if args.smoke:
        small = partial(replace, tokens=6_400, eval_instances=64)
        contrasts, pairs = tuple(replace(contrast, setting=small(contrast.setting)) for contrast in CONTRASTS), 1
    print(QUESTION, flush=True)
    base = out / "bases" / BASE
    if args.build:
        print(f"building the base model {BASE} in {base}: two to three minutes", flush=True)
        build_bases(out, {BASE: BASES[BASE]}, args.workers)
    elif not base.exists():
        shutil.copytree(SHIPPED / BASE, base)
    cells = [
        Cell(contrast.setting, BASE, method, seed)
        for contrast in contrasts
        for seed in range(pairs)
        for method in (contrast.method, contrast.control)
    ]
    tokens = " and ".join(f"{contrast.setting.tokens:,}" for contrast in contrasts)
    print(f"{len(cells)} runs of {tokens} sampled tokens, {args.workers} side by side", flush=True)
    with _bars() as bars:
        tasks = {cell: bars.add_task(_title(cell), total=UPDATES, last="waiting") for cell in cells}
        train_cells(out, cells, args.workers, watch=partial(_show, out, tasks, bars))
    results = [
        _reported(out, contrast, [cell for cell in cells if cell.setting == contrast.setting]) for contrast in contrasts
    ]
    (out / "report.json").write_text(to_json(results, indent=2))
    if args.record:
        write_result("demo", {"settings": results})
    if args.smoke:
        print(SMOKE)
    else:
        for contrast, result in zip(contrasts, results, strict=True):
            print(f"rooms of {contrast.setting.name}: {headline(result['difference'], result['searched'])}")
    print(f"tables: {out / 'report.json'}   one run: {TSR} report {out / 'cells' / cells[0].name}")
    return 0


def _title(cell: Cell) -> str:
    return f"{cell.setting.name}: {cell.title}"


def _reported(out: Path, contrast: Contrast, cells: list[Cell]) -> Row:
    """Show the tables and draw the curves of a setting; return them with the difference and the share of searches."""
    folders = [out / "cells" / cell.name for cell in sorted(cells, key=lambda cell: cell.method.name)]
    report = summarise_runs(folders)
    print(f"\nrooms of {contrast.setting.name}")
    show_tables((report.ends, report.by_tokens))
    curves = out / f"{contrast.setting.name.replace(' ', '-')}.png"
    draw_curves(folders, curves)
    print(f"curves: {curves}")
    rows = [row for cell in cells if (row := row_of(out, cell)) is not None]
    updates = [json.loads(line) for folder in folders for line in _lines(folder / "metrics.jsonl")]
    shares = [update["share_search"] for update in updates if update.get("share_search") is not None]
    return asdict(report) | {"difference": difference(contrast, rows, []), "rows": rows, "searched": fmean(shares)}


def headline(row: Row | None, searched: float = 0.0) -> str:
    """Return the result in a sentence or two.

    Args:
        row: The paired difference; None without two pairs.
        searched: Share of the groups that `auto` searched.
    """
    if row is None:
        return "One pair of runs says nothing about the methods: make demo SEEDS=8 has eight."
    if row["low"] is None:
        return "Two pairs of runs say nothing about the methods: make demo SEEDS=8 has eight."
    shown = "is ahead" if row["low"] > 0 else "is behind" if row["high"] < 0 else "is level, as far as is shown"
    return (
        f"{row['method']} searched {100 * searched:.0f} % of its groups and {shown}: {row['success']:.1f} %, "
        f"{row['control']} {row['control_success']:.1f} %, paired difference {row['points']:+.1f} points, "
        f"95 % interval {row['low']:+.1f} to {row['high']:+.1f}, {row['seeds']} pairs, {row['sampled_tokens']:,} and "
        f"{row['control_sampled_tokens']:,} sampled tokens, {row['optimizer_steps']} and "
        f"{row['control_optimizer_steps']} optimizer steps"
    )


@contextmanager
def _bars() -> Iterator[Progress]:
    columns = (TextColumn("{task.description:<32}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
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
            print(f"{_title(cell)}: {len(done)} of {UPDATES} updates, {last}", flush=True)


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


if __name__ == "__main__":
    sys.exit(main())
