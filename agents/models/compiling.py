"""Compiling: the layers of a model by torch.compile, one after the other and in place."""

from typing import Any

from transformers.modeling_layers import GradientCheckpointingLayer

from tsr_gym.errors import ConfigError


def compile_layers(model: Any, *, backend: str = "inductor") -> None:
    """Let the layers of a Hugging Face model be compiled when they are first called, for rows of any length.

    Layers are compiled and not the whole, because they are alike and so compiled once; because the output head stays
    where it can be read (`chunked_logprobs`); and because activations can then still be computed again, a layer at a
    time. Every layout works; padded rows gain most on a CPU, where a forest's attention is not compiled.

    Args:
        model: A Hugging Face model.
        backend: Of `torch.compile`.

    Raises:
        ConfigError: The model has no layers that are known.
    """
    layers = [layer for layer in model.modules() if isinstance(layer, GradientCheckpointingLayer)]
    if not layers:
        raise ConfigError(f"{type(model).__name__} has no layers that can be compiled one after the other")
    for layer in layers:
        layer.compile(backend=backend, dynamic=True)
