"""Recomputing: activations of a model's layers are computed again in the backward pass and not kept until then."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from tsr_gym.errors import ConfigError


@contextmanager
def recomputing(model: Any) -> Iterator[None]:
    """Let the layers of a Hugging Face model forget their activations; dropout stays as it is.

    Both the forward and the backward pass have to run inside, and nothing that uses a key-value cache.

    Raises:
        ConfigError: The model has no layers that can.
    """
    layers: list[Any] = [layer for layer in model.modules() if isinstance(layer, GradientCheckpointingLayer)]
    if not layers:
        raise ConfigError(f"{type(model).__name__} has no layers that can be computed again: turn recompute off")
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
