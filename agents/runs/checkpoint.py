"""Checkpoints: everything that a run needs to go on bit for bit, in folders that are there whole or not at all.

Weights are written whole, in the forms that others read. Of the optimizers every process writes its own rows, and any
number of processes reads them back.
"""

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import Module

from tsr_gym.agents.learning.learner import Learner
from tsr_gym.agents.learning.spikes import GradientMemory
from tsr_gym.agents.models.language_model import LanguageModel, save_policy
from tsr_gym.agents.models.sharding import own_range, own_rows, whole_weights
from tsr_gym.errors import CheckpointError, InvalidTree, shown
from tsr_gym.files import check_folder, write_folder

# What reading a damaged checkpoint may raise.
_DAMAGE = (InvalidTree, OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, SafetensorError)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come.

    Attributes:
        update: Updates done.
        tasks: Task instances drawn.
        sampled_tokens: Tokens that the model has said in training.
        prompt_tokens: Tokens that it was conditioned on there, once per sample; checkpoints of older versions do not
            know, and are read as 0.
        optimizer_steps: Steps that were taken on the policy; as with prompt tokens.
    """

    update: int = 0
    tasks: int = 0
    sampled_tokens: int = 0
    prompt_tokens: int = 0
    optimizer_steps: int = 0


class Part(Protocol):
    """What a run has learned besides its weights, in files of its own."""

    def save(self, folder: Path) -> None:
        """Write it into a checkpoint's folder."""

    def load(self, folder: Path) -> None:
        """Read what `save` wrote."""


def save_checkpoint(
    run: Path,
    policy: LanguageModel,
    learner: Learner,
    progress: Progress,
    parts: Sequence[Part] = (),
) -> None:
    """Write a run's checkpoint: model in Hugging Face form, critic, optimizers, random states, progress, other parts.

    Of a run over several processes all have to call it; each holds whole models meanwhile.

    Raises:
        CheckpointError: It could not be written; earlier checkpoints are untouched.
    """
    path = run / "checkpoints" / f"{progress.update:06d}"
    processes = learner.processes
    if processes.first(path.exists):
        return
    critic, state = learner.critic or Module(), _own_state(learner)
    with whole_weights(learner.model) as policy_weights, whole_weights(critic) as critic_weights:

        def write(folder: Path) -> None:
            save_file(state, folder / f"state-{processes.rank:05d}-of-{processes.size:05d}.safetensors")
            if processes.leads:
                save_policy(policy, folder / "model", weights=policy_weights)
                if learner.critic is not None:
                    save_file(critic_weights, folder / "critic.safetensors")
                (folder / "gradients.json").write_text(json.dumps(learner.gradients.to_json()))
                (folder / "progress.json").write_text(json.dumps(asdict(progress)))
                for part in parts:
                    part.save(folder)

        write_folder(path, write, first=processes.first, each=processes.each)


def load_checkpoint(path: Path, learner: Learner, parts: Sequence[Part] = ()) -> Progress:
    """Put a learner whose policy was loaded from a checkpoint into the checkpoint's state, and return the progress.

    Raises:
        CheckpointError: The checkpoint is incomplete, damaged, or of a run with other settings.
    """
    learner.processes.first(lambda: check_folder(path))
    if (path / "optimizers.pt").exists():
        raise CheckpointError(
            f"{path}: of a form that is not read any more: begin a new run with its model, by --model {path / 'model'}"
        )
    try:
        gradients = GradientMemory.from_json(json.loads((path / "gradients.json").read_text()))
        progress = Progress(**json.loads((path / "progress.json").read_text()))
        if not all(type(count) is int and count >= 0 for count in (*asdict(progress).values(), gradients.skipped)):
            raise ValueError(f"counts are none: {shown(progress)}, {shown(gradients)}")
        if not all(isinstance(norm, float) for norm in gradients.norms):
            raise ValueError(f"norms are none: {shown(gradients)}")
        with ExitStack() as stack:
            if learner.critic is not None:
                critic = stack.enter_context(safe_open(path / "critic.safetensors", "pt"))
                for name, tensor in learner.critic.state_dict().items():
                    own_rows(tensor).copy_(_rows([critic], name, tensor))
            states = sorted(path.glob("state-*.safetensors"))
            _put_own_state(learner, [stack.enter_context(safe_open(state, "pt")) for state in states])
        learner.gradients = gradients
        for part in parts:
            part.load(path)
        return progress
    except (
        InvalidTree,
        OSError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RuntimeError,
        SafetensorError,
    ) as error:
        raise CheckpointError(f"{path}: not a checkpoint of this run ({error})") from error


def checkpoints(run: Path) -> list[Path]:
    """Return the complete checkpoints of a run, oldest first."""
    return sorted(path for path in (run / "checkpoints").glob("[0-9]*") if path.is_dir())


def drop_old(run: Path, keep: int) -> None:
    """Delete all but the latest checkpoints of a run."""
    for path in checkpoints(run)[:-keep]:
        shutil.rmtree(path)


def _trained(learner: Learner) -> Iterator[tuple[str, Any, dict[str, Tensor]]]:
    """Yield the optimizers with their names, and the parameters of each by name and in its order."""
    models: dict[str, Any] = {"policy": learner.model, "critic": learner.critic}
    for name, optimizer in learner.optimizers.items():
        names = {id(parameter): of_parameter for of_parameter, parameter in models[name].named_parameters()}
        trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        yield name, optimizer, {names[id(parameter)]: parameter for parameter in trained}


def _own_state(learner: Learner) -> dict[str, Tensor]:
    """Return what this process alone knows: its rows of the optimizers' moments, and its random states."""
    state = {"random/cpu": torch.get_rng_state()}
    if learner.device.type == "cuda":
        state["random/cuda"] = torch.cuda.get_rng_state(learner.device)
    for name, optimizer, trained in _trained(learner):
        for of_parameter, parameter in trained.items():
            for moment, tensor in optimizer.state[parameter].items():
                state[f"{name}/{moment}/{of_parameter}"] = own_rows(tensor).contiguous()
    return state


def _put_own_state(learner: Learner, files: Sequence[Any]) -> None:
    """Put back what processes knew, however many they were."""
    names: list[str] = files[0].keys()
    keys = [name.split("/", 2) for name in names]
    for name, optimizer, trained in _trained(learner):
        moments: dict[str, dict[str, Tensor]] = {of_parameter: {} for of_parameter in trained}
        for _, moment, of_parameter in (key for key in keys if key[0] == name):
            tensor = _moment(files, f"{name}/{moment}/{of_parameter}", trained[of_parameter])
            moments[of_parameter][moment] = tensor
        state = {number: found for number, found in enumerate(moments.values()) if found}
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    if learner.processes.rank < len(files):
        file = files[learner.processes.rank]
        torch.set_rng_state(file.get_tensor("random/cpu"))
        if learner.device.type == "cuda" and ["random", "cuda"] in keys:
            torch.cuda.set_rng_state(file.get_tensor("random/cuda"), learner.device)


def _moment(files: Sequence[Any], key: str, parameter: Tensor) -> Tensor:
    """Return a number, or a tensor of a parameter's shape of which only this process's rows are read."""
    if not files[0].get_slice(key).get_shape():
        number: Tensor = files[0].get_tensor(key)
        return number
    moment = torch.zeros_like(parameter)
    own_rows(moment).copy_(_rows(files, key, parameter))
    return moment


def _rows(files: Sequence[Any], key: str, like: Tensor) -> Tensor:
    """Return the rows that this process has of a tensor, out of files of which each holds some.

    Raises:
        ValueError: The tensor has more or fewer rows.
    """
    wanted, first, found = own_range(like), 0, []
    for part in (file.get_slice(key) for file in files):
        last = first + part.get_shape()[0]
        if max(wanted.start, first) < min(wanted.stop, last):
            found.append(part[max(wanted.start, first) - first : min(wanted.stop, last) - first])
        first = last
    if first != len(like):
        raise ValueError(f"{key} has {first} rows, wanted are {len(like)}")
    return torch.cat(found) if found else own_rows(like).new_empty(own_rows(like).shape)
