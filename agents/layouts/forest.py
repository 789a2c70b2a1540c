"""TokenForest: the tokens of some rows in one line, what rows share written once where that is wanted."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tsr_gym.agents.batch import Batch

Ids = NDArray[np.int64]


class Run(NamedTuple):
    """Tokens that stand next to each other in line and in a row, and what comes before them in that row.

    Attributes:
        length: How many.
        path: The whole row up to their end, as numbers of pieces, see `TokenForest.pieces`.
    """

    length: int
    path: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TokenForest:
    """U tokens in depth-first order, so that the tokens below a token stand right behind it.

    Attributes:
        ids: `[U]` int64.
        depth: `[U]` int64, position in the row.
        before: `[U]` int64, which token comes before it in its row; -1 for the first.
        end: `[U]` int64, one past the last token that stands below it. Token q comes after token k in some row, or is
            it, exactly where ``k <= q < end[k]``.
        place: `[B, T]` int64, which token stands there in the rows; -1 where there is none.
        runs: One after the other they are the line; each goes on to the end of a row.
        pieces: Lengths; one after the other they are the line, cut wherever rows begin, part or end.
    """

    ids: Tensor
    depth: Tensor
    before: Tensor
    end: Tensor
    place: Tensor
    runs: tuple[Run, ...]
    pieces: tuple[int, ...]


def row_ids(batch: Batch) -> list[Ids]:
    """Return the token ids of every row, without padding."""
    ids, lengths = batch.ids.cpu().numpy(), batch.present.sum(dim=1).tolist()
    return [row[:length] for row, length in zip(ids, lengths, strict=True)]


def num_shared(one: Ids, other: Ids) -> int:
    """Return how many tokens two rows have in common from their beginnings."""
    length = min(len(one), len(other))
    different = np.flatnonzero(one[:length] != other[:length])
    return int(different[0]) if len(different) else length


def in_trie_order(rows: Sequence[Ids]) -> list[int]:
    """Return numbers of rows such that rows with a common beginning stand next to each other."""
    return sorted(range(len(rows)), key=lambda number: rows[number].tolist())


def grow_forest(batch: Batch, *, share: bool) -> TokenForest:
    """Return the forest of a batch's rows.

    Args:
        batch: Rows; their tokens stand on the left.
        share: Whether equal beginnings of rows are the same tokens: a trie. Otherwise each row is a tree of its own.
    """
    rows = row_ids(batch)
    order = in_trie_order(rows) if share else list(range(len(rows)))
    common = [0] + [num_shared(rows[one], rows[other]) if share else 0 for one, other in pairwise(order)]
    new = [len(rows[row]) - begin for row, begin in zip(order, common, strict=True)]
    owner = np.repeat(order, new)
    depth = np.concatenate([np.arange(begin, len(rows[row])) for row, begin in zip(order, common, strict=True)])
    place = np.full(tuple(batch.ids.shape), -1)
    for above, row, begin in zip([order[0], *order], order, common, strict=False):
        place[row, :begin] = place[above, :begin]
        place[row, begin : len(rows[row])] = np.flatnonzero(owner == row)
    before = np.where(depth > 0, place[owner, depth - 1], -1)
    runs, pieces = _runs(rows, place, owner, depth, before)
    parts = (batch.ids.cpu().numpy()[owner, depth], depth, before, _ends(depth), place)
    ids, depths, befores, ends, places = (torch.from_numpy(part).to(batch.ids.device) for part in parts)
    return TokenForest(ids, depths, befores, ends, places, runs, pieces)


def _runs(
    rows: Sequence[Ids], place: Ids, owner: Ids, depth: Ids, before: Ids
) -> tuple[tuple[Run, ...], tuple[int, ...]]:
    """Return runs and pieces of a forest whose tokens were first met at some depth of the row that owns them."""
    firsts = np.flatnonzero(np.diff(owner, prepend=-1))
    cuts = np.union1d(firsts, before[firsts] + 1)
    piece = np.searchsorted(cuts, np.arange(len(owner)), side="right") - 1
    runs = []
    for first in firsts:
        row = owner[first]
        path = piece[place[row, : len(rows[row])]]
        runs.append(Run(len(rows[row]) - int(depth[first]), tuple(dict.fromkeys(path.tolist()))))
    return tuple(runs), tuple(np.diff(cuts, append=len(owner)).tolist())


def _ends(depth: Ids) -> Ids:
    """Return where the tokens below each token end: at the next token that is not deeper."""
    ends = np.empty(len(depth), dtype=np.int64)
    open_tokens: list[int] = []
    for token, level in enumerate(depth.tolist()):
        while open_tokens and depth[open_tokens[-1]] >= level:
            ends[open_tokens.pop()] = token
        open_tokens.append(token)
    ends[open_tokens] = len(depth)
    return ends
