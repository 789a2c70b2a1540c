"""Checkpoints: everything that a run needs to go on bit for bit, in folders that are there whole or not at all."""

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tsr_gym.agents.files import check_folder, write_folder
from tsr_gym.agents.learner import Learner
from tsr_gym.agents.models import Policy, save_policy
from tsr_gym.errors import CheckpointError


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come.

    Attributes:
        update: Updates done.
        tasks: Task instances drawn.
        sampled_tokens: Tokens that the model has said in training.
    """

    update: int = 0
    tasks: int = 0
    sampled_tokens: int = 0


def save_checkpoint(run: Path, policy: Policy, learner: Learner, progress: Progress) -> None:
    """Write a run's checkpoint: model in Hugging Face form, critic, optimizers, random states, progress.

    Raises:
        CheckpointError: It could not be written; earlier checkpoints are untouched.
    """
    path = run / "checkpoints" / f"{progress.update:06d}"
    if path.exists():
        return

    def write(folder: Path) -> None:
        save_policy(policy, folder / "model")
        if learner.critic is not None:
            save_file(learner.critic.state_dict(), folder / "critic.safetensors")
        states: dict[str, Any] = {name: optimizer.state_dict() for name, optimizer in learner.optimizers.items()}
        states["torch_random"] = torch.get_rng_state()
        if torch.cuda.is_available():
            states["cuda_random"] = torch.cuda.get_rng_state_all()
        torch.save(states, folder / "optimizers.pt")
        (folder / "progress.json").write_text(json.dumps(asdict(progress)))

    write_folder(path, write)


def load_checkpoint(path: Path, learner: Learner) -> Progress:
    """Put a learner whose policy was loaded from a checkpoint into the checkpoint's state, and return the progress.

    Raises:
        CheckpointError: The checkpoint is incomplete, damaged, or of a run with other settings.
    """
    check_folder(path)
    try:
        if learner.critic is not None:
            learner.critic.load_state_dict(load_file(path / "critic.safetensors"))
        states = torch.load(path / "optimizers.pt", weights_only=True)
        for name, optimizer in learner.optimizers.items():
            optimizer.load_state_dict(states[name])
        torch.set_rng_state(states["torch_random"])
        if torch.cuda.is_available() and "cuda_random" in states:
            torch.cuda.set_rng_state_all(states["cuda_random"])
        return Progress(**json.loads((path / "progress.json").read_text()))
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise CheckpointError(f"{path}: not a checkpoint of this run ({error})") from error


def checkpoints(run: Path) -> list[Path]:
    """Return the complete checkpoints of a run, oldest first."""
    return sorted(path for path in (run / "checkpoints").glob("[0-9]*") if path.is_dir())


def drop_old(run: Path, keep: int) -> None:
    """Delete all but the latest checkpoints of a run."""
    for path in checkpoints(run)[:-keep]:
        shutil.rmtree(path)
