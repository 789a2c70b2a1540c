"""Figure: a measure of the held-out instances in the course of training, by method; from the result file alone."""

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

from benchmarks.papers.plan import Table

# What a measure is called, and what it is multiplied with.
AXES = {"success": ("held-out success, %", 100.0), "response_length": ("tokens of an episode", 1.0)}


def draw(table: Table, result: Mapping[str, Any], out: Path) -> None:
    """Draw a panel per setting, a thin line per run and a thick one per method; save a PNG."""
    runs, (name, factor) = result["runs"], AXES[table.view]
    settings = list(dict.fromkeys(run["setting"] for run in runs))
    width = 3.4 * len(settings) + 2.6
    figure, panels = pyplot.subplots(1, len(settings), figsize=(width, 3.6), layout="constrained", squeeze=False)
    for panel, setting in zip(panels[0], settings, strict=True):
        for number, method in enumerate(one.name for one in table.methods if one.trains):
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
    panels[0][0].set_ylabel(name)
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    figure.savefig(out, dpi=140)
    pyplot.close(figure)
