"""Actions and options on record: what an environment was given, by value.

Nobody holds on to what was given, so an array is its numbers, whoever owns their memory and whichever library it is of.
"""

import sys
from typing import Any

import numpy as np

from tsr_gym.foreign.frozen import Freezer, OtherArray, Uncopyable


class _ByValue(Freezer):
    """Freezes arrays as numbers, also where they share memory or belong to other libraries."""

    def _array(self, value: np.ndarray[Any, Any]) -> Any:
        return super()._array(value) if value.dtype.hasobject else value.copy(order="K")

    def _other(self, value: Any, kind: Any) -> Any:
        made = _other_array(value)
        return super()._other(value, kind) if made is None else made


def _other_array(value: Any) -> OtherArray | None:
    """Return an array of JAX or PyTorch as numbers, None for anything else."""
    jax, torch = sys.modules.get("jax"), sys.modules.get("torch")
    if jax is not None and isinstance(value, jax.Array):
        return OtherArray("jax", np.array(value))
    if torch is not None and isinstance(value, torch.Tensor):
        return OtherArray("torch", value.detach().cpu().numpy().copy())
    return None


def kept(value: Any) -> Any:
    """Return what an environment is given as a frozen value.

    Raises:
        Uncopyable: It holds something that has no value of its own.
    """
    try:
        return _ByValue().frozen(value)
    except Uncopyable:
        raise
    # Objects of others may raise anything when they are looked at.
    except Exception as error:
        raise Uncopyable(f"a {type(value).__qualname__} cannot be copied ({error})") from error
