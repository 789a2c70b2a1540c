"""Sums that look ahead, for all sequences at once and without a loop over their steps."""

from typing import NamedTuple

import torch
from torch import Tensor


class Lines(NamedTuple):
    """Sequences written as the rows of a matrix, each from the left.

    Attributes:
        line: `[S]`, which sequence an item belongs to; items of one sequence stand together.
        place: `[S]`, its place in the sequence.
        shape: How many sequences, and the length of the longest.
    """

    line: Tensor
    place: Tensor
    shape: tuple[int, int]

    def write(self, values: Tensor) -> Tensor:
        """Return the items' values as a matrix, 0 behind the end of each sequence."""
        matrix = torch.zeros(self.shape, dtype=values.dtype, device=values.device)
        matrix[self.line, self.place] = values
        return matrix

    def read(self, matrix: Tensor) -> Tensor:
        """Return the items' values from a matrix, `[S]`."""
        return matrix[self.line, self.place]


def lines_of(line: Tensor) -> Lines:
    """Return where items stand, given their sequences in ascending order."""
    lengths = torch.bincount(line)
    starts = lengths.cumsum(0) - lengths
    place = torch.arange(len(line), device=line.device) - starts[line]
    return Lines(line, place, (len(lengths), int(lengths.max())))


def discounted_sum(values: Tensor, discount: float) -> Tensor:
    """Return ``sum_l discount^l values[:, t + l]`` for every t.

    Every pass doubles how far ahead each place has looked, so that there are ``log2(L)`` of them.

    Args:
        values: `[N, L]`.
        discount: Per step.
    """
    total, reach = values.clone(), 1
    while reach < values.shape[1] and discount**reach != 0:
        total[:, :-reach] = total[:, :-reach] + discount**reach * total[:, reach:]
        reach *= 2
    return total


def later(values: Tensor) -> Tensor:
    """Return for every place of a matrix what stands at the next one, 0 at the end."""
    return torch.cat([values[:, 1:], torch.zeros_like(values[:, :1])], dim=1)
