"""Layers of a Hugging Face model: activation checkpointing, and compiling them one after the other."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from tsr_gym.errors import ConfigError


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

    Layers are compiled and not the whole, because they are alike and so compiled once; because the output head stays
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
