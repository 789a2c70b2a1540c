"""Does search in training pay? The study: base models, probes before any learning, paired runs, and what they show.

``python -m benchmarks.does_search_pay`` does the runs that the result file does not hold yet, and adds them to it;
``--analyse`` only computes the differences again from the rows of that file, in a second. docs/does_search_pay.md
reports the results.
"""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import tyro

from benchmarks.measure import RESULTS, difference_words, laid_out, write_result
from benchmarks.pay.plan import (
    BASES,
    BY_ESTIMATE,
    FILTERING,
    TSR_PLUS,
    Cell,
    Contrast,
    Part,
    cells,
    contrasts,
    probe,
    probe_name,
    probe_row,
    row_of,
    train_cells,
)
from benchmarks.pay.report import COMMANDS, PAGE, README, commands, difference, draw, law, law_table, write_tables
from benchmarks.tsr_runs import Row, base_row, build_bases
from tsr_gym.files import write_atomically

NAME = "does_search_pay"
FIGURE = RESULTS.parents[1] / "docs" / "images" / f"{NAME}.png"
EMPTY: dict[str, Any] = {"bases": [], "probes": [], "runs": []}
# Methods that were probed before training.
LAWFUL = (TSR_PLUS.name, BY_ESTIMATE.name)
PARTS: tuple[Part, ...] = get_args(Part)


@dataclass(frozen=True, slots=True)
class StudyArgs:
    """Hold searched training against its controls at equal sampled tokens, on paired seeds."""

    part: tuple[Part, ...] = PARTS
    """What to run; what other parts left is kept."""
    quick: bool = False
    """A small study that shows that everything runs: two seeds of one setting at a tenth of the tokens."""
    analyse: bool = False
    """Run nothing: compute the differences of the result file again."""
    collect: bool = False
    """Run nothing: write the result file from what the runs have left so far."""
    out: Path = Path("runs/does_search_pay")
    """Where base models, probes and runs go; what is finished there is not done again."""
    seeds: int = 8
    """Most pairs of a contrast."""
    workers: int = os.cpu_count() or 1
    """Runs side by side."""


def main() -> int:
    """Run what is missing, write the result, and print the differences."""
    args = tyro.cli(StudyArgs)
    path = RESULTS / f"{NAME}.json"
    kept = json.loads(path.read_text()) if path.exists() and not args.quick else EMPTY
    plan = [contrast for part in PARTS for contrast in contrasts(part)]
    if args.analyse:
        kept = kept | analysed(plan, kept["runs"], kept["probes"])
        write_atomically(path, laid_out(kept).encode())
        publish(kept)
        return 0
    wanted = [contrast for part in args.part for contrast in contrasts(part)]
    runs = [cell for part in args.part for cell in cells(part) if cell.seed < args.seeds]
    out = args.out
    if args.quick:
        out = args.out / "quick"
        wanted = [quick(contrast) for contrast in contrasts("headline")][:1]
        runs = planned(wanted)
    if not args.collect:
        measured = {row["cell"] for row in kept["runs"]}
        runs = [cell for cell in runs if cell.name not in measured]
        probed = {row["probe"] for row in kept["probes"]}
        unprobed = [contrast for contrast in wanted if probe_name(contrast) not in probed]
        needed = {*(cell.base for cell in runs), *(contrast.base for contrast in unprobed)}
        build_bases(out, {base: BASES[base] for base in sorted(needed)}, args.workers)
        instances, episodes = (32, 4) if args.quick else (128, 10)
        probe(out, unprobed, args.workers, instances=instances, episodes=episodes)
        train_cells(out, runs, args.workers)
    result = collected(out, wanted if args.quick else plan, kept)
    if args.quick:
        (out / f"{NAME}.json").write_text(laid_out(result))
        show(result)
        print("a quick run only shows that it runs: these numbers say nothing about the methods")
    else:
        write_result(NAME, result)
        publish(result)
    return 0


def publish(result: dict[str, Any]) -> None:
    """Write figure, commands and tables of the documents, and print the differences."""
    draw(result, FIGURE)
    write_atomically(COMMANDS, commands(result["bases"], result["runs"]).encode())
    for page in (PAGE, README):
        write_atomically(page, write_tables(page.read_text(), result).encode())
    show(result)


def quick(contrast: Contrast) -> Contrast:
    """Return a contrast at a tenth of its tokens."""
    return replace(contrast, setting=replace(contrast.setting, tokens=contrast.setting.tokens // 10), seeds=2)


def planned(wanted: list[Contrast]) -> list[Cell]:
    """Return the runs of contrasts, each once: both methods of every seed."""
    runs = {
        Cell(contrast.setting, contrast.base, method, seed): None
        for contrast in wanted
        for seed in range(contrast.seeds)
        for method in (contrast.method, contrast.control)
    }
    return list(runs)


def collected(out: Path, wanted: list[Contrast], kept: dict[str, Any]) -> dict[str, Any]:
    """Return the content of the result file: what it held, and what the runs have left since."""
    result = {
        "bases": _joined("base", kept["bases"], [base_row(out, *base) for base in BASES.items()]),
        "probes": _joined("probe", kept["probes"], [probe_row(out, contrast) for contrast in wanted]),
        "runs": _joined("cell", kept["runs"], [row_of(out, cell) for cell in planned(wanted)]),
    }
    return result | analysed(wanted, result["runs"], result["probes"])


def _joined(key: str, kept: list[Row], again: Sequence[Row | None]) -> list[Row]:
    """Return rows as they were kept, or as they were found again, by their names."""
    return list({row[key]: row for row in (*kept, *again) if row is not None}.values())


def analysed(wanted: list[Contrast], runs: list[Any], probes: list[Any]) -> dict[str, Any]:
    """Return the differences, and the law over them."""
    rows = [row for contrast in wanted if (row := difference(contrast, runs, probes)) is not None]
    lawful = [row for row in rows if row["method"] in LAWFUL and row["control"] == FILTERING.name]
    return {"differences": rows, "law": law(lawful)}


def show(result: dict[str, Any]) -> None:
    """Print a line for each difference."""
    for row in result["differences"]:
        print(
            f"{row['world']}, {row['setting']}, {row['base']}: {row['method']} {row['success']:.1f} - {row['control']} "
            f"{row['control_success']:.1f} = {difference_words(row)}, "
            f"{row['seeds']} pairs, {row['sampled_tokens']:,} and {row['control_sampled_tokens']:,} tokens, ratio "
            f"{row['ratio']}"
        )
    print(law_table(result["law"]))


if __name__ == "__main__":
    sys.exit(main())
