"""Folder: how a run's folder begins: whole, or not at all."""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from tsr_gym.agents.runs.config import TrainConfig
from tsr_gym.agents.runs.log import writing
from tsr_gym.agents.runs.matching import TARGETS


def begin_folder(beside: Path, config: TrainConfig, model_dir: Path, targets: Sequence[int] | None) -> None:
    """Write what a run knows at its beginning into a folder beside that of the run.

    Args:
        beside: The folder; one that was left there is deleted.
        config: All settings.
        model_dir: The language model to begin with, which is copied where a KL term compares with it.
        targets: Tokens after each update, for a run that matches another; None for other runs.

    Raises:
        CheckpointError: It cannot be written.
    """
    with writing(config.folder):
        shutil.rmtree(beside, ignore_errors=True)
        for name in ("trees", "checkpoints"):
            (beside / name).mkdir(parents=True)
        (beside / "config.json").write_text(config.to_json())
        if config.learn.objective.kl_weight and config.lora is None:
            # With LoRA the policy holds what it began as.
            shutil.copytree(model_dir, beside / "reference")
        if targets is not None:
            (beside / TARGETS).write_text(json.dumps(targets))


def let_appear(beside: Path, folder: Path) -> None:
    """Give a whole folder the name of the run.

    Raises:
        CheckpointError: It cannot be renamed.
    """
    with writing(folder):
        os.replace(beside, folder)
