"""Layers of a model: spread over processes by FSDP2, recomputed in the backward pass, or compiled one by one."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, device
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from tsr_gym.agents.processes import Processes, backend
from tsr_gym.errors import ConfigError


def shard(model: Any, processes: Processes, where: device, *, offload: bool = False) -> None:
    """Spread a model's parameters over processes, in place; each process keeps and trains its rows of every one.

    A process holds ``1 / size`` of parameters, gradients and moments, and in addition the parameters of one layer at a
    time, and of what is no layer (embedding, last norm, output layer) from a forward pass to the end of its backward
    pass. Gradients are averaged over processes.

    Args:
        model: Equal in all processes.
        processes: The processes; alone there is only something to do with `offload`.
        where: The device to compute on.
        offload: Whether parameters, gradients and moments stay in the CPU's memory while nothing is computed with them.
    """
    if processes.size == 1 and not offload:
        return
    # The view that FSDP warns about is never written into.
    warnings.filterwarnings("ignore", message=r"FSDP2-wrapped module \(FSDPValueHead\) returned a view")
    mesh = _mesh(processes, where)
    policy = CPUOffloadPolicy(pin_memory=where.type == "cuda") if offload else OffloadPolicy()
    for layer in list(model.modules()):
        if isinstance(layer, GradientCheckpointingLayer):
            fully_shard(layer, mesh=mesh, offload_policy=policy, reshard_after_forward=True)
    # The output layer's weight is read once more after the forward pass, where logits are taken in parts.
    fully_shard(model, mesh=mesh, offload_policy=policy, reshard_after_forward=False)


def settle(model: Any, where: device) -> None:
    """Run a sharded model once, so that FSDP fixes it as the root and its parts, such as a backbone, as parts."""
    with torch.no_grad():
        model(input_ids=torch.ones(1, 2, dtype=torch.int64, device=where))
    # The forward pass of the root leaves its parameters gathered; the sharded ones are those that train.
    model.reshard()


def wake(model: Any) -> None:
    """Gather the parameters outside of layers, as a forward pass does, so that one part can be called alone."""
    if isinstance(model, FSDPModule):
        model.unshard()


@contextmanager
def whole(*models: Any) -> Iterator[None]:
    """Hold all parameters of models in every process, so that each process can run them any number of times.

    It takes the memory of the whole models while it lasts. Nothing may ask for their `state_dict` inside, which spreads
    the parameters again; see `whole_weights`.
    """
    parts = [part for model in models for part in model.modules() if isinstance(part, FSDPModule)]
    for part in parts:
        part.set_reshard_after_forward(False, recurse=False)
        part.unshard()
    try:
        yield
    finally:
        for part in parts:
            part.reshard()
            part.set_reshard_after_forward(isinstance(part, GradientCheckpointingLayer), recurse=False)


@contextmanager
def whole_weights(model: Any) -> Iterator[dict[str, Tensor]]:
    """Hold a model's parameters in every process, as `whole` does, and name them all, as `state_dict` does."""
    names = list(model.state_dict())
    with whole(model):
        tensors = dict(model.named_parameters(remove_duplicate=False))
        tensors |= dict(model.named_buffers(remove_duplicate=False))
        yield {name: tensors[name].detach() for name in names}


def whole_tensor(tensor: Tensor) -> Tensor:
    """Return the whole of a tensor; where it is sharded, all processes have to call this together."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def own_rows(tensor: Tensor) -> Tensor:
    """Return the rows of a tensor that this process holds: all, unless it is sharded."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def own_range(tensor: Tensor) -> range:
    """Return the indices of these rows in the whole tensor."""
    count = len(tensor)
    if not isinstance(tensor, DTensor):
        return range(count)
    rows = -(-count // tensor.device_mesh.size())
    first = min(tensor.device_mesh.get_local_rank() * rows, count)
    return range(first, min(first + rows, count))


def _mesh(processes: Processes, where: device) -> DeviceMesh:
    if processes.size == 1 and not dist.is_initialized():
        store = dist.HashStore()  # type: ignore[attr-defined]
        dist.init_process_group(backend(), store=store, rank=0, world_size=1)
    return init_device_mesh(where.type, (processes.size,))


@contextmanager
def recompute_activations(model: Any) -> Iterator[None]:
    """Checkpoint activations: layers keep none and compute them again in the backward pass; dropout stays as it is.

    Both the forward and the backward pass have to run inside, and nothing that uses a key-value cache.

    Raises:
        ConfigError: The model has no layers that can.
    """
    layers = _layers_of(model, "computed again: turn recompute off")
    before = [layer.training for layer in layers]
    for layer in layers:
        layer._gradient_checkpointing_func = partial(checkpoint, use_reentrant=False)
        # Only the layer itself counts as in training, which is when transformers recomputes, and not what is in it.
        layer.gradient_checkpointing = layer.training = True
    try:
        yield
    finally:
        for layer, training in zip(layers, before, strict=True):
            layer.gradient_checkpointing, layer.training = False, training


def compile_layers(model: Any, *, backend: str = "inductor") -> None:
    """Compile the layers of a Hugging Face model when they are first called, for rows of any length.

    Single layers are compiled because they have the same code and so compile once; because the output head stays
    where it can be read (`chunked_logprobs`); and because activations can then still be checkpointed, a layer at a
    time. Every layout works; padded rows gain most on a CPU, where a forest's attention is not compiled.

    Raises:
        ConfigError: The model has no layers that are known.
    """
    for layer in _layers_of(model, "compiled one after the other"):
        layer.compile(backend=backend, dynamic=True)


def _layers_of(model: Any, purpose: str) -> list[Any]:
    layers = [layer for layer in model.modules() if isinstance(layer, GradientCheckpointingLayer)]
    if not layers:
        raise ConfigError(f"{type(model).__name__} has no layers that can be {purpose}")
    return layers
