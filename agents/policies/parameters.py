"""Parameters of a model that engines sample from: replacing them by name, and noticing that they have changed."""

from collections.abc import Iterable
from typing import Any
from weakref import finalize, ref

import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from tsr_gym.errors import ConfigError


class WeightWatch:
    """Notice that a model's parameters have changed; what was computed by the old ones is then stale.

    It reads no weights. Changes through `Tensor.data` in place are invisible to PyTorch and so to this class: after
    these, call `Engine.load_weights` without weights.

    Args:
        model: The model.
    """

    def __init__(self, model: Any) -> None:
        # Walking over all modules would take as long as sampling a few tokens from a small model.
        self._modules = [module for module in model.modules() if any(True for _ in module.parameters(recurse=False))]
        self._stepped = False
        self._versions = self._read()
        watch = ref(self)

        # PyTorch's fused optimizers, which are the default of other trainers, leave version counters as they are.
        def note(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            if (living := watch()) is not None:
                living._stepped = True

        finalize(self, register_optimizer_step_post_hook(note).remove)

    def changed(self) -> bool:
        """Return whether parameters may have changed since the last call."""
        before, stepped = self._versions, self._stepped
        self._versions, self._stepped = self._read(), False
        return stepped or self._versions != before

    def _read(self) -> list[tuple[int, int]]:
        return [
            (parameter.data_ptr(), 0 if parameter.is_inference() else parameter._version)
            for module in self._modules
            for parameter in module.parameters(recurse=False)
        ]


def replace_parameters(model: Any, weights: Iterable[tuple[str, Any]]) -> None:
    """Replace parameters of a model by name; those that are not given stay.

    Raises:
        ConfigError: It has no such parameter, or of another shape.
    """
    own = model.state_dict()
    with torch.no_grad():
        for name, value in weights:
            if name not in own:
                raise ConfigError(
                    f"the model has no parameter {name!r}; it has {len(own)}, such as {next(iter(own))!r}"
                )
            # `copy_` would broadcast a smaller tensor without an error.
            if own[name].shape != value.shape:
                raise ConfigError(f"wanted {name} of shape {[*own[name].shape]}, got {[*value.shape]}")
            if own[name].data_ptr() != value.data_ptr():
                own[name].copy_(value)
