"""Methods: from folders to runs by method, each seed once, all evaluated on the same instances; torch-free."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tsr_gym.agents.runs.config import TrainConfig
from tsr_gym.agents.runs.log import JsonLines
from tsr_gym.errors import CheckpointError, ConfigError
from tsr_gym.keywords import parse_settings
from tsr_gym.registration import env_id

# Settings in which the runs of one method may differ.
_NO_METHOD = (
    *("env", "run.seed", "run.out", "run.label"),
    *("run.checkpoint_every", "run.keep_checkpoints", "run.save_trees"),
)


@dataclass(frozen=True, slots=True)
class Run:
    """One run, as its files tell it.

    Attributes:
        folder: Where it lies.
        label: What its method is called.
        config: All settings.
        updates: The lines of ``metrics.jsonl``.
        evaluations: The lines of ``evaluations.jsonl``.
    """

    folder: Path
    label: str
    config: TrainConfig
    updates: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]


def load_run(folder: Path) -> Run:
    """Read a run's folder.

    Raises:
        CheckpointError: The folder holds no run, or one without any evaluation.
    """
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder}: wanted the folder of a run with config.json, found none")
    config = TrainConfig.from_json((folder / "config.json").read_bytes(), source=str(folder / "config.json"))
    evaluations = JsonLines(folder / "evaluations.jsonl").read()
    if not evaluations:
        raise CheckpointError(f"{folder}: the run has not been evaluated yet")
    return Run(folder, label_of(config), config, JsonLines(folder / "metrics.jsonl").read(), evaluations)


def label_of(config: TrainConfig) -> str:
    """Return what reports call a run's method."""
    search = config.search
    if config.run.label:
        return config.run.label
    score = "" if config.task.score == "reward" else f", {config.task.score}"
    matched = ", matched tokens" if search.match_tokens else ""
    return f"{search.search}{score}{matched}"


def load_comparable(folders: Sequence[Path]) -> list[Run]:
    """Return runs that were evaluated on the same instances.

    Raises:
        CheckpointError: A folder holds no evaluated run.
        ConfigError: There is no folder, or the runs were evaluated on different instances.
    """
    if not folders:
        raise ConfigError("wanted the folder of at least one run")
    runs = [load_run(folder) for folder in folders]
    for folder, run in zip(folders, runs, strict=True):
        if _instances_of(run) != _instances_of(runs[0]):
            raise ConfigError(f"{folder} was evaluated on other instances than {folders[0]}: report them apart")
    return runs


def _instances_of(run: Run) -> tuple[Any, ...]:
    """Return all that decides which held-out instances a run was evaluated on."""
    task = run.config.task.held_out
    settings = parse_settings(task.env_set)
    return env_id(run.config.env), task.preset, settings, task.eval_split, run.evaluations[0]["instances"]


def runs_by_method(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Return the runs of each method by its name.

    Raises:
        ConfigError: Two runs of a method have the same seed, so that one of them says nothing of its own.
    """
    found: dict[str, list[Run]] = {}
    settings = [dict(_settings(asdict(run.config))) for run in runs]
    for run, own in zip(runs, settings, strict=True):
        alike = [other for twin, other in zip(runs, settings, strict=True) if twin.label == run.label]
        differing = [name for name in own if any(other[name] != own[name] for other in alike)]
        words = [f"{name.rpartition('.')[2]}={own[name]}" for name in differing]
        found.setdefault(", ".join([run.label, *words]), []).append(run)
    for name, members in found.items():
        by_seed: dict[int, Run] = {}
        for run in members:
            twin = by_seed.setdefault(run.config.run.seed, run)
            if twin is not run:
                raise ConfigError(
                    f"{twin.folder} and {run.folder} are both seed {run.config.run.seed} of {name}: report one of them"
                )
    return found


def _settings(section: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the settings that make a method, by section and name."""
    for name, value in section.items():
        if isinstance(value, Mapping):
            yield from _settings(value, f"{path}{name}.")
        elif path + name == "search.match_tokens":
            # Every seed has a run of its own to match.
            yield "match_tokens", value is not None
        elif path + name not in _NO_METHOD:
            yield path + name, value
