"""Comparison: items against others with the same key; the only place where a mean or a deviation is taken."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from tsr_gym.agents.learning.advantages.mechanism.turn_table import sum_by
from tsr_gym.agents.lessons.filters import ROUNDING

Centre = Literal["mean", "loo", "none"]
Scale = Literal["std", "none"]


class Compared(NamedTuple):
    """The outcome of comparing I items.

    Attributes:
        advantage: `[I]`; undefined where `alone`.
        alone: `[I]` bool, True where the mean is fitted on no other item.
        flat: `[I]` bool, True where the item equals all items that the mean is fitted on.
        size: `[I]` int64, number of items that the mean is fitted on.
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
    """Return ``(value - centre) / (deviation + eps)`` of every item within its group of equal keys.

    With f the fitted items, w the weights and sums over the group:

        n = sum w f        mean = sum w f v / n        loo_i = sum_{j != i} w_j f_j v_j / (n - w_i f_i)
        deviation = sqrt(sum w (v - v_mean)^2 / (sum w - ddof))        v_mean = sum w v / sum w

    The deviation is that of the whole group, fitted or not: a unit of measurement, not a baseline. Fitted on a few
    nearly equal items it would have no lower bound; here the range r of n items of weight 1 bounds it from below,
    ``deviation >= r / sqrt(2 (n - 1))``, so that no advantage is larger than ``sqrt(2 (n - 1))``.

    Items that are equal up to rounding have advantage exactly 0, because rounding must not be scaled up.

    Args:
        values: `[I]`.
        keys: `[I]` int64, any numbers.
        fitted: `[I]` bool, items that the mean is fitted on.
        weights: `[I]`, how often each counts.
        centre: Mean, mean of the others, or 0.
        scale: Deviation or 1.
        ddof: Subtracted from the count in the variance.
        eps: Added to the deviation.
    """
    names, group = torch.unique(keys, return_inverse=True)
    size, counted = len(names), weights * fitted
    members = sum_by(fitted.long(), group, size)[group]
    # Sums over the group of every item, `[I]`. Where nothing is fitted they are 0, and the item is a singleton.
    total, sums = sum_by(counted, group, size)[group], sum_by(counted * values, group, size)[group]
    if centre == "mean":
        centred = values - sums / total.clamp(min=1)
    elif centre == "loo":
        # An item that is not fitted is not among the fitted ones, and has nothing to leave out.
        centred = values - (sums - counted * values) / (total - counted).clamp(min=1)
    else:
        centred = values
    if scale == "std":
        centred = centred / (_deviation(values, group, size, weights, ddof) + eps)
    flat = _equal_to_fitted(values, group, size, fitted)
    # Without a centre and a scale a value stays as it is, and nothing was rounded.
    if centre != "none" or scale != "none":
        centred = torch.where(flat, 0.0, centred)
    return Compared(centred, members == fitted.long(), flat, members)


def are_equal_bounds(top: Tensor, bottom: Tensor) -> Tensor:
    """Return whether all numbers between two bounds are equal by the rule of `are_equal`, as a bool tensor.

    What is not finite is equal to nothing, so that it stays visible.
    """
    gap = top - bottom
    return gap.isfinite() & (gap <= ROUNDING * torch.maximum(top.abs(), bottom.abs()).clamp(min=1))


def _deviation(values: Tensor, group: Tensor, size: int, weights: Tensor, ddof: int) -> Tensor:
    total = sum_by(weights, group, size)
    mean = sum_by(weights * values, group, size) / total.clamp(min=1)
    squares = sum_by(weights * (values - mean[group]) ** 2, group, size)
    return (squares / (total - ddof).clamp(min=1)).sqrt()[group]


def _equal_to_fitted(values: Tensor, group: Tensor, size: int, fitted: Tensor) -> Tensor:
    """Return a mask of the items that equal all fitted items of their group, `[I]`."""
    top = torch.full((size,), -torch.inf, dtype=values.dtype, device=values.device)
    top = top.scatter_reduce(0, group[fitted], values[fitted], "amax")[group]
    bottom = torch.full((size,), torch.inf, dtype=values.dtype, device=values.device)
    bottom = bottom.scatter_reduce(0, group[fitted], values[fitted], "amin")[group]
    return are_equal_bounds(torch.maximum(values, top), torch.minimum(values, bottom))
