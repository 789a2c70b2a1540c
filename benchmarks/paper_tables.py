"""The published tables and figures, each by one command, with the paper's numbers beside ours.

``python -m benchmarks.paper_tables --list`` names them. ``NAME`` does the runs that are not there yet, writes
``benchmarks/results/paper_tables/NAME.json`` and the table of docs/paper_tables.md; ``--dry-run`` only prints its
commands.
"""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from benchmarks.measure import RESULTS, stamped
from benchmarks.papers import credit, tsr
from benchmarks.papers.analysis import rows_of
from benchmarks.papers.asked import ask, asked_rows, questions, runs_of
from benchmarks.papers.figure import draw
from benchmarks.papers.page import PAGE, section, write_tables
from benchmarks.papers.plan import Cell, Scale, Table, cells, hurried
from benchmarks.papers.runs import base_rows, commands, row_of, run_cells
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
        ConfigError: It is not said where and which, or an evaluation failed.
    """
    if not args.ask or not (args.base_url or args.dry_run or args.collect):
        raise ConfigError(
            f"{table.name} asks models behind an endpoint: wanted --base-url URL --ask NAME ..., got "
            f"{args.base_url or 'no URL'} and {len(args.ask)} names; docs/paper_tables.md has the paper's numbers"
        )
    seeds, instances = (1, 16) if args.quick else (args.seeds or SEEDS, 256)
    asked = list(questions(args.scale, args.ask, seeds, instances))
    if args.dry_run:
        print("\n".join(f"tsr {one.command} --model {one.model} --seed {one.seed}" for one in asked))
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
    write_atomically(place, (json.dumps(result, indent=1) + "\n").encode())
    publish()
    print(section(table, [result]))


def chosen(args: TableArgs) -> Table:
    """Return the table that was asked for.

    Raises:
        ConfigError: There is none, or it cannot be run.
    """
    if args.name not in TABLES:
        raise no_such("table", args.name, tuple(TABLES))
    table = TABLES[args.name]
    if args.quick and args.scale != "tiny":
        raise ConfigError(f"a quick run is one of scale tiny, got scale {args.scale}: leave out one of them")
    return hurried(table) if args.quick else table


def head_of(args: TableArgs, table: Table) -> dict[str, Any]:
    """Return what a result file says first."""
    named = {"name": table.name, "title": table.title, "source": table.source}
    return named | {"scale": args.scale, "quick": args.quick}


def result_of(args: TableArgs, table: Table, planned: list[Cell]) -> dict[str, Any]:
    """Return the content of a result file: what the finished runs say, and the rows that follow."""
    runs = [row for cell in planned if (row := row_of(args.out, cell, args.scale)) is not None]
    return head_of(args, table) | {
        "seeds": len({run["seed"] for run in runs}),
        "planned_runs": len(planned),
        "control": table.control,
        "bases": base_rows(args.out, planned),
        "runs": runs,
        "rows": rows_of(table, args.scale, runs),
    }


def results() -> dict[str, list[dict[str, Any]]]:
    """Return what the result files hold, by the names of the tables."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(FOLDER.glob("*.json")):
        result = json.loads(path.read_text())
        found.setdefault(result["name"], []).append(result)
    return found


def publish() -> None:
    """Write the tables of the page and the figures from the result files."""
    known = results()
    write_atomically(PAGE, write_tables(PAGE.read_text(), TABLES, known).encode())
    for name, of_table in known.items():
        if TABLES[name].view not in ("rows", "times") and not TABLES[name].asks:
            draw(TABLES[name], of_table[0], PAGE.parent / "images" / f"{name}.png")


if __name__ == "__main__":
    sys.exit(main())
