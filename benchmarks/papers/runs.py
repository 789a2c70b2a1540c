"""Runs: the cells of a table, in processes of this machine, or where the models are large by torchrun on eight GPUs."""

import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.papers.plan import Cell, Scale
from benchmarks.tsr_runs import Row, base_row, build_bases, finished, measured, train, words
from tsr_gym.errors import ConfigError

GPUS = 8
TORCHRUN = ("torchrun", "--nproc-per-node", str(GPUS), "-m", "tsr_gym")


def recipes(cells: Sequence[Cell]) -> dict[str, str]:
    """Return how the embedded base models of some cells are built, by their names."""
    return {cell.setting.base: cell.setting.recipe for cell in cells if cell.setting.recipe}


def commands(cells: Sequence[Cell], scale: Scale, out: Path, models: Path) -> list[str]:
    """Return what a shell would be told to do the cells, base models first."""
    program = TORCHRUN if scale == "qwen" else ("tsr",)
    wanted = [f"base-model {recipe} --out {out / 'bases' / name}" for name, recipe in recipes(cells).items()]
    lines = [["tsr", *words(flags)] for flags in wanted]
    lines += [[*program, *words(cell.flags(out, models)), "--out", str(out / "cells" / cell.name)] for cell in cells]
    return [shlex.join(line) for line in lines]


def run_cells(cells: Sequence[Cell], scale: Scale, out: Path, models: Path, workers: int) -> None:
    """Do the cells that are not finished, those that match another one's tokens after it.

    Raises:
        ConfigError: A pretrained model is not there.
        SystemExit: A run failed.
    """
    if scale == "qwen":
        _run_on_gpus(cells, out, models)
        return
    build_bases(out, recipes(cells), workers)
    for matches in (False, True):
        turn = [cell for cell in cells if (cell.matched is not None) == matches]
        train(out, {cell.name: cell.flags(out, models) for cell in turn}, workers)


def _run_on_gpus(cells: Sequence[Cell], out: Path, models: Path) -> None:
    for name in dict.fromkeys(cell.setting.model for cell in cells):
        if not (models / name / "config.json").exists():
            raise ConfigError(
                f"wanted the pretrained model {name} in {models / name}, found none: download it there, or name its "
                "parent folder with --models; --dry-run only prints the commands"
            )
    for cell in cells:
        folder = out / "cells" / cell.name
        if not finished(folder):
            flags = f"train --resume {folder}" if folder.exists() else f"{cell.flags(out, models)} --out {folder}"
            subprocess.run([*TORCHRUN, *words(flags)], check=True)


def row_of(out: Path, cell: Cell, scale: Scale) -> Row | None:
    """Return what a cell's files say, None where it is not finished."""
    found = measured(out / "cells" / cell.name)
    if found is None:
        return None
    return {
        "cell": cell.name,
        "setting": cell.setting.name,
        "base": cell.setting.base,
        "method": cell.method.name,
        "seed": cell.seed,
        "command": commands([cell], scale, Path("OUT"), Path("MODELS"))[-1],
        **found,
    }


def base_rows(out: Path, cells: Sequence[Cell]) -> list[Row]:
    """Return what is known of the embedded base models of some cells."""
    found = [base_row(out, name, recipe) for name, recipe in recipes(cells).items()]
    return [row for row in found if row is not None]
