"""`tsr train`: train a language model on searched trajectories, or go on with a run.

Several processes train together where torchrun starts them: torchrun --nproc-per-node 2 -m tsr_gym train ...
"""

import gc
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tsr_gym.agents.cli.arguments import read_arguments
from tsr_gym.agents.cli.recipes import follow_recipe
from tsr_gym.agents.cli.short_help import short_help
from tsr_gym.agents.cli.shortcuts import Shortcuts, fold_shortcuts
from tsr_gym.optional import load, require

# The settings that --help shows; --help-all shows the others, too.
FIRST = (
    *("--preset", "--env-set", "--score", "--search", "--groups", "--trajectories", "--naive", "--search-when"),
    *("--model", "--filter", "--algorithm", "--estimator", "--lr", "--minibatch", "--lora-rank"),
    *("--out", "--label", "--updates", "--total-tokens", "--seed", "--eval-every", "--eval-instances"),
    *("--n", "--width", "--branching", "--depth", "--recipe", "--keep"),
)


def main(args: list[str]) -> int:
    """Train and return 0 at the end of the run, 130 after an interruption."""
    if any(arg == "--resume" or arg.startswith("--resume=") for arg in args):
        chosen = read_arguments(_resume_arguments(), args, prog="tsr train")
        begin = partial(_resume, chosen)
    else:
        if {"-h", "--help"} & set(args):
            print(short_help(_arguments(), FIRST, prog="tsr train", positional=True))
            return 0
        args = ["--help" if arg == "--help-all" else arg for arg in follow_recipe(args)]
        chosen = _chosen(args)
        config = chosen.config
        _require_learning()
        # Before the libraries of learning are imported, which takes seconds.
        check: Any = load("tsr_gym.agents.runs.check:check_config")
        check(config)
        if config.model.model != "default":
            check_model_folder: Any = load("tsr_gym.agents.models.card:check_model_folder")
            check_model_folder(Path(config.model.model))
        begin = partial(_start, config, args, chosen.workers)
    _require_learning()
    joined: Any = load("tsr_gym.agents.processes:joined")
    connected: Any = load("tsr_gym.agents.runs.workers.on_ray:connected")
    with connected(chosen.workers), joined() as processes:
        trainer = begin(processes)
        with _Signals(tells=processes.leads) as signals:
            finished = _run(trainer, signals)
        if processes.leads:
            print(_end(trainer))
    # Of several processes perhaps only another one was asked to stop.
    return 0 if finished else signals.exit_status


def _configured(args: list[str]) -> Any:
    """Return the configuration of a new run."""
    return _chosen(args).config


def _chosen(args: list[str]) -> Any:
    """Return all that a command line says of a new run."""
    return read_arguments(_arguments(), fold_shortcuts(args), prog="tsr train", positional=True)


def _arguments() -> Any:
    kind: Any = load("tsr_gym.agents.runs.config:TrainConfig")
    where: Any = load("tsr_gym.agents.runs.workers.on_ray:WorkerConfig")

    @dataclass(frozen=True)
    class TrainArgs:
        """Train a language model on searched trajectories. Go on with a run: tsr train --resume FOLDER."""

        config: kind
        workers: where = field(default_factory=where)
        shortcuts: Shortcuts = field(default_factory=Shortcuts)

    return TrainArgs


def _resume_arguments() -> Any:
    where: Any = load("tsr_gym.agents.runs.workers.on_ray:WorkerConfig")

    @dataclass(frozen=True)
    class ResumeArgs:
        """Go on with a run from its latest checkpoint."""

        resume: Path
        """Folder of the run."""
        updates: int | None = None
        """A new number of updates; the run's own by default."""
        total_tokens: int | None = None
        """A new number of tokens at which the run ends; the run's own by default."""
        workers: where = field(default_factory=where)

    return ResumeArgs


def _start(config: Any, args: list[str], workers: Any, processes: Any) -> Any:
    check: Any = load("tsr_gym.agents.runs.trainer:check_run")
    processes.first(lambda: check(config))
    start: Any = load("tsr_gym.agents.runs.trainer:start_run")
    # One process builds what is not there yet, and then all find it.
    processes.first(lambda: _model_dir(config))
    model_dir = _model_dir(config)
    card: Any = load("tsr_gym.agents.models.card:ModelCard")
    settle: Any = load("tsr_gym.agents.runs.settle:settle")
    given_flags: Any = load("tsr_gym.agents.runs.settle:given_flags")
    settled = settle(config, card.load(model_dir), given_flags(args))
    if processes.leads:
        print(settled.words, file=sys.stderr)
    return start(settled.config, model_dir, processes, workers)


def _resume(chosen: Any, processes: Any) -> Any:
    resume: Any = load("tsr_gym.agents.runs.trainer:resume_run")
    wanted = {"updates": chosen.updates, "total_tokens": chosen.total_tokens}
    return resume(chosen.resume, **wanted, processes=processes, workers=chosen.workers)


def _require_learning() -> None:
    for package in ("torch", "transformers", "safetensors", "tensorboard"):
        require(package, "agents")


def _model_dir(config: Any) -> Path:
    if config.model.model != "default":
        return Path(config.model.model)
    default: Any = load("tsr_gym.agents.teaching.base_model:default_model")
    path: Path = default(config.env, config.task.env_set, note=lambda text: print(text, file=sys.stderr))
    return path


def _run(trainer: Any, signals: "_Signals") -> bool:
    """Train with live progress: a bar in a terminal, lines elsewhere."""
    console = Console(stderr=True)
    with _left_alone(), _progress(console) as bar:
        task = bar.add_task("", total=trainer.config.run.updates, completed=trainer.progress.update)

        unlearned = _Unlearned()

        def watch(kind: str, record: dict[str, Any]) -> None:
            if text := unlearned(kind, record):
                bar.console.print(text, soft_wrap=True)
            if kind == "update":
                bar.update(task, completed=record["step"], description=_line(record))
            if kind == "evaluation" or (not console.is_terminal and record["step"] % 10 == 0):
                text = _evaluation(record) if kind == "evaluation" else f"update {record['step']}: {_line(record)}"
                bar.console.print(text, soft_wrap=True)

        return bool(trainer.run(watch=watch, stop=lambda: signals.asked))


@contextmanager
def _left_alone() -> Iterator[None]:
    """Keep the collector from walking over what there is now in every update, for as long as the run lasts."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def _progress(console: Console) -> Iterator[Progress]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        yield bar


def _line(record: dict[str, Any]) -> str:
    kept = f"{record['groups_kept']}/{record['groups']}"
    tokens = f"{record['sampled_tokens_total']:,}"
    # Where no search brought a trajectory, there is no mean.
    means = ("-" if record[name] is None else f"{record[name]:.2f}" for name in ("success", "reward_mean"))
    return "success {}  return {}  kept {}  tokens {}".format(*means, kept, tokens)


def _end(trainer: Any) -> str:
    run, progress = trainer.config.run, trainer.progress
    tokens = f", {progress.sampled_tokens:,} sampled and {progress.prompt_tokens:,} prompt tokens"
    if run.total_tokens is not None:
        count: Any = load("tsr_gym.agents.runs.progress:counted")
        tokens += f", {count(progress, run):,.0f} of {run.total_tokens:,} counted"
    return f"{trainer.folder}: {progress.update} of {run.updates} updates{tokens}"


def _evaluation(record: dict[str, Any]) -> str:
    low, high = record["interval"]
    bars = [f"{name} {record[name]:.3f}" for name in ("random", "optimal") if record[name] is not None]
    beside = f", beside {' and '.join(bars)}" if bars else ""
    return f"held out after {record['step']} updates: success {record['success']:.3f} [{low:.3f}, {high:.3f}]{beside}"


class _Unlearned:
    """Say once, with advice, that a run has stayed at the success of random play."""

    def __init__(self) -> None:
        self._find: Any = load("tsr_gym.agents.reports.diagnosis:at_random")
        self._random: float | None = None
        self._updates: list[dict[str, Any]] = []
        self._said = False

    def __call__(self, kind: str, record: dict[str, Any]) -> str:
        """Return what is to be said after a record, mostly nothing."""
        if kind == "evaluation":
            self._random = record["random"]
            return ""
        self._updates = [*self._updates[-19:], record]
        finding = None if self._said else self._find(self._updates, self._random)
        self._said = self._said or finding is not None
        return f"{finding.name}: {finding.what}\n    {finding.advice}" if finding else ""


class _Signals:
    """Turn the first Ctrl-C, or a request to terminate, into a wish to stop; the second one stops at once."""

    def __init__(self, *, tells: bool = True) -> None:
        self.asked = False
        self.tells = tells
        self.exit_status = 130
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "_Signals":
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        self.exit_status = 128 + number
        signal.signal(number, signal.default_int_handler)
        if self.tells:
            print("\nfinishing this update and writing a checkpoint; again to stop at once", file=sys.stderr)
