"""The published tables and figures, each by one command, with the paper's numbers next to ours.

``python -m benchmarks.paper_tables --list`` lists the names. ``NAME`` does the runs that are missing, then writes the
results and the table of docs/paper_tables.md; ``--dry-run`` only prints the commands.

benchmarks/results/paper_tables holds one head per table, NAME.json, and every run once, one per line of runs.jsonl with
the names of the tables that it stands in. Rows are computed from the runs and stored nowhere.
"""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from benchmarks.measure import RESULTS, laid_out, stamped
from benchmarks.papers import credit, tsr
from benchmarks.papers.asked import ask, asked_rows, questions, runs_of
from benchmarks.papers.plan import Cell, Scale, Table, base_rows, cells, commands, hurried, row_of, run_cells
from benchmarks.papers.report import PAGE, draw, rows_of, section, write_tables
from tsr_gym.errors import ConfigError
from tsr_gym.files import write_atomically
from tsr_gym.keywords import no_such

TABLES = {table.name: table for table in (*tsr.TABLES, *credit.TABLES)}
FOLDER = RESULTS / "paper_tables"
QUICK_SEEDS, SEEDS = 2, 8


@dataclass(frozen=True, slots=True)
class TableArgs:
    """Regenerate a published table or figure; what was run before with the same configuration is not run again."""

    name: tyro.conf.Positional[str] = ""
    """Which one; see --list."""
    list: bool = False
    """Name them all."""
    scale: Scale = "tiny"
    """tiny: the embedded models, on a CPU. qwen: the paper's models and numbers, by torchrun on eight GPUs."""
    quick: bool = False
    """A few updates of two seeds in the first setting, which show that everything runs and rank nothing."""
    seeds: int | None = None
    """Runs of each method; 8 where nothing is said, 2 for a quick run."""
    out: Path = Path("runs/paper_tables")
    """Where base models and runs go; what is finished there is not done again."""
    models: Path = Path("models")
    """Folder of the pretrained models, each by its name."""
    workers: int = os.cpu_count() or 1
    """Runs side by side, at scale tiny."""
    dry_run: bool = False
    """Print the commands and run nothing."""
    collect: bool = False
    """Run nothing: write the result of what is there."""
    base_url: str = ""
    """The OpenAI-compatible endpoint of a table whose models are only asked."""
    ask: tuple[str, ...] = ()
    """Names of those models there; WORLD=NAME for one that is asked in one world alone."""
    page: bool = False
    """Run nothing: write the page and the figures again from the result files."""


def main() -> int:
    """Do what was asked; return 0, or 2 where it cannot be done."""
    args = tyro.cli(TableArgs)
    if args.list:
        for table in TABLES.values():
            print(f"{table.name:18} {table.title}")
        return 0
    if args.page:
        publish()
        return 0
    try:
        regenerate(args)
    except ConfigError as error:
        print(f"paper_tables: {error}", file=sys.stderr)
        return 2
    return 0


def regenerate(args: TableArgs) -> None:
    """Do the runs of a table, or print their commands, and publish what they left.

    Raises:
        ConfigError: There is no such table.
    """
    table = chosen(args)
    if table.asks:
        ask_models(args, table)
        return
    planned = list(cells(table, args.scale, args.seeds or (QUICK_SEEDS if args.quick else SEEDS)))
    if args.dry_run:
        print("\n".join(commands(planned, args.scale, args.out, args.models)))
        return
    if not args.collect:
        run_cells(planned, args.scale, args.out, args.models, args.workers)
    save(args, table, result_of(args, table, planned))


def ask_models(args: TableArgs, table: Table) -> None:
    """Ask models behind an endpoint, or print the commands, and publish what they answered.

    Raises:
        ConfigError: The address or the models are missing, or an evaluation failed.
    """
    if not args.ask or not (args.base_url or args.dry_run or args.collect):
        raise ConfigError(
            f"{table.name} asks models behind an endpoint: wanted --base-url URL --ask NAME ..., got "
            f"{args.base_url or 'no URL'} and {len(args.ask)} names; docs/paper_tables.md has the paper's numbers"
        )
    seeds, instances = (1, 16) if args.quick else (args.seeds or SEEDS, 256)
    asked = list(questions(args.scale, args.ask, seeds, instances))
    if args.dry_run:
        print("\n".join(f"tsr {part.command} --model {part.model} --seed {part.seed}" for part in asked))
        return
    if not args.collect:
        ask(asked, args.base_url, args.out)
    runs = runs_of(asked, args.out)
    seen = {"seeds": len({run["seed"] for run in runs}), "planned_runs": len(asked), "control": "", "bases": []}
    save(args, table, head_of(args, table) | seen | {"runs": runs, "rows": asked_rows(runs)})


def save(args: TableArgs, table: Table, result: dict[str, Any]) -> None:
    """Write a result file, stamped, and the page."""
    result = stamped(result)
    place = FOLDER / f"{table.name}{'' if args.scale == 'tiny' else f'_{args.scale}'}.json"
    if args.quick and place.exists() and not json.loads(place.read_text())["quick"]:
        place = args.out / place.name
        print(f"{table.name} was run in full before: the quick result goes to {place}")
        place.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(place, laid_out(result).encode())
    else:
        FOLDER.mkdir(parents=True, exist_ok=True)
        head = {name: value for name, value in result.items() if name not in ("runs", "rows")}
        write_atomically(place, laid_out(head).encode())
        keep_runs(place.stem, result["runs"])
    publish()
    print(section(table, [result]))


def chosen(args: TableArgs) -> Table:
    """Return the table that was asked for.

    Raises:
        ConfigError: No table has this name, or it cannot be run.
    """
    if args.name not in TABLES:
        raise no_such("table", args.name, tuple(TABLES))
    table = TABLES[args.name]
    if args.quick and args.scale != "tiny":
        raise ConfigError(f"a quick run is one of scale tiny, got scale {args.scale}: leave out one of them")
    return hurried(table) if args.quick else table


def head_of(args: TableArgs, table: Table) -> dict[str, Any]:
    """Return the first fields of a result file."""
    named = {"name": table.name, "title": table.title, "source": table.source}
    return named | {"scale": args.scale, "quick": args.quick}


def result_of(args: TableArgs, table: Table, planned: list[Cell]) -> dict[str, Any]:
    """Return the content of a result file: the finished runs, and the rows that follow."""
    runs = [row for cell in planned if (row := row_of(args.out, cell, args.scale)) is not None]
    return head_of(args, table) | {
        "seeds": len({run["seed"] for run in runs}),
        "planned_runs": len(planned),
        "control": table.control,
        "bases": base_rows(args.out, planned),
        "runs": runs,
        "rows": rows_of(table, args.scale, runs),
    }


def read_runs() -> list[dict[str, Any]]:
    """Return all runs of all tables; `tables` of a run lists the files whose tables it stands in."""
    path = FOLDER / "runs.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def keep_runs(stem: str, runs: Sequence[dict[str, Any]]) -> None:
    """Write the runs of one table among those of all; a run that several tables share is kept once.

    Args:
        stem: Name of the table's file.
        runs: All of its runs. A command line identifies a run.
    """
    kept = {run["command"]: run | {"tables": [name for name in run["tables"] if name != stem]} for run in read_runs()}
    for run in runs:
        shared = kept.get(run["command"], {}).get("tables", [])
        kept[run["command"]] = run | {"tables": sorted([*shared, stem])}
    lines = [json.dumps(run) + "\n" for run in kept.values() if run["tables"]]
    write_atomically(FOLDER / "runs.jsonl", "".join(lines).encode())


def results() -> dict[str, list[dict[str, Any]]]:
    """Return the results by the names of their tables, each with its runs and the rows that follow from them."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    every_run = read_runs()
    for path in sorted(FOLDER.glob("*.json")):
        head = json.loads(path.read_text())
        runs = [run for run in every_run if path.stem in run["tables"]]
        table = TABLES[head["name"]]
        if head["quick"] and not table.asks:
            table = hurried(table)
        rows = asked_rows(runs) if table.asks else rows_of(table, head["scale"], runs)
        by_name.setdefault(table.name, []).append(head | {"runs": runs, "rows": rows})
    return by_name


def publish() -> None:
    """Write the tables of the page and the figures from the result files."""
    by_table = results()
    write_atomically(PAGE, write_tables(PAGE.read_text(), TABLES, by_table).encode())
    for name, of_table in by_table.items():
        if TABLES[name].view not in ("rows", "times") and not TABLES[name].asks:
            draw(TABLES[name], of_table[0], PAGE.parent / "images" / f"{name}.png")


if __name__ == "__main__":
    sys.exit(main())
