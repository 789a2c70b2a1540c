"""Word worlds: what ``tsr train webshop`` and ``tsr train retrieval_qa`` learn with no further choice, in a picture.

Plain play, and whatever the embedded models' cards say of learning. Both stop after as many updates as fit into ten
minutes on two cores, the building of the base model left out.
"""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import tyro
from matplotlib import pyplot

from benchmarks.measure import RESULTS, write_result
from benchmarks.tsr_runs import Row, command, measured, train

NAME = "word_worlds"
FIGURE = RESULTS.parents[1] / "docs" / "images" / f"{NAME}.png"
WORLDS = {"webshop": "the shop", "retrieval_qa": "questions of one and two hops"}


@dataclass(frozen=True, slots=True)
class WordArgs:
    """Train both worlds of words as their cards say, and draw how they learn."""

    updates: int = 80
    """Of each run."""
    out: Path = Path("runs/word_worlds")
    """Where runs go; what is finished there is not done again."""
    workers: int = os.cpu_count() or 1
    """Runs side by side."""
    draw: bool = False
    """Run nothing: draw the result file again."""


def main() -> int:
    """Train, record and draw."""
    args = tyro.cli(WordArgs)
    if not args.draw:
        flags = {world: f"train {world} --updates {args.updates}" for world in WORLDS}
        train(args.out, flags, args.workers)
        found = {world: measured(args.out / "cells" / world) for world in WORLDS}
        rows = [{"world": world, "command": command(flags[world])} | row for world, row in found.items() if row]
        write_result(NAME, {"runs": rows})
    draw(json.loads((RESULTS / f"{NAME}.json").read_text())["runs"], FIGURE)
    return 0


def draw(runs: list[Row], out: Path) -> None:
    """Draw held-out success over the minutes of training, a panel per world, beside random and optimal play."""
    figure, panels = pyplot.subplots(1, len(runs), figsize=(4 * len(runs), 3.4), layout="constrained", squeeze=False)
    for panel, run in zip(panels[0], runs, strict=True):
        minutes = [point["seconds"] / 60 for point in run["points"]]
        panel.plot(minutes, [100 * point["success"] for point in run["points"]], "o-", label="trained")
        for bar, colour in (("random", "grey"), ("optimal", "C2")):
            level = run["points"][-1][bar]
            if level is not None:
                panel.axhline(100 * level, color=colour, linestyle="--", label=bar)
        panel.set_title(f"tsr train {run['world']}: {WORLDS[run['world']]}", fontsize=10)
        panel.set_xlabel("minutes of training")
        panel.set_ylim(0, None)
        panel.grid(alpha=0.3)
    panels[0][0].set_ylabel("held-out success, %")
    panels[0][0].legend(fontsize=8)
    figure.savefig(out, dpi=140)
    pyplot.close(figure)


if __name__ == "__main__":
    sys.exit(main())
