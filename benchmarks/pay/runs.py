"""Runs: build the base models, probe them, and do the runs of the study side by side; whatever is there is kept."""

import json
import os
import shlex
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.pay.plan import BASES, Cell, Setting
from tsr_gym.agents.runs.log import JsonLines

Row = dict[str, Any]


def words(flags: str) -> list[str]:
    """Return flags as a list; quotes are part of a call, as in ``merge='state'``."""
    return flags.split()


def command(flags: str) -> str:
    """Return a command line as a shell takes it."""
    return shlex.join(["tsr", *words(flags)])


def build_bases(out: Path, recipes: Mapping[str, str], workers: int) -> None:
    """Build the base models that are not there yet, each on a core of its own; recipes are flags, by name."""
    jobs = [
        (f"base-model {flags} --out {out / 'bases' / name}", out / "logs" / f"base-{name}.log")
        for name, flags in recipes.items()
        if not (out / "bases" / name).exists()
    ]
    _run_all(jobs, workers)


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
    _run_all(jobs, workers)


def probe_name(setting: Setting, base: str) -> str:
    """Return the name of a probe's file."""
    return f"{setting.world}-{setting.name}-{base}".replace(" ", "-")


def train(out: Path, cells: Iterable[Cell], workers: int, *, watch: Callable[[], object] | None = None) -> None:
    """Do the runs that are not finished; one that was stopped goes on from its last checkpoint.

    Args:
        out: Where everything lies.
        cells: The runs.
        workers: How many side by side.
        watch: Called twice a second meanwhile; None to print a line for every run that is done.
    """
    jobs = []
    for cell in cells:
        folder = out / "cells" / cell.name
        if not finished(folder):
            flags = f"train --resume {folder}" if folder.exists() else f"{train_flags(out, cell)} --out {folder}"
            jobs.append((flags, out / "logs" / f"{cell.name}.log"))
    (out / "cells").mkdir(parents=True, exist_ok=True)
    _run_all(jobs, workers, watch)


def train_flags(out: Path, cell: Cell) -> str:
    """Return the command line of a run but for its folder."""
    return f"train {cell.setting.world} --model {out / 'bases' / cell.base} {cell.flags()} --label {_label(cell)}"


def finished(folder: Path) -> bool:
    """Return whether a run was evaluated after the last of its tokens."""
    if not (folder / "config.json").is_file():
        return False
    total = json.loads((folder / "config.json").read_text())["run"]["total_tokens"]
    evaluations = JsonLines(folder / "evaluations.jsonl").read()
    return bool(evaluations) and evaluations[-1]["sampled_tokens_total"] >= total


def row_of(out: Path, cell: Cell) -> Row | None:
    """Return what a run's files say, None where it is not finished."""
    folder = out / "cells" / cell.name
    if not finished(folder):
        return None
    updates = JsonLines(folder / "metrics.jsonl").read()
    evaluations = JsonLines(folder / "evaluations.jsonl").read()
    return {
        "cell": cell.name,
        "world": cell.setting.world,
        "setting": cell.setting.name,
        "base": cell.base,
        "method": cell.method.name,
        "guide": cell.method.guide,
        "seed": cell.seed,
        "command": command(train_flags(Path("OUT"), cell)),
        "env_steps": sum(line["env_steps"] for line in updates),
        "optimizer_steps": sum(line["optimizer_steps"] or 0 for line in updates),
        "seconds": round(sum(line["seconds"]["all"] for line in updates), 1),
        "points": [
            {
                "sampled_tokens": line["sampled_tokens_total"],
                "prompt_tokens": line["prompt_tokens_total"],
                "success": line["success"],
                "distinct": line["distinct"],
                "optimal": line["optimal"],
            }
            for line in evaluations
        ],
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


def base_row(out: Path, name: str) -> Row | None:
    """Return what a base model's card says of its success, None where it was not built."""
    card = out / "bases" / name / "tsr_gym.json"
    if not card.exists():
        return None
    about = json.loads(card.read_text())["about"]
    known = {key: about[key] for key in ("success", "success_skilled", "valid") if key in about}
    return {"base": name, "command": command(f"base-model {BASES[name]}"), **known}


def _label(cell: Cell) -> str:
    return cell.method.name.replace(" ", "_")


def _run_all(jobs: list[tuple[str, Path]], workers: int, watch: Callable[[], object] | None = None) -> None:
    """Run commands in processes that are used again, so that libraries are imported once.

    Raises:
        SystemExit: A command failed; its log says why.
    """
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_one_thread) as pool:
        logs = {pool.submit(_run, flags, log): log for flags, log in jobs}
        running = set(logs)
        while running:
            ended, running = wait(running, timeout=0.5, return_when=FIRST_COMPLETED)
            for job in ended:
                if status := job.result():
                    pool.shutdown(cancel_futures=True)
                    raise SystemExit(f"{logs[job].stem} failed with status {status}:\n{logs[job].read_text()[-2000:]}")
                if watch is None:
                    last = " ".join(logs[job].read_text().strip().splitlines()[-1:])
                    print(f"{len(jobs) - len(running)} of {len(jobs)}: {logs[job].stem}: {last}", flush=True)
            if watch is not None:
                watch()


def _one_thread() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"


def _run(flags: str, log: Path) -> int:
    from tsr_gym.cli import main

    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "a") as file, redirect_stdout(file), redirect_stderr(file):
        return main(words(flags))
