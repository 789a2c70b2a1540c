"""Runs: probe the base models, and do the runs of the study side by side; whatever is there is kept."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks.pay.plan import Cell, Setting
from benchmarks.tsr_runs import Row, command, measured, run_all, train


def probe(out: Path, wanted: Iterable[tuple[Setting, str]], workers: int, *, instances: int, episodes: int) -> None:
    """Measure what a success costs before training, for each setting and base model."""
    jobs = []
    for setting, base in sorted(set(wanted), key=str):
        name = probe_name(setting, base)
        search, score = setting.probe
        flags = (
            f"probe {setting.world} --model {out / 'bases' / base} --search {search} --score {score} --instances "
            f"{instances} --episodes {episodes} --json {out / 'probes' / name}.json"
        ) + (f" --env-set {setting.env_set}" if setting.env_set else "")
        if not (out / "probes" / f"{name}.json").exists():
            jobs.append((flags, out / "logs" / f"probe-{name}.log"))
    (out / "probes").mkdir(parents=True, exist_ok=True)
    run_all(jobs, workers)


def probe_name(setting: Setting, base: str) -> str:
    """Return the name of a probe's file."""
    return f"{setting.world}-{setting.name}-{base}".replace(" ", "-")


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
    of_point = ("sampled_tokens", "prompt_tokens", "success", "distinct", "optimal")
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


def probe_row(out: Path, setting: Setting, base: str) -> Row | None:
    """Return a probe's rows, None where it was not made."""
    path = out / "probes" / f"{probe_name(setting, base)}.json"
    if not path.exists():
        return None
    rows = json.loads(path.read_text())
    return {
        "probe": probe_name(setting, base),
        "world": setting.world,
        "setting": setting.name,
        "base": base,
        "rows": rows,
    }


def _label(cell: Cell) -> str:
    return cell.method.name.replace(" ", "_")
