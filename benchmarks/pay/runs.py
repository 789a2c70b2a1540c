"""Runs: probe the base models, and do the runs of the study side by side; whatever is there is kept."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks.pay.plan import Cell, Contrast
from benchmarks.tsr_runs import Row, command, measured, run_all, train


def probe(out: Path, wanted: Iterable[Contrast], workers: int, *, instances: int, episodes: int) -> None:
    """Measure what a success costs before training, by plain play and by the search that each contrast names."""
    jobs = []
    for name, one in sorted({probe_name(one): one for one in wanted}.items()):
        search, score = one.probe
        flags = (
            f"probe {one.setting.world} --model {out / 'bases' / one.base} --search {search} --score {score} "
            f"--instances {instances} --episodes {episodes} --json {out / 'probes' / name}.json"
        ) + (f" --env-set {one.setting.env_set}" if one.setting.env_set else "")
        if not (out / "probes" / f"{name}.json").exists():
            jobs.append((flags, out / "logs" / f"probe-{name}.log"))
    (out / "probes").mkdir(parents=True, exist_ok=True)
    run_all(jobs, workers)


def probe_name(contrast: Contrast) -> str:
    """Return the name of a probe's file."""
    own = f"-{contrast.method.name}" if contrast.method.probe else ""
    return f"{contrast.setting.world}-{contrast.setting.name}-{contrast.base}{own}".replace(" ", "-")


def train_cells(out: Path, cells: Iterable[Cell], workers: int, *, watch: Callable[[], object] | None = None) -> None:
    """Do the runs that are not finished, see `benchmarks.tsr_runs.train`."""
    train(out, {cell.name: train_flags(out, cell) for cell in cells}, workers, watch=watch)


def train_flags(out: Path, cell: Cell) -> str:
    """Return the command line of a run but for its folder."""
    return f"train {cell.setting.world} --model {out / 'bases' / cell.base} {cell.flags()} --label {_label(cell)}"


def row_of(out: Path, cell: Cell) -> Row | None:
    """Return what a run's files say, None where it is not finished."""
    found = measured(out / "cells" / cell.name)
    if found is None:
        return None
    of_run = ("env_steps", "optimizer_steps", "seconds")
    of_point = ("sampled_tokens", "prompt_tokens", "seconds", "success", "distinct", "optimal")
    return {
        "cell": cell.name,
        "world": cell.setting.world,
        "setting": cell.setting.name,
        "base": cell.base,
        "method": cell.method.name,
        "guide": cell.method.guide,
        "seed": cell.seed,
        "command": command(train_flags(Path("OUT"), cell)),
        **{name: found[name] for name in of_run},
        "points": [{name: point[name] for name in of_point} for point in found["points"]],
    }


def probe_row(out: Path, contrast: Contrast) -> Row | None:
    """Return a probe's rows, None where it was not made."""
    path = out / "probes" / f"{probe_name(contrast)}.json"
    if not path.exists():
        return None
    return {
        "probe": probe_name(contrast),
        "world": contrast.setting.world,
        "setting": contrast.setting.name,
        "base": contrast.base,
        "rows": json.loads(path.read_text()),
    }


def _label(cell: Cell) -> str:
    return cell.method.name.replace(" ", "_")
