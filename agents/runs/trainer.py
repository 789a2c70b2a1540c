"""Trainer: a run begins in a folder of its own, or goes on from its latest checkpoint."""

import shutil
from dataclasses import replace
from pathlib import Path

from tsr_gym.agents.models.language_model import pick_device
from tsr_gym.agents.processes import ALONE, Processes
from tsr_gym.agents.runs.check import check_choices, check_config
from tsr_gym.agents.runs.checkpoint import checkpoints, load_checkpoint, save_checkpoint
from tsr_gym.agents.runs.config import TrainConfig
from tsr_gym.agents.runs.folder import begin_folder, let_appear
from tsr_gym.agents.runs.matching import read_targets, token_targets
from tsr_gym.agents.runs.training import Trainer
from tsr_gym.agents.runs.warm_start import warm_started
from tsr_gym.agents.runs.workers.settings import OFF, WorkerConfig
from tsr_gym.errors import CheckpointError, ConfigError
from tsr_gym.files import check_folder


def check_run(config: TrainConfig) -> None:
    """Raise ConfigError where a run cannot begin, before a model is loaded or built for it.

    Raises:
        ConfigError: The folder exists, or a setting is unknown or impossible.
    """
    check_config(config)
    pick_device(config.model.device)
    check_choices(config)


def start_run(
    config: TrainConfig, model_dir: Path, processes: Processes = ALONE, workers: WorkerConfig = OFF
) -> Trainer:
    """Begin a run: its folder appears with the configuration and a first checkpoint, or not at all.

    Args:
        config: All settings.
        model_dir: The language model to begin with.
        processes: The processes that train together, which have to call this together.
        workers: Where searches are done.

    Raises:
        ConfigError: The folder exists, or a setting is unknown or impossible.
        CheckpointError: The model cannot be read, or the folder cannot be written.
    """
    processes.first(lambda: check_run(config))
    folder = config.folder
    targets = token_targets(config)
    begun_with = processes.first(lambda: warm_started(config, model_dir))
    trainer = Trainer(config, folder, begun_with, targets, processes, workers)
    beside = folder.with_name(f".{folder.name}.partial")
    try:
        processes.first(lambda: begin_folder(beside, config, begun_with, targets))
        save_checkpoint(beside, trainer.policy, trainer.learner, trainer.progress, trainer.parts)
        processes.first(lambda: let_appear(beside, folder))
    finally:
        if processes.leads:
            shutil.rmtree(beside, ignore_errors=True)
    return trainer


def resume_run(
    folder: Path,
    *,
    updates: int | None = None,
    total_tokens: int | None = None,
    processes: Processes = ALONE,
    workers: WorkerConfig = OFF,
) -> Trainer:
    """Go on with a run from its latest checkpoint.

    Args:
        folder: The run.
        updates: A new number of updates, None for the configured one.
        total_tokens: A new number of tokens at which it ends, None for the configured one.
        processes: Those that train together, which have to call this together; as many as there are, whatever their
            number was before.
        workers: Where searches are done, wherever that was before.

    Raises:
        CheckpointError: The folder holds no run, or its latest checkpoint or a log is damaged.
        ConfigError: The run cannot have as many updates, or another process trains it.
    """
    if not (folder / "config.json").is_file() or not checkpoints(folder):
        raise CheckpointError(f"{folder}: wanted the folder of a run with config.json and a checkpoint, found none")
    config = TrainConfig.from_json((folder / "config.json").read_bytes(), source=str(folder / "config.json"))
    total = config.run.total_tokens if total_tokens is None else total_tokens
    run = replace(config.run, out=folder, updates=updates or config.run.updates, total_tokens=total)
    config = replace(config, run=run)
    latest = checkpoints(folder)[-1]
    processes.first(lambda: check_folder(latest))
    known = read_targets(folder)
    if known is not None and len(known) < config.run.updates:
        raise ConfigError(f"{folder} matches the tokens of a run of {len(known)} updates: it cannot have more")
    trainer = Trainer(config, folder, latest / "model", known, processes, workers)
    trainer.progress = load_checkpoint(latest, trainer.learner, trainer.parts)
    processes.first(lambda: trainer.log.cut_after(trainer.progress.update))
    return trainer
