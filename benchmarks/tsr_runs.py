"""Runs of a study: base models and training runs in processes side by side; finished ones are kept.

A run's folder is its name among the cells of the study. An interrupted run resumes from its last checkpoint.
"""

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from itertools import accumulate
from multiprocessing import get_context
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from tsr_gym.agents.cli.output import SILENCE
from tsr_gym.agents.config import RUN_FILE, TrainConfig
from tsr_gym.agents.runs.log import JsonLines
from tsr_gym.agents.runs.progress import read_targets, total_of
from tsr_gym.orphans import end_with_parent

Row = dict[str, Any]


class Job(NamedTuple):
    """A call that one process does, and the file of what it prints."""

    call: Callable[..., int]
    args: tuple[Any, ...]
    log: Path


def words(flags: str) -> list[str]:
    """Return flags as a list; quotes are part of a call, as in ``merge='state'``."""
    return flags.split()


def command(flags: str) -> str:
    """Return a command line as a shell takes it."""
    return shlex.join(["tsr", *words(flags)])


def build_bases(out: Path, recipes: Mapping[str, str], workers: int) -> None:
    """Build the base models that are not there yet, each on a separate core; recipes are flags, by name."""
    jobs = [
        command_job(f"base-model {flags} --out {out / 'bases' / name}", out / "logs" / f"base-{name}.log")
        for name, flags in recipes.items()
        if not (out / "bases" / name).exists()
    ]
    run_all(jobs, workers)


def base_row(out: Path, name: str, recipe: str) -> Row | None:
    """Return the success of a base model from its card, None where it was not built."""
    card = out / "bases" / name / "tsr_gym.json"
    if not card.exists():
        return None
    about = json.loads(card.read_text())["about"]
    numbers = {key: about[key] for key in ("success", "success_skilled", "valid") if key in about}
    return {"base": name, "command": command(f"base-model {recipe}"), **numbers}


def train(out: Path, runs: Mapping[str, str], workers: int, *, watch: Callable[[], object] | None = None) -> None:
    """Train the runs that are not finished; an interrupted run resumes from its last checkpoint.

    Args:
        out: Folder of the study.
        runs: Settings of each run by its name, as the command that a user would type, without its folder.
        workers: Number of runs side by side.
        watch: Called twice a second; None to print a line for every finished run.
    """
    jobs = [
        Job(_train, (words(flags)[1:], out / "cells" / name), out / "logs" / f"{name}.log")
        for name, flags in runs.items()
        if not finished(out / "cells" / name)
    ]
    (out / "cells").mkdir(parents=True, exist_ok=True)
    run_all(jobs, workers, watch)


def _train(settings: list[str], folder: Path) -> int:
    """Train one run, new or resumed, and return the exit status: 0 for a finished run."""
    from tsr_gym.agents.cli.train import read_train
    from tsr_gym.agents.config import build_config
    from tsr_gym.agents.runs import train as runs
    from tsr_gym.agents.runs.trainer import resume_run
    from tsr_gym.agents.runs.workers.on_ray import connected

    command = read_train(settings)
    if folder.exists():
        with connected(command.workers):
            return int(not resume_run(folder, workers=command.workers).run(watch=_print))
    config = build_config(command.env, command.settings)
    config = replace(config, run=replace(config.run, out=folder))
    return int(not runs.train(config, watch=_print, note=print, workers=command.workers).finished)


def _print(event: str, record: Row) -> None:
    if event == "evaluation":
        print(f"held out after {record['step']} updates: success {record['success']:.3f}")


def finished(folder: Path) -> bool:
    """Return whether a run was evaluated after its last update, or after the last of its tokens."""
    if not (folder / RUN_FILE).is_file():
        return False
    run = TrainConfig.load(folder).run
    evaluations = JsonLines(folder / "evaluations.jsonl").read()
    if not evaluations:
        return False
    last, total = evaluations[-1], total_of(run, read_targets(folder))
    return last["step"] >= run.updates or (total is not None and last["sampled_tokens_total"] >= total)


def measured(folder: Path) -> Row | None:
    """Return costs of a run and a point per evaluation from its files; None where it is not finished."""
    if not finished(folder):
        return None
    updates = JsonLines(folder / "metrics.jsonl").read()
    seconds = list(accumulate((line["seconds"]["all"] for line in updates), initial=0.0))
    counts = ("model_calls", "env_steps", "restores", "groups", "groups_kept")
    kept = ("success", "total_reward", "response_length", "turns", "valid", "distinct", "random", "optimal")
    return {
        **{name: sum(line[name] for line in updates) for name in counts},
        "optimizer_steps": sum(line["optimizer_steps"] or 0 for line in updates),
        "seconds": round(seconds[-1], 1),
        "points": [
            {
                "step": line["step"],
                "sampled_tokens": line["sampled_tokens_total"],
                "prompt_tokens": line["prompt_tokens_total"],
                "seconds": round(seconds[line["step"]], 1),
                **{name: line[name] for name in kept},
            }
            for line in JsonLines(folder / "evaluations.jsonl").read()
        ],
    }


def command_job(flags: str, log: Path) -> Job:
    """Return the job of a command line of ``tsr``."""
    return Job(_command, (words(flags),), log)


def _command(args: list[str]) -> int:
    from tsr_gym.agents.cli import main

    return main(args)


def run_command(command: Sequence[str]) -> int:
    """Run a command and return its status; a request to end this process ends the command first."""
    with subprocess.Popen(command) as process:
        before = signal.signal(signal.SIGTERM, lambda number, frame: process.terminate())
        try:
            return process.wait()
        finally:
            signal.signal(signal.SIGTERM, before)


def run_all(jobs: list[Job], workers: int, watch: Callable[[], object] | None = None) -> None:
    """Run jobs in processes that are used again, so that libraries are imported once.

    Raises:
        SystemExit: A job failed; its log has the reason.
    """
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_begin_worker) as pool:
        logs = {pool.submit(_run, job): job.log for job in jobs}
        running, last_shown, shown_at = set(logs), "", monotonic()
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
            elif monotonic() - shown_at > SILENCE:
                before, last_shown, shown_at = last_shown, _last_lines(logs[job] for job in running), monotonic()
                if last_shown != before:
                    print(last_shown, flush=True)


def _last_lines(logs: Iterable[Path]) -> str:
    """Return the last line of each log that has one, after its name."""
    texts = {log.stem: log.read_text().strip() for log in sorted(logs) if log.exists()}
    return "\n".join(f"{name}: {text.splitlines()[-1]}" for name, text in texts.items() if text)


def _begin_worker() -> None:
    # A worker of a killed pool would train on, and take the next jobs of the queue.
    end_with_parent()
    os.environ["OMP_NUM_THREADS"] = "1"


def _run(job: Job) -> int:
    job.log.parent.mkdir(parents=True, exist_ok=True)
    with open(job.log, "a", buffering=1) as file, redirect_stdout(file), redirect_stderr(file):
        return job.call(*job.args)
