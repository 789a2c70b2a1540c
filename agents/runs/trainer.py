"""Begin a run in a new folder, or resume it from its latest checkpoint."""

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

from tsr_gym.agents.config import RUN_FILE, TrainConfig
from tsr_gym.agents.processes import ALONE, Processes
from tsr_gym.agents.runs.check import check_resume
from tsr_gym.agents.runs.checkpoint import RUN_ID, check_checkpoint, load_checkpoint, save_checkpoint
from tsr_gym.agents.runs.log import JsonLines, writing
from tsr_gym.agents.runs.loop import Trainer
from tsr_gym.agents.runs.parts import FIRST
from tsr_gym.agents.runs.progress import TARGETS, Progress, checkpoints, read_targets, token_targets
from tsr_gym.agents.runs.workers.on_ray import OFF, WorkerConfig
from tsr_gym.agents.teaching.imitation import WarmStart, warm_started
from tsr_gym.errors import CheckpointError, ConfigError, shown


def start_run(
    config: TrainConfig, model_dir: Path, processes: Processes = ALONE, workers: WorkerConfig = OFF
) -> Trainer:
    """Begin a run: its folder appears with the configuration and a first checkpoint, or not at all.

    Args:
        config: All settings.
        model_dir: Folder of the language model to begin with.
        processes: Processes that train together; all have to call this.
        workers: Where to search.

    Raises:
        ConfigError: The folder exists, or a setting is unknown or impossible.
        CheckpointError: The model cannot be read, or the folder cannot be written.
    """
    folder = config.folder
    targets = token_targets(config)
    begun_with = processes.first(lambda: first_model(config, model_dir))
    trainer = Trainer(config, folder, begun_with, targets, processes, workers)
    policy, learner = trainer.parts.policy, trainer.parts.learner
    # A kill at any point leaves no folder of the run, or a whole one: it is written under a hidden name and renamed.
    partial = folder.with_name(f".{folder.name}.partial")
    try:
        processes.first(lambda: _begin_folder(partial, config, begun_with, targets))
        save_checkpoint(partial, policy, learner, trainer.progress, trainer.stateful)
        processes.first(lambda: _rename(partial, folder))
    finally:
        if processes.leads:
            shutil.rmtree(partial, ignore_errors=True)
    return trainer


def first_model(config: TrainConfig, model_dir: Path) -> Path:
    """Return the folder of the model that a run begins with: `model_dir`, or the model after the warm start.

    The latter lies next to the folder of the run.

    Raises:
        ConfigError: The file of episodes is missing or damaged, or an episode does not fit the model.
    """
    run = config.run
    if run.warm_start is None:
        return model_dir
    settings = WarmStart(
        episodes=run.warm_start,
        steps=run.warm_start_steps,
        lr=run.warm_start_lr,
        batch=run.warm_start_batch,
        seed=run.seed,
        env=config.env,
        task=config.task,
        model=config.model,
    )
    return warm_started(settings, model_dir, config.folder.with_name(f"{config.folder.name}-warm-start"))


def _begin_folder(partial: Path, config: TrainConfig, model_dir: Path, targets: Sequence[int] | None) -> None:
    """Write all files of a new run but its checkpoint into a folder that gets the name of the run when it is complete.

    A folder that an interrupted start left there is deleted. The model is copied as the reference of a KL term.
    """
    with writing(config.folder):
        shutil.rmtree(partial, ignore_errors=True)
        for name in ("trees", "checkpoints"):
            (partial / name).mkdir(parents=True)
        (partial / RUN_FILE).write_text(config.to_toml(), encoding="utf-8")
        (partial / RUN_ID).write_text(uuid4().hex)
        fits_from_first = config.store.fit_passes and config.store.fit_from == "first"
        # With LoRA the policy itself holds the weights that it began with.
        if (config.learn.objective.kl_weight or fits_from_first) and config.lora is None:
            shutil.copytree(model_dir, partial / FIRST)
        if targets is not None:
            (partial / TARGETS).write_text(json.dumps(targets))


def _rename(partial: Path, folder: Path) -> None:
    with writing(folder):
        os.replace(partial, folder)


def resume_run(
    folder: Path,
    *,
    updates: int | None = None,
    total_tokens: int | None = None,
    processes: Processes = ALONE,
    workers: WorkerConfig = OFF,
) -> Trainer:
    """Resume a run from its latest checkpoint.

    Args:
        folder: Folder of the run.
        updates: A new number of updates, None for the configured one.
        total_tokens: A new number of tokens at which it ends, None for the configured one.
        processes: Processes that train together; all have to call this. Their number may have changed.
        workers: Where to search, which may have changed.

    Raises:
        CheckpointError: The folder holds no run, its latest checkpoint or a log is damaged, or the checkpoint is
            another run's.
        ConfigError: The run cannot have as many updates, or another process trains it.
    """
    check_resume(folder)
    config = TrainConfig.load(folder)
    total = config.run.total_tokens if total_tokens is None else total_tokens
    run = replace(config.run, updates=updates or config.run.updates, total_tokens=total)
    config = replace(config, run=run)
    latest = checkpoints(folder)[-1]
    processes.first(lambda: check_checkpoint(latest))
    targets = read_targets(folder)
    if targets is not None and len(targets) < config.run.updates:
        raise ConfigError(f"{folder} matches the tokens of a run of {len(targets)} updates: it cannot have more")
    trainer = Trainer(config, folder, latest / "model", targets, processes, workers)
    # The logs may have lines of updates after the checkpoint, which this process will do again.
    trainer.progress = load_checkpoint(latest, trainer.parts.learner, trainer.stateful)
    processes.first(lambda: _check_log(folder, trainer.progress))
    processes.first(lambda: trainer.log.cut_after(trainer.progress.update))
    return trainer


def _check_log(folder: Path, progress: Progress) -> None:
    """Raise CheckpointError if a checkpoint and the log differ in the tokens that the same update had sampled.

    A copy of a run's folder has its id, and its checkpoints are another run's once both are trained further.
    """
    for line in JsonLines(folder / "metrics.jsonl").read():
        if line.get("step") == progress.update and line.get("sampled_tokens_total") != progress.sampled_tokens:
            raise CheckpointError(
                f"{folder}: checkpoint {progress.update:06d} had sampled {progress.sampled_tokens:,} tokens, its "
                f"line in the log has {shown(line.get('sampled_tokens_total'))}: it belongs to a copy of this run"
            )
