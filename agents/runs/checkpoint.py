"""Checkpoints: everything that a run needs to be resumed bit for bit, in folders that are complete or absent.

A checkpoint is named by its update and has the id of its run. Weights are written whole, in Hugging Face form. Of the
optimizers' state every process writes its own rows, and any number of processes can read them back.
"""

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
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
from tsr_gym.agents.runs.progress import Progress, checkpoints, name_of
from tsr_gym.errors import CheckpointError, InvalidTree, shown
from tsr_gym.files import check_folder, write_folder

# Errors that reading a damaged checkpoint may raise.
_DAMAGE = (InvalidTree, OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, SafetensorError)


# A file of a run and of each of its checkpoints: a number that no other run has.
RUN_ID = "run_id"


class Stateful(Protocol):
    """A part of a run whose state is saved in separate files of a checkpoint, such as the start states."""

    def save(self, folder: Path) -> None:
        """Write the state into a checkpoint's folder."""

    def load(self, folder: Path) -> None:
        """Read what `save` wrote."""


def save_checkpoint(
    run: Path, policy: LanguageModel, learner: Learner, progress: Progress, stateful: Sequence[Stateful] = ()
) -> None:
    """Write a checkpoint of a run: model, critic, optimizers, random states, progress and the `stateful` parts.

    All processes of a run have to call this; each holds the whole models meanwhile.

    Raises:
        CheckpointError: A file could not be written; earlier checkpoints are untouched.
    """
    path = run / "checkpoints" / name_of(progress)
    processes = learner.processes
    # A run that is stopped after an update that it saved already has nothing to add.
    if processes.first(path.exists):
        return
    critic, state = learner.critic or Module(), _own_state(learner)
    with whole_weights(learner.model) as policy_weights, whole_weights(critic) as critic_weights:
        # All processes write into one hidden folder, each its own state. The first one then adds a manifest with the
        # digests of all files and renames the folder, so that a checkpoint is never half there.
        def write(folder: Path) -> None:
            save_file(state, folder / f"state-{processes.rank:05d}-of-{processes.size:05d}.safetensors")
            if processes.leads:
                save_policy(policy, folder / "model", weights=policy_weights)
                if learner.critic is not None:
                    save_file(critic_weights, folder / "critic.safetensors")
                (folder / "gradients.json").write_text(json.dumps(learner.gradients.to_json()))
                (folder / "progress.json").write_text(json.dumps(asdict(progress)))
                (folder / RUN_ID).write_text(_run_id(run))
                for part in stateful:
                    part.save(folder)

        write_folder(path, write, first=processes.first, each=processes.each)


def load_checkpoint(path: Path, learner: Learner, stateful: Sequence[Stateful] = ()) -> Progress:
    """Load a checkpoint into a learner, whose policy is loaded already, and return the progress.

    Raises:
        CheckpointError: The checkpoint is incomplete, damaged, or of a run with other settings.
    """
    learner.processes.first(lambda: check_checkpoint(path))
    if (path / "optimizers.pt").exists():
        raise CheckpointError(
            f"{path}: an old format that cannot be read: begin a new run with its model, by --model {path / 'model'}"
        )
    try:
        gradients = GradientMemory.from_json(json.loads((path / "gradients.json").read_text()))
        progress = Progress(**json.loads((path / "progress.json").read_text()))
        if not all(type(count) is int and count >= 0 for count in (*asdict(progress).values(), gradients.skipped)):
            raise ValueError(f"wanted counts, got {shown(progress)}, {shown(gradients)}")
        if name_of(progress) != path.name:
            raise ValueError(f"it is a copy of {name_of(progress)}: delete it")
        if not all(isinstance(norm, float) for norm in gradients.norms):
            raise ValueError(f"wanted norms, got {shown(gradients)}")
        # The files are mapped, not read: each process touches only the rows that it holds.
        with ExitStack() as stack:
            if learner.critic is not None:
                critic = stack.enter_context(safe_open(path / "critic.safetensors", "pt"))
                for name, tensor in learner.critic.state_dict().items():
                    own_rows(tensor).copy_(_rows([critic], name, tensor))
            states = sorted(path.glob("state-*.safetensors"))
            _put_own_state(learner, [stack.enter_context(safe_open(state, "pt")) for state in states])
        learner.gradients = gradients
        for part in stateful:
            part.load(path)
        return progress
    except _DAMAGE as error:
        raise CheckpointError(f"{path}: not a checkpoint of this run ({error})") from error


def check_checkpoint(path: Path) -> None:
    """Raise CheckpointError unless a checkpoint is exactly as the run that it lies in wrote it."""
    check_folder(path)
    run = path.parents[1]
    if _run_id(path) != _run_id(run):
        raise CheckpointError(f"{path}: a checkpoint of another run than {run}: put it back, or delete it")


def _run_id(folder: Path) -> str:
    """Return the id in the folder of a run or of a checkpoint; empty where it has none."""
    return (folder / RUN_ID).read_text() if (folder / RUN_ID).exists() else ""


def drop_old(run: Path, keep: int) -> None:
    """Delete all but the latest checkpoints of a run."""
    for path in checkpoints(run)[:-keep]:
        shutil.rmtree(path)


def _trained(learner: Learner) -> Iterator[tuple[str, Any, dict[str, Tensor]]]:
    """Yield each optimizer with its name, and with its parameters by name, in the order of the optimizer."""
    models: dict[str, Any] = {"policy": learner.model, "critic": learner.critic}
    for name, optimizer in learner.optimizers.items():
        # An optimizer numbers its parameters. Names stay right when a model gains or reorders parameters.
        names = {id(parameter): parameter_name for parameter_name, parameter in models[name].named_parameters()}
        trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        yield name, optimizer, {names[id(parameter)]: parameter for parameter in trained}


def _own_state(learner: Learner) -> dict[str, Tensor]:
    """Return the state that only this process has: its rows of the optimizers' moments, and its random states."""
    state = {"random/cpu": torch.get_rng_state()}
    if learner.device.type == "cuda":
        state["random/cuda"] = torch.cuda.get_rng_state(learner.device)
    for name, optimizer, trained in _trained(learner):
        for parameter_name, parameter in trained.items():
            for moment, tensor in optimizer.state[parameter].items():
                state[f"{name}/{moment}/{parameter_name}"] = own_rows(tensor).contiguous()
    return state


def _put_own_state(learner: Learner, files: Sequence[Any]) -> None:
    """Load the state that processes wrote, of which there may have been more or fewer than now.

    Optimizer rows are put together from all files. A random state belongs to one process: a process without a file of
    its number keeps the state that it has.
    """
    names: list[str] = files[0].keys()
    keys = [name.split("/", 2) for name in names]
    for name, optimizer, trained in _trained(learner):
        moments: dict[str, dict[str, Tensor]] = {parameter_name: {} for parameter_name in trained}
        for _, moment, parameter_name in (key for key in keys if key[0] == name):
            tensor = _moment(files, f"{name}/{moment}/{parameter_name}", trained[parameter_name])
            moments[parameter_name][moment] = tensor
        # A parameter without moments has not had a gradient yet.
        state = {number: tensors for number, tensors in enumerate(moments.values()) if tensors}
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    if learner.processes.rank < len(files):
        file = files[learner.processes.rank]
        torch.set_rng_state(file.get_tensor("random/cpu"))
        if learner.device.type == "cuda" and ["random", "cuda"] in keys:
            torch.cuda.set_rng_state(file.get_tensor("random/cuda"), learner.device)


def _moment(files: Sequence[Any], key: str, parameter: Tensor) -> Tensor:
    """Return a scalar moment, or a moment of the parameter's shape; of its rows only this process's are read."""
    if not files[0].get_slice(key).get_shape():
        number: Tensor = files[0].get_tensor(key)
        return number
    moment = torch.zeros_like(parameter)
    own_rows(moment).copy_(_rows(files, key, parameter))
    return moment


def _rows(files: Sequence[Any], key: str, like: Tensor) -> Tensor:
    """Return this process's rows of a tensor whose rows are spread over the files, in their order."""
    own, first, pieces = own_range(like), 0, []
    for part in (file.get_slice(key) for file in files):
        last = first + part.get_shape()[0]
        # The rows first to last of the tensor lie in this file; read those that are also this process's.
        if max(own.start, first) < min(own.stop, last):
            pieces.append(part[max(own.start, first) - first : min(own.stop, last) - first])
        first = last
    if first != len(like):
        raise ValueError(f"wanted {len(like)} rows of {key}, got {first}")
    return torch.cat(pieces) if pieces else own_rows(like).new_empty(own_rows(like).shape)
