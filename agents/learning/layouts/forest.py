"""TokenForest: the tokens of some rows in one line, what rows share written once where that is wanted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tsr_gym.agents.learning.batch import Batch

Ids = NDArray[np.int64]
Sees = Callable[[Any, Any, Tensor, Tensor], Tensor]


class Line(NamedTuple):
    """Depth, parent and end of every token, each `[U]` int64, on the host; see `TokenForest`."""

    depth: Ids
    before: Ids
    end: Ids


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
        line: `depth`, `before` and `end` on the host, where calls of attention are planned.
    """

    ids: Tensor
    depth: Tensor
    before: Tensor
    end: Tensor
    place: Tensor
    line: Line


def row_ids(batch: Batch) -> list[Ids]:
    """Return the token ids of every row, without padding."""
    ids, lengths = batch.ids.cpu().numpy(), batch.present.sum(dim=1).tolist()
    return [row[:length] for row, length in zip(ids, lengths, strict=True)]


def num_shared(one: Ids, other: Ids) -> int:
    """Return the number of tokens that two rows have in common from their beginnings."""
    length = min(len(one), len(other))
    different = one[:length] != other[:length]
    first = int(different.argmax()) if length else 0
    return first if length and different[first] else length


def in_trie_order(rows: Sequence[Ids]) -> list[int]:
    """Return numbers of rows such that rows with a common beginning stand next to each other."""
    # Bytes of big-endian numbers compare as the numbers do.
    return sorted(range(len(rows)), key=lambda number: rows[number].astype(">i8").tobytes())


def grow_forest(batch: Batch, *, share: bool) -> TokenForest:
    """Return the forest of a batch's rows.

    Args:
        batch: Rows; their tokens stand on the left.
        share: Whether equal beginnings of rows are the same tokens: a trie. Otherwise each row is a tree of its own.
    """
    rows = row_ids(batch)
    order = in_trie_order(rows) if share else list(range(len(rows)))
    begins = [0] + [num_shared(rows[one], rows[other]) if share else 0 for one, other in pairwise(order)]
    starts = np.cumsum([0] + [len(rows[row]) - begin for row, begin in zip(order, begins, strict=True)]).tolist()
    place = np.full(tuple(batch.ids.shape), -1)
    above = order[0]
    for row, begin, start in zip(order, begins, starts, strict=False):
        place[row, :begin] = place[above, :begin]
        place[row, begin : len(rows[row])] = np.arange(start, start + len(rows[row]) - begin)
        above = row
    ids = np.concatenate([rows[row][begin:] for row, begin in zip(order, begins, strict=True)])
    line = _line([(begin, *piece) for begin, piece in zip(begins, pairwise(starts), strict=True)], order, place)
    device = batch.ids.device
    # One copy for all.
    sent, *hung = torch.from_numpy(np.stack([ids, *line])).to(device).unbind()
    return TokenForest(sent, hung[0], hung[1], hung[2], torch.from_numpy(place).to(device), line)


def sees(forest: TokenForest, window: int | None = None) -> Sees:
    """Return the predicate of which token sees which: the one definition, for dense masks and for FlexAttention.

    Args:
        forest: Tokens.
        window: How many tokens back a token sees, itself included; None for all.

    Returns:
        A function of batch, head, and the numbers of the token that sees and of the one that is seen, to bool.
    """
    end, depth = forest.end, forest.depth

    def above(batch: Any, head: Any, seeing: Tensor, seen: Tensor) -> Tensor:
        return (seen <= seeing) & (seeing < end[seen])

    if window is None:
        return above

    def near(batch: Any, head: Any, seeing: Tensor, seen: Tensor) -> Tensor:
        return above(batch, head, seeing, seen) & (depth[seeing] - depth[seen] < window)

    return near


def _line(runs: Sequence[tuple[int, int, int]], order: Sequence[int], place: Ids) -> Line:
    """Return depth, parent and end of every token, given the depth at which each row adds tokens, and their places."""
    total = runs[-1][2]
    depth, before, end = np.empty(total, dtype=np.int64), np.arange(total) - 1, np.full(total, total)
    # Later runs that end tokens before them, the nearest last: at which depth, and where.
    later: list[tuple[int, int]] = []
    for row, (begin, start, stop) in zip(reversed(order), reversed(runs), strict=True):
        if start == stop:
            continue
        depth[start:stop] = np.arange(begin, begin + stop - start)
        before[start] = place[row, begin - 1] if begin else -1
        rest = stop
        for level, where in reversed(later):
            first = start + max(level - begin, 0)
            if first < rest:
                end[first:rest], rest = where, first
        while later and later[-1][0] >= begin:
            later.pop()
        later.append((begin, start))
    return Line(depth, before, end)
