"""`tsr train`: train a language model on searched trajectories, or continue a run.

Several processes train together under torchrun: torchrun --nproc-per-node 2 -m tsr_gym train ...
"""

import os
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, make_dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tsr_gym.agents.cli.arguments import ASK, Asked, Numbers, flags_of, parse, read_arguments
from tsr_gym.agents.cli.output import Shown, show_tables, still_working
from tsr_gym.agents.config import Setting, TrainConfig, build_config, collect_settings
from tsr_gym.agents.config.recipes import read_config_file
from tsr_gym.agents.config.resolve import sources_in_words
from tsr_gym.agents.config.sections import SECTIONS
from tsr_gym.agents.runs.check import check_resume, check_start
from tsr_gym.agents.runs.train import collecting_rarely
from tsr_gym.agents.runs.workers.on_ray import WorkerConfig
from tsr_gym.errors import ConfigError
from tsr_gym.optional import TRUST, importing, importing_only, require
from tsr_gym.sections import settings_of

# The settings that --help shows; --help-all shows all.
FIRST = (
    *("preset", "env_set", "score", "search", "groups", "trajectories", "naive", "search_when"),
    *("model", "filter", "algorithm", "estimator", "lr", "minibatch", "lora_rank"),
    *("out", "label", "updates", "total_tokens", "seed", "eval_every", "eval_instances"),
)


@dataclass(frozen=True, kw_only=True)
class Door:
    """The arguments of `tsr train` that are not settings of a run."""

    env: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")] = None
    """Gymnasium id, package.module:Id of yours, or a short name such as sokoban."""
    recipe: Annotated[str | None, tyro.conf.arg(metavar="{tsr+,levin,filtering,paper,FILE.toml}")] = None
    """Of training: tsr+, plain play first and a guided search where it fails; levin, the same with a search that needs
    no guide, for moves that are certain; filtering, plain play alone, the control of both (all three this project's
    own, see docs/does_search_pay.md); paper, beam search with the paper's proxy and algorithm for the world. Flags win
    over it."""
    config: Annotated[Path | None, tyro.conf.arg(metavar="FILE.toml")] = None
    """Settings in a file, such as the run.toml in the folder of a run. Flags win over it."""
    dry_run: bool = False
    """Print every setting with its source, and an estimate of tokens, memory and processes; train nothing."""


@dataclass(frozen=True, kw_only=True)
class ResumeArgs:
    """Continue a run from its latest checkpoint."""

    resume: Annotated[Path, tyro.conf.arg(metavar="FOLDER")]
    """Folder of the run."""
    updates: int | None = None
    """A new number of updates; the run's own by default."""
    total_tokens: int | None = None
    """A new number of tokens at which the run ends; the run's own by default."""
    trust: tuple[str, ...] = ()
    """Modules of yours that the run names: no other module is imported because a file names it."""
    workers: WorkerConfig = field(default_factory=WorkerConfig)


def main(args: list[str]) -> int:
    """Train and return 0 at the end of the run, 130 after an interruption."""
    if any(arg == "--resume" or arg.startswith("--resume=") for arg in args):
        resumed = _read_resume(args)
        check_resume(resumed.resume)
        with importing_only(resumed.trust, TRUST):
            return _train(partial(_resume, resumed), resumed.workers)
    if {"-h", "--help"} & set(args):
        text = "tsr train --help-all shows every setting."
        try:
            parse(_flags(FIRST), ["--help"], prog="tsr train")
        finally:
            print(text)
    command = read_train(["--help" if arg == "--help-all" else arg for arg in args])
    config = build_config(command.env, command.settings)
    if command.dry_run:
        return _dry_run(config, command)
    _require_learning()
    # Before the libraries of learning are imported, which takes seconds.
    check_start(config)
    return _train(partial(_begin, config, command), command.workers)


@dataclass(frozen=True, slots=True)
class TrainCommand:
    """A command line of `tsr train`, read.

    Attributes:
        env: The environment.
        settings: Every setting with its source.
        workers: Where searches run.
        dry_run: Whether nothing is to be trained.
    """

    env: str
    settings: dict[str, Setting]
    workers: WorkerConfig
    dry_run: bool


def read_train(args: list[str]) -> TrainCommand:
    """Return the command that a command line of `tsr train` describes.

    Recipe, file and model decide the defaults of other settings; flags win over all of them.

    Raises:
        ConfigError: A setting is unknown or impossible.
        SystemExit: The command line cannot be read.
    """
    if args == [ASK]:
        raise Asked(_flags())
    flags = parse(_flags(), args, prog="tsr train")
    file = None if flags.config is None else read_config_file(flags.config)
    env = flags.env or (file.env if file else None)
    if env is None:
        raise ConfigError("wanted the environment: tsr train ENV, or env in the file of --config; got none")
    names = _named(args)
    given = {name: value for name, value in _settings(flags).items() if name in names}
    numbers = {name: value for name, value in settings_of(flags.numbers).items() if value is not None}
    settings = collect_settings(env, recipe=flags.recipe, file=file, given=given | numbers)
    return TrainCommand(env, settings, WorkerConfig(**settings_of(flags.workers)), flags.dry_run)


def read_config(args: list[str]) -> TrainConfig:
    """Return the configuration that a command line of `tsr train` describes; see `read_train`."""
    command = read_train(args)
    return build_config(command.env, command.settings)


def _named(args: list[str]) -> set[str]:
    """Return the names of the flags in a command line, those that begin with ``no-`` also without it."""
    names = {arg[2:].partition("=")[0].replace("-", "_") for arg in args if arg.startswith("--")}
    return names | {name.removeprefix("no_") for name in names}


def _settings(flags: Any) -> dict[str, Any]:
    """Return the settings of the sections among flags, by name."""
    values = vars(flags)
    return {
        name: value for section in SECTIONS if section in values for name, value in settings_of(values[section]).items()
    }


def _flags(only: tuple[str, ...] | None = None) -> type[Any]:
    """Return the dataclass of the flags of `tsr train`; with `only`, of these settings."""
    sections = {name: flags_of(section, only=only) for name, section in SECTIONS.items()}
    own = [
        (name, flags, field(default_factory=flags)) for name, flags in sections.items() if flags.__dataclass_fields__
    ]
    if only is None:
        workers = flags_of(WorkerConfig)
        own.append(("workers", workers, field(default_factory=workers)))
    numbers = flags_of(Numbers)
    own.append(("numbers", numbers, field(default_factory=numbers)))
    text = "Train a language model on searched trajectories. Continue a run: tsr train --resume FOLDER."
    return make_dataclass(
        "TrainArgs", own, bases=(flags_of(Door),), namespace={"__doc__": text}, frozen=True, kw_only=True
    )


def _read_resume(args: list[str]) -> ResumeArgs:
    try:
        resumed: ResumeArgs = read_arguments(ResumeArgs, args, prog="tsr train")
    except SystemExit as end:
        if end.code:
            allowed = [item.name for section in (ResumeArgs, WorkerConfig) for item in fields(section)]
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in allowed if name not in ("resume", "workers"))
            print(
                f"tsr train: --resume FOLDER stands alone or with {flags}; all else is the run's own", file=sys.stderr
            )
        raise
    return resumed


def _begin(config: TrainConfig, command: TrainCommand, processes: Any) -> Any:
    from tsr_gym.agents.runs.train import begin_run

    with still_working() as note:
        trainer = begin_run(config, processes=processes, workers=command.workers, note=note)
    # The line comes after the checks of begin_run, so that a wrong setting is the only line of its output.
    if processes.leads:
        print(sources_in_words(command.settings), file=sys.stderr)
    return trainer


def _resume(resumed: ResumeArgs, processes: Any) -> Any:
    _require_learning()
    with importing():
        from tsr_gym.agents.runs.trainer import resume_run

    numbers = {"updates": resumed.updates, "total_tokens": resumed.total_tokens}
    return resume_run(resumed.resume, **numbers, processes=processes, workers=resumed.workers)


def _require_learning() -> None:
    from tsr_gym.agents.runs.train import LEARNING

    for package in LEARNING:
        require(package, "agents")


def _train(begin: Any, workers: WorkerConfig) -> int:
    """Begin or continue a run, train it, and return the exit status."""
    from tsr_gym.agents.processes import joined
    from tsr_gym.agents.runs.workers.on_ray import connected

    with connected(workers), joined() as processes:
        trainer = begin(processes)
        advice = f"resume: {shlex.join(['tsr', 'train', '--resume', str(trainer.folder), *_trust(trainer.config)])}"
        try:
            with _Signals(reports=processes.leads) as signals:
                finished = _run(trainer, signals)
        except KeyboardInterrupt:
            if processes.leads:
                print(advice, file=sys.stderr)
            raise
        if processes.leads:
            print(_end(trainer))
            if not finished:
                print(advice, file=sys.stderr)
    # With several processes the signal may have reached only another process, so the status is the same in all.
    return 0 if finished else signals.exit_status


def _trust(config: TrainConfig) -> list[str]:
    """Return the flag that a run with modules of the user needs when it is resumed."""
    return ["--trust", *config.modules] if config.modules else []


def _dry_run(config: TrainConfig, command: TrainCommand) -> int:
    """Print the settings with their sources, and the tokens, memory and processes that the run would need."""
    from tsr_gym.agents.runs.check import estimate
    from tsr_gym.agents.teaching.base_model import default_folder

    check_start(config)
    values = settings_of(config)
    rows = [[name, str(values[name]), setting.source] for name, setting in command.settings.items()]
    show_tables([Shown("settings", ["setting", "value", "source"], rows)])
    model = config.model.model
    folder = default_folder(config.env, config.task.env_set) if model == "default" else Path(model)
    if folder.exists():
        cost = estimate(config, folder)
        gib = [f"{size / 2**30:.2f}" for size in (cost.model_bytes, cost.optimizer_bytes, cost.batch_bytes)]
        print(f"parameters: {cost.parameters:,}, of which the optimizer updates {cost.trained:,}")
        print(f"tokens per update: {cost.tokens:,} ({cost.tokens_from})")
        print(f"engine: {cost.engine}")
        print(f"memory, GiB: model {gib[0]}, optimizer {gib[1]}, longest batch {gib[2]}")
    else:
        print(f"parameters and engine: known when the embedded model is built, at the first use, in {folder}")
    workers = f", searches in {command.workers.ray_workers} workers of Ray" if command.workers.wanted else ""
    print(f"processes: {os.environ.get('WORLD_SIZE', '1')}{workers}")
    print(f"folder: {config.folder}")
    return 0


def _run(trainer: Any, signals: "_Signals") -> bool:
    """Train with live progress: a bar in a terminal, lines elsewhere."""
    console = Console(stderr=True)

    def doing() -> str:
        return str(trainer.doing) if trainer.processes.leads else ""

    with collecting_rarely(), _progress(console) as bar, still_working(doing, bar.console) as note:
        task = bar.add_task("", total=trainer.config.run.updates, completed=trainer.progress.update)

        unlearned = _Unlearned()

        def watch(event: str, record: dict[str, Any]) -> None:
            if text := unlearned(event, record):
                bar.console.print(text, soft_wrap=True)
            if event == "update":
                bar.update(task, completed=record["step"], description=_line(record))
                note("")
            if event == "evaluation" or (not console.is_terminal and record["step"] % 10 == 0):
                text = _evaluation(record) if event == "evaluation" else f"update {record['step']}: {_line(record)}"
                note(text)

        return bool(trainer.run(watch=watch, stop=lambda: signals.asked))


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
    # The means are None if no search returned a trajectory.
    means = ("-" if record[name] is None else f"{record[name]:.2f}" for name in ("success", "reward_mean"))
    return "success {}  return {}  kept {}  tokens {}".format(*means, kept, tokens)


def _end(trainer: Any) -> str:
    run, progress = trainer.config.run, trainer.progress
    tokens = f", {progress.sampled_tokens:,} sampled and {progress.prompt_tokens:,} prompt tokens"
    if run.total_tokens is not None:
        from tsr_gym.agents.runs.progress import counted

        tokens += f", {counted(progress, run):,.0f} of {run.total_tokens:,} counted"
    return f"{trainer.folder}: {progress.update} of {run.updates} updates{tokens}"


def _evaluation(record: dict[str, Any]) -> str:
    low, high = record["interval"]
    bars = [f"{name} {record[name]:.3f}" for name in ("random", "optimal") if record[name] is not None]
    compared = f", with {' and '.join(bars)}" if bars else ""
    return f"held out after {record['step']} updates: success {record['success']:.3f} [{low:.3f}, {high:.3f}]{compared}"


class _Unlearned:
    """Report once, with advice, that a run has stayed at the success of random play."""

    def __init__(self) -> None:
        from tsr_gym.agents.reports.diagnosis import at_random

        self._find = at_random
        self._random: float | None = None
        self._updates: list[dict[str, Any]] = []
        self._reported = False

    def __call__(self, event: str, record: dict[str, Any]) -> str:
        """Return the line to print after a record; empty for none."""
        if event == "evaluation":
            self._random = record["random"]
            return ""
        self._updates = [*self._updates[-19:], record]
        finding = None if self._reported else self._find(self._updates, self._random)
        self._reported = self._reported or finding is not None
        return f"{finding.name}: {finding.what}\n    {finding.advice}" if finding else ""


class _Signals:
    """Turn the first SIGINT or SIGTERM into a request to stop after the update; the second stops at once."""

    def __init__(self, *, reports: bool = True) -> None:
        self.asked = False
        self.reports = reports
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
        if self.reports:
            print("\nfinishing this update and writing a checkpoint; again to stop at once", file=sys.stderr)
