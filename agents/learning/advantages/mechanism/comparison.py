"""Comparison: values against others with the same key; the only place where a mean or a deviation is taken."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from tsr_gym.agents.learning.advantages.mechanism.turn_table import sum_by

Centre = Literal["mean", "loo", "none"]
Scale = Literal["std", "none"]


class Compared(NamedTuple):
    """What came of comparing I items.

    Attributes:
        advantage: `[I]`; where `alone` it means nothing.
        alone: `[I]` bool, True where there was nobody to compare with.
        flat: `[I]` bool, True where the item and all that it was compared with are exactly equal.
        size: `[I]`, how many the item was compared with, itself included where it is among them.
    """

    advantage: Tensor
    alone: Tensor
    flat: Tensor
    size: Tensor


def compare(
    values: Tensor,
    keys: Tensor,
    fitted: Tensor,
    weights: Tensor,
    *,
    centre: Centre,
    scale: Scale,
    ddof: int,
    eps: float,
) -> Compared:
    """Return ``(value - centre) / (deviation + eps)`` within each group of equal keys.

    Exactly equal values have advantage exactly 0, because what rounding leaves of them must not be blown up. Where
    those on whom the statistics are fitted are all equal but the item is not, the deviation is that of the whole group.

    Args:
        values: `[I]`.
        keys: `[I]` int64, any numbers.
        fitted: `[I]` bool, on whom mean and deviation are fitted.
        weights: `[I]`, how often each counts.
        centre: Mean, mean of the others, or 0.
        scale: Deviation or 1.
        ddof: What is taken off the count in the variance.
        eps: Keeps nearly equal values from being blown up.
    """
    names, group = torch.unique(keys, return_inverse=True)
    size, count = len(names), weights * fitted
    members = sum_by(fitted.long(), group, size)[group]
    total, sums = sum_by(count, group, size), sum_by(count * values, group, size)
    mean = sums / total.clamp(min=1)
    if centre == "mean":
        centred = values - mean[group]
    elif centre == "loo":
        centred = values - (sums[group] - count * values) / (total[group] - count).clamp(min=1)
    else:
        centred = values
    flat = _flat(values, group, size, fitted)
    if scale == "std":
        deviation = _deviation(values, group, size, count, ddof)
        whole = _deviation(values, group, size, weights, ddof)
        lost = _spread(values, group, size, fitted) == 0
        centred = centred / (torch.where(lost, whole, deviation)[group] + eps)
    if centre != "none" or scale != "none":
        centred = torch.where(flat, 0.0, centred)
    return Compared(centred, members == fitted.long(), flat, members)


def _deviation(values: Tensor, group: Tensor, size: int, count: Tensor, ddof: int) -> Tensor:
    total = sum_by(count, group, size)
    mean = sum_by(count * values, group, size) / total.clamp(min=1)
    squares = sum_by(count * (values - mean[group]) ** 2, group, size)
    return (squares / (total - ddof).clamp(min=1)).sqrt()


def _bounds(values: Tensor, group: Tensor, size: int, fitted: Tensor) -> tuple[Tensor, Tensor]:
    top = torch.full((size,), -torch.inf, dtype=values.dtype, device=values.device)
    top = top.scatter_reduce(0, group[fitted], values[fitted], "amax")
    bottom = torch.full_like(top, torch.inf).scatter_reduce(0, group[fitted], values[fitted], "amin")
    return top, bottom


def _spread(values: Tensor, group: Tensor, size: int, fitted: Tensor) -> Tensor:
    top, bottom = _bounds(values, group, size, fitted)
    return top - bottom


def _flat(values: Tensor, group: Tensor, size: int, fitted: Tensor) -> Tensor:
    top, bottom = _bounds(values, group, size, fitted)
    return (values == top[group]) & (values == bottom[group])
