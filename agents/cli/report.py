"""`tsr report`: compare runs in tables and a plot, and report their problems."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from tsr_gym.agents.cli.arguments import read_arguments
from tsr_gym.agents.cli.output import progress_bar, show_tables, with_json, write_json
from tsr_gym.optional import require


@dataclass(frozen=True, slots=True)
class ReportArgs:
    """Compare runs: success on held-out instances in tables and as curves, and the problems of each run."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders of runs; those with the same settings and other seeds count as one method."""
    out: Path = Path("report.png")
    """File for the curves."""
    json: Path | None = None
    """File for the tables, differences and findings as JSON; without a file they are printed."""
    against: str | None = None
    """Label or name of the method that the others are paired with, seed by seed; the first by default."""
    equal: Literal["sampled_tokens", "prompt_tokens", "env_steps", "seconds", "optimizer_steps"] = "sampled_tokens"
    """Quantity at which pairs are compared."""


def main(args: list[str]) -> int:
    """Print tables and findings, and draw the curves."""
    options = read_arguments(ReportArgs, with_json(args), prog="tsr report")
    require("matplotlib", "agents")
    from tsr_gym.agents.reports.report import draw_curves, summarise_runs

    with progress_bar() as watch:
        report = summarise_runs(options.runs, against=options.against, equal=options.equal, watch=watch)
    shows = write_json(report, options.json)
    if shows:
        _show(report)
    with progress_bar("drawing the curves"):
        draw_curves(options.runs, options.out)
    if shows:
        print(f"curves: {options.out}")
        if options.json is not None:
            print(f"tables: {options.json}")
    return 0


def _show(report: Any) -> None:
    show_tables((report.ends, report.by_updates, report.by_tokens, report.runs))
    if report.pairs.rows:
        show_tables((report.pairs,))
    for folder, progress in report.unfinished.items():
        print(f"{folder}: {progress}: left out of final success and of pairs")
    for folder, words in report.searched.items():
        print(f"{folder}: {words}")
    for folder, findings in report.findings.items():
        for finding in findings:
            print(f"{folder}: {finding.name}: {finding.what}\n    {finding.advice}")
