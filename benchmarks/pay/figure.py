"""Figure: the curves of the headline's runs, and what tokens per success foretold; from the result file alone."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

from benchmarks.marked_tables import words

Row = Mapping[str, Any]
COLOURS = {"tsr+": "C0", "filtering": "C1", "levin and its loss": "C3"}
COLUMNS = 3


def draw(result: Row, out: Path) -> None:
    """Draw a panel per base model of the headline, a thin line per run, and a panel of the law; save a PNG."""
    headline = [row for row in result["differences"] if row["part"] == "headline"]
    high = -(-(len(headline) + 1) // COLUMNS)
    figure, grid = pyplot.subplots(
        high, COLUMNS, figsize=(4 * COLUMNS, 3.6 * high), layout="constrained", squeeze=False
    )
    panels = grid.flatten()
    for panel, row in zip(panels, headline, strict=False):
        _curves(panel, row, result["runs"])
        panel.sharey(panels[0])
    panels[0].set_ylabel("held-out success, %")
    panels[0].legend(fontsize=8)
    _law(panels[len(headline)], (result["law"] or {"rows": []})["rows"])
    for unused in panels[len(headline) + 1 :]:
        unused.remove()
    figure.savefig(out, dpi=140)
    pyplot.close(figure)


def _curves(panel: Any, row: Row, runs: Sequence[Row]) -> None:
    for method, colour in COLOURS.items():
        mine = [
            run
            for run in runs
            if all(run[name] == row[name] for name in ("world", "setting", "base")) and run["method"] == method
        ]
        curves = [
            (
                [point["sampled_tokens"] / 1000 for point in run["points"]],
                [100 * point["success"] for point in run["points"]],
            )
            for run in mine
        ]
        for curve in curves:
            panel.plot(*curve, color=colour, alpha=0.25, linewidth=1)
        mean = [[fmean(values) for values in zip(*(curve[axis] for curve in curves), strict=False)] for axis in (0, 1)]
        if curves:
            panel.plot(*mean, color=colour, linewidth=2, label=method)
    panel.set_title(f"{row['base']}: tsr+ {words(row)}", fontsize=10)
    panel.set_xlabel("sampled tokens, thousands")
    panel.grid(alpha=0.3)


def _law(panel: Any, rows: Sequence[Row]) -> None:
    for number, world in enumerate(sorted({row["world"] for row in rows})):
        mine = [row for row in rows if row["world"] == world]
        panel.plot(
            [row["ratio"] for row in mine], [row["points"] for row in mine], "o", color=f"C{number + 2}", label=world
        )
    panel.axhline(0, color="grey", linewidth=1)
    panel.set_xscale("log")
    panel.set_xlabel("tokens per success before training:\nby plain play / by search")
    panel.set_ylabel("points that search gained")
    panel.grid(alpha=0.3)
    if rows:
        panel.legend(fontsize=8)
