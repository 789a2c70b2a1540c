"""Train from Python: a configuration in, a finished run out. `tsr train` does the same."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tsr_gym.agents.config import TrainConfig
from tsr_gym.agents.processes import ALONE, Processes
from tsr_gym.agents.runs.check import check_start
from tsr_gym.agents.runs.log import Record, Watch
from tsr_gym.agents.runs.workers.on_ray import OFF, WorkerConfig
from tsr_gym.optional import importing, require

if TYPE_CHECKING:
    from tsr_gym.agents.runs.loop import Trainer

# Packages of the extra agents that every run needs.
LEARNING = ("torch", "transformers", "safetensors", "tensorboard")


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run after its last update, or after the caller stopped it.

    Attributes:
        folder: The folder of the run, which ``tsr view``, ``tsr report`` and ``tsr eval`` read.
        finished: Whether the run came to its end.
        model: The folder of the trained model, in Hugging Face form.
        updates: A record per update, as in ``metrics.jsonl``.
        evaluations: A record per evaluation, as in ``evaluations.jsonl``.
    """

    folder: Path
    finished: bool
    model: Path
    updates: list[Record]
    evaluations: list[Record]


def train(
    config: TrainConfig,
    *,
    watch: Watch = lambda event, record: None,
    stop: Callable[[], bool] = lambda: False,
    note: Callable[[str], None] = lambda text: None,
    workers: WorkerConfig = OFF,
) -> FinishedRun:
    """Train in a new folder and return the finished run.

    Args:
        config: All settings, see `TrainConfig.from_recipe`.
        watch: Called with ``"update"`` or ``"evaluation"`` and the record that was just written to the run's log. What
            it raises ends the run; the checkpoints written so far stay.
        stop: Called after every update. When it returns True, a checkpoint is written and the run ends early.
        note: Called with a line of text for work before the first update, such as building the embedded model.
        workers: Where searches run: in this process by default, or in workers of Ray.

    Raises:
        ConfigError: The run cannot begin: its folder exists, or a setting does not fit the environment or the model.
        CheckpointError: The model cannot be read, or the folder cannot be written.
        TrainingDiverged: A loss or gradient is not finite.
        MissingExtra: A package is not installed.
    """
    from tsr_gym.agents.runs.progress import checkpoints
    from tsr_gym.agents.runs.workers.on_ray import connected

    for package in LEARNING:
        require(package, "agents")
    check_start(config)
    with connected(workers):
        trainer = begin_run(config, workers=workers, note=note)
        with collecting_rarely():
            finished = trainer.run(watch=watch, stop=stop)
    folder, log = trainer.folder, trainer.log
    model = checkpoints(folder)[-1] / "model"
    return FinishedRun(folder, finished, model, log.metrics.read(), log.evaluations.read())


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """Collect garbage rarely for a while, and not among the objects that exist now, such as the modules of torch.

    A run makes many small objects and hardly any cycles: collections at Python's thresholds took a tenth of its time.
    """
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def begin_run(
    config: TrainConfig,
    *,
    processes: Processes = ALONE,
    workers: WorkerConfig = OFF,
    note: Callable[[str], None] = lambda text: None,
) -> "Trainer":
    """Build the embedded model where it is wanted, and return the trainer of a new run.

    Args:
        config: All settings, which `check_start` has passed.
        processes: The processes that train together, which have to call this together.
        workers: Where searches run.
        note: Called with a line of text for what is being done.

    Raises:
        CheckpointError: The model cannot be read, or the folder cannot be written.
    """
    with importing():
        from tsr_gym.agents.runs.trainer import start_run

    # One process builds a model that is not there yet. The others find it.
    processes.first(lambda: model_folder(config, note))
    return start_run(config, model_folder(config, note), processes, workers)


def model_folder(config: TrainConfig, note: Callable[[str], None] = lambda text: None) -> Path:
    """Return the folder of the model that a run begins with; the embedded one is built at its first use."""
    if config.model.model != "default":
        return Path(config.model.model)
    from tsr_gym.agents.teaching.base_model import default_model

    return default_model(config.env, config.task.env_set, note=note)
