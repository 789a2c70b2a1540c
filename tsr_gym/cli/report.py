"""`tsr report`: compare runs in a table and a picture."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from tsr_gym.optional import load, require


@dataclass(frozen=True, slots=True)
class ReportArgs:
    """Compare runs: a table of success on held-out instances, and curves over updates and over sampled tokens."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders of runs; those with the same label and other seeds count as one method."""
    out: Path = Path("report.png")
    """File for the curves."""


def main(args: list[str]) -> int:
    """Print the table and draw the curves."""
    chosen = tyro.cli(ReportArgs, args=args, prog="tsr report")
    require("matplotlib", "agents")
    summarise: Any = load("tsr_gym.agents.report:summarise_runs")
    draw: Any = load("tsr_gym.agents.report:draw_curves")
    report = summarise(chosen.runs)
    show(report)
    draw(chosen.runs, chosen.out)
    print(f"curves: {chosen.out}")
    return 0


def show(report: Any) -> None:
    """Print a report's tables."""
    console = Console()
    # A table that is piped into a file should not be folded at 80 columns.
    wide = Console(width=None if console.is_terminal else 180)
    for part in (report.ends, report.by_updates, report.by_tokens):
        table = Table(title=part.title, caption=part.caption)
        for number, name in enumerate(part.columns):
            table.add_column(name, justify="left" if number == 0 else "right")
        for row in part.rows:
            table.add_row(*row)
        wide.print(table)
