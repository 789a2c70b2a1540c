"""What callers hand to a batch of environments, checked: actions, masks, seeds and numbers of environments."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.error import InvalidAction
from numpy.typing import NDArray

from tsr_gym import ConfigError
from tsr_gym_envs.columns import Column
from tsr_gym_envs.compiled import all_below

NUM_ACTIONS = 4
Indices = Sequence[int] | NDArray[np.int64]
Seeds = int | Sequence[int | None] | None


def as_actions(actions: Any, num_envs: int) -> Column:
    """Return actions `[N]`.

    Raises:
        InvalidAction: They are not `[N]` numbers from 0 to 3.
    """
    numbers = np.asarray(actions)
    whole = numbers.shape == (num_envs,) and numbers.dtype.kind in "iu"
    if not whole or not all_below(numbers.astype(np.int64, copy=False), NUM_ACTIONS):
        text = "; for text actions make the batch with vectorization_mode='sync' or 'async'"
        raise InvalidAction(
            f"wanted {num_envs} actions from 0 to {NUM_ACTIONS - 1}, got {actions!r}"
            f"{text if numbers.dtype.kind == 'U' else ''}"
        )
    return numbers.astype(np.int64, copy=False)


def as_mask(mask: Any, num_envs: int) -> Column:
    """Return the numbers of the environments that a mask `[N]` means.

    Raises:
        ConfigError: It is not an array of `[N]` booleans.
    """
    if not (isinstance(mask, np.ndarray) and mask.shape == (num_envs,) and mask.dtype == np.bool_):
        raise ConfigError(f"wanted reset_mask as an array of {num_envs} booleans, got {mask!r}")
    return np.flatnonzero(mask)


def as_seeds(seed: Seeds, num_envs: int) -> Sequence[int | None]:
    """Return a seed, or None, for each environment; a number s means s, s + 1, and so on.

    Raises:
        ConfigError: There are not as many seeds as environments.
    """
    if seed is None:
        return [None] * num_envs
    if isinstance(seed, int | np.integer):
        return [int(seed) + env for env in range(num_envs)]
    if len(seed) != num_envs:
        raise ConfigError(f"wanted a number or {num_envs} seeds, got {len(seed)}")
    return [None if one is None else int(one) for one in seed]


def as_numbers(indices: Indices, num_envs: int) -> NDArray[np.int64]:
    """Return numbers of environments.

    Raises:
        ConfigError: They are not numbers, or there are no such environments.
    """
    numbers = np.asarray(indices)
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        raise ConfigError(f"wanted the numbers of environments, got {indices!r}")
    numbers = numbers.astype(np.int64, copy=False)
    if not all_below(numbers, num_envs):
        raise ConfigError(f"wanted environments from 0 to {num_envs - 1}, got {indices!r}")
    return numbers


def as_targets(index: int, targets: int | Indices, num_envs: int) -> NDArray[np.int64]:
    """Return the numbers of the environments that become copies of one; a number n means the n after it.

    Raises:
        ConfigError: There are no such environments, or not as many.
    """
    source = as_numbers([index], num_envs)
    if not isinstance(targets, int):
        return as_numbers(targets, num_envs)
    if not 0 <= targets < num_envs:
        raise ConfigError(f"wanted at most {num_envs - 1} copies of one environment, got {targets}")
    return (source + 1 + np.arange(targets)) % num_envs
