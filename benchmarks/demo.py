"""The demonstration: does search during training pay? Small enough for two cores and a quarter of an hour.

Trains the embedded base model on Sokoban with instance filtering (plain rollouts), with beam search, with beam search
guided by a potential, and with instance filtering at beam's number of sampled tokens: the control without which beam
would be compared at several times the samples. Every method sees the same instances, and is evaluated without search
on held-out rooms, beside the random and the optimal bar.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from time import sleep

import tyro
from measure import write_result
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from tsr_gym.agents.reports.report import draw_curves, summarise_runs
from tsr_gym.agents.runs.base_model import build_base_model
from tsr_gym.agents.runs.base_recipe import BaseRecipe
from tsr_gym.cli.tables import show_tables

ENV_SET = "solution_length=[3,10]"
# Of the small-scale recipe, not of the paper: rates for a model of 0.1 million parameters, and a filter that keeps only
# groups with successes and failures, because return spread alone let such runs collapse.
COMMON = (
    "--groups 16 --trajectories 8 --keep 0.5 --filter mixed_success --lr 5e-4 --critic-lr 1e-3 --entropy 0.003 "
    "--microbatch 256 --save-trees 1"
)
HEADLINE = (
    "Does search during training pay? Sokoban, played without search on held-out rooms after each kind of training"
)
SMOKE = "smoke only shows that it runs: these numbers say nothing about the methods"
# The command that this Python has.
TSR = os.path.relpath(Path(sys.executable).with_name("tsr"))


@dataclass(frozen=True, slots=True)
class DemoArgs:
    """Train with and without search on Sokoban and compare, at equal updates and at equal sampled tokens."""

    seeds: int = 3
    """Runs per method; three show that learning works, eight or more may rank methods."""
    updates: int = 40
    """Updates per run."""
    smoke: bool = False
    """Only show that everything runs: one seed, a few updates, a base model of little skill."""
    out: Path = Path("runs/demo")
    """Where everything goes; runs that are there already are continued or kept."""
    workers: int = os.cpu_count() or 1
    """Runs side by side."""
    record: bool = False
    """Also write the table to benchmarks/results/demo.json."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run."""

    name: str
    flags: tuple[str, ...]
    updates: int


def main() -> int:
    """Build the base model, train everything, report."""
    args = tyro.cli(DemoArgs)
    args.out.mkdir(parents=True, exist_ok=True)
    out = args.out / "smoke" if args.smoke else args.out
    seeds, updates, instances = (1, 4, 64) if args.smoke else (args.seeds, args.updates, 512)
    base = _base_model(out, smoke=args.smoke)
    common = (*COMMON.split(), "--model", str(base), "--env-set", ENV_SET, "--eval-instances", str(instances))
    first, second = _jobs(out, common, range(seeds), updates)
    print(HEADLINE, flush=True)
    print(f"{len(first) + len(second)} runs of {updates} updates, {args.workers} side by side", flush=True)
    with _bars() as bars:
        _train(out, first, args.workers, bars)
        _train(out, second, args.workers, bars)
    folders = [out / job.name for job in sorted([*first, *second], key=lambda job: job.name)]
    report = summarise_runs(folders)
    print(SMOKE if args.smoke else HEADLINE)
    show_tables((report.ends, report.by_updates, report.by_tokens))
    draw_curves(folders, out / "report.png")
    (out / "report.json").write_text(json.dumps(asdict(report), indent=2))
    if args.record:
        write_result("demo", asdict(report))
    print(f"curves: {out / 'report.png'}   table: {out / 'report.json'}   one run: {TSR} report {folders[0]}")
    return 0


def _base_model(out: Path, *, smoke: bool) -> Path:
    folder = out / "base"
    if not folder.exists():
        recipe = BaseRecipe(env_set=(ENV_SET,), band=(0.02, 0.1))
        if smoke:
            recipe = BaseRecipe(env_set=(ENV_SET,), band=(0.0, 1.0), steps=150, instances=500, episodes=2, poor_steps=0)
        build_base_model("sokoban", folder, recipe, note=lambda text: print(f"base model: {text}"))
    return folder


def _jobs(out: Path, common: Sequence[str], seeds: range, updates: int) -> tuple[list[Job], list[Job]]:
    """Return the beam runs, and the others, some of which need to know what beam sampled."""
    beam = ("--search", "beam", "--width", "2", "--branching", "4")
    potential = ("--score", "SokobanScore(potential='estimate')")

    def job(number: int, label: str, name: str, seed: int, *flags: str) -> Job:
        return Job(f"{number}-{name}-s{seed}", (*common, "--seed", str(seed), "--label", label, *flags), updates)

    first = [job(2, "beam(2,4), reward", "beam", seed, *beam) for seed in seeds]
    second = []
    for seed in seeds:
        matched = ("--match-tokens", str(out / f"2-beam-s{seed}"))
        second.append(job(4, "instance filtering, beam's tokens", "matched", seed, *matched))
    for seed in seeds:
        second.append(job(3, "beam(2,4), reward + potential (estimate)", "potential", seed, *beam, *potential))
        second.append(job(1, "instance filtering", "naive", seed))
    return first, second


def _train(out: Path, jobs: Sequence[Job], workers: int, bars: Progress) -> None:
    """Run jobs side by side and show how far each has come.

    Raises:
        SystemExit: A run failed; its log says why.
    """
    with ThreadPoolExecutor(workers) as pool:
        tasks = {job.name: bars.add_task(job.name, total=job.updates, last="waiting") for job in jobs}
        running: list[Future[int]] = [pool.submit(_run, out, job) for job in jobs]
        while not all(future.done() for future in running):
            for job in jobs:
                _show(out, job, bars, tasks[job.name])
            sleep(0.5)
    for job, future in zip(jobs, running, strict=True):
        _show(out, job, bars, tasks[job.name])
        if status := future.result():
            sys.exit(f"{job.name} failed with status {status}:\n{(out / f'{job.name}.log').read_text()[-2000:]}")


def _run(out: Path, job: Job) -> int:
    folder = out / job.name
    command = [sys.executable, "-m", "tsr_gym.cli", "train"]
    if folder.exists():
        command += ["--resume", str(folder)]
    else:
        command += ["sokoban", "--out", str(folder), "--updates", str(job.updates), *job.flags]
    with open(out / f"{job.name}.log", "a") as log:
        return subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False).returncode


def _bars() -> Progress:
    columns = (TextColumn("{task.description:<18}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, TextColumn("{task.fields[last]}"), console=Console(), disable=not Console().is_terminal)


def _show(out: Path, job: Job, bars: Progress, task: TaskID) -> None:
    folder = out / job.name
    done = _lines(folder / "metrics.jsonl")
    held_out = _lines(folder / "evaluations.jsonl")
    last = f"held out {100 * json.loads(held_out[-1])['success']:.0f} %" if held_out else "waiting"
    before = bars.tasks[task].fields["last"]
    bars.update(task, completed=len(done), last=last)
    # Where no bar can be drawn, a line for each evaluation that says something new.
    if bars.disable and last != before:
        print(f"{job.name}: {len(done)} of {job.updates} updates, {last}", flush=True)


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


if __name__ == "__main__":
    sys.exit(main())
