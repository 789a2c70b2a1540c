"""`tsr report`: compare runs in a table and a picture."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from tsr_gym.cli.tables import show_tables
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
    summarise: Any = load("tsr_gym.agents.reports.report:summarise_runs")
    draw: Any = load("tsr_gym.agents.reports.report:draw_curves")
    report = summarise(chosen.runs)
    show_tables((report.ends, report.by_updates, report.by_tokens))
    draw(chosen.runs, chosen.out)
    print(f"curves: {chosen.out}")
    return 0
