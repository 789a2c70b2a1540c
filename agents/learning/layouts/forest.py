"""TokenForest and RowPlan: which rows go through a model together, and their tokens in one line for its attention.

The rows of a search share long beginnings: the prompt, and every turn above the point where two branches part. In a
*shared* forest such a beginning is written once, as in a trie. In a *packed* forest every row is a separate tree,
which saves the padding. Both are read by the attention of `attention.py`; `plan_rows` chooses by cost.

Rows (1 2 3 4) and (1 2 5) as a shared forest of U = 5 tokens; token q sees token k where ``k <= q < end[k]``:

    token   0  1  2  3  4       place of the rows: 0 1 2 3 and 0 1 4
    ids     1  2  3  4  5
    depth   0  1  2  3  2
    before -1  0  1  2  1
    end     5  5  4  4  5
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tsr_gym.agents.learning.batch import Batch, LayoutChoice

Ids = NDArray[np.int64]
Sees = Callable[[Any, Any, Tensor, Tensor], Tensor]
LayoutName = Literal["padded", "packed", "shared"]

# Extra cost of a row in a forest, in tokens. It is small, so that sharing and padding decide, and large enough that
# rows which share nothing and have equal lengths stay padded.
RUN_COST = 5


class Line(NamedTuple):
    """Depth, parent and end of every token, each `[U]` int64, on the CPU; see `TokenForest`."""

    depth: Ids
    before: Ids
    end: Ids


@dataclass(frozen=True, slots=True)
class TokenForest:
    """U tokens in depth-first order: the tokens below a token follow it directly.

    Attributes:
        ids: `[U]` int64.
        depth: `[U]` int64, position in the row.
        before: `[U]` int64, the token before it in its row; -1 for the first.
        end: `[U]` int64, one past the last token below it. Token q is token k, or follows it in some row, exactly
            where ``k <= q < end[k]``.
        place: `[B, T]` int64, the forest's token at each place of the rows; -1 for padding.
        line: `depth`, `before` and `end` on the CPU, where calls of attention are planned.
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


def num_shared(left: Ids, right: Ids) -> int:
    """Return the length of the common beginning of two rows."""
    length = min(len(left), len(right))
    different = left[:length] != right[:length]
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
        share: Whether equal beginnings of rows are the same tokens, as in a trie. Otherwise each row is a separate
            tree.
    """
    rows = row_ids(batch)
    order = in_trie_order(rows) if share else list(range(len(rows)))
    # In this order a row shares its longest beginning with the row directly above it, and adds only the rest.
    begins = [0] + [num_shared(rows[above], rows[row]) if share else 0 for above, row in pairwise(order)]
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
    # One transfer to the device for all four.
    tokens, depth, before, end = torch.from_numpy(np.stack([ids, *line])).to(device).unbind()
    return TokenForest(tokens, depth, before, end, torch.from_numpy(place).to(device), line)


def sees(forest: TokenForest, window: int | None = None) -> Sees:
    """Return the predicate of which token sees which, the only definition, for dense masks and for FlexAttention.

    Args:
        forest: Tokens.
        window: Number of tokens that a token sees, itself included; None for all.

    Returns:
        A function of batch, head, the number of the seeing token and that of the seen token, to bool.
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
    """Return depth, parent and end of every token; a run is where a row leaves the one above, and its bounds."""
    total = runs[-1][2]
    depth, before, end = np.empty(total, dtype=np.int64), np.arange(total) - 1, np.full(total, total)
    # From the last run to the first, with a stack of the later runs: a token at depth d ends where the nearest later
    # run begins that leaves its row at depth d or above. Each entry is that depth and the start of the run, the nearest
    # last. A run hides the later ones that leave no higher than itself.
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


class RowPlan(NamedTuple):
    """The layout and the micro-batches in which some rows go through a model.

    Attributes:
        layout: The layout.
        parts: Numbers of the rows of each micro-batch.
        tokens: Tokens that the model computes, padding included; an upper bound for shared rows.
        runs: Rows that are part of a forest, each of which takes more or smaller calls of attention.
    """

    layout: LayoutName
    parts: list[Tensor]
    tokens: int
    runs: int

    @property
    def cost(self) -> int:
        """Cost of a pass over all rows, in tokens."""
        return self.tokens + RUN_COST * self.runs


def plan_rows(batch: Batch, *, layout: LayoutChoice = "padded", microbatch: int = 8, whole: bool = False) -> RowPlan:
    """Return the layout and the micro-batches in which rows go through a model.

    A padded micro-batch has up to `microbatch` rows of similar length. A packed or shared one has as many rows as fit
    into the tokens of `microbatch` of the longest rows, so that all take about the same memory. ``"auto"`` is the
    layout of least `RowPlan.cost`: shared where rows have common beginnings, packed where their lengths differ, padded
    where neither saves more than the calls of attention cost.

    Args:
        batch: The rows.
        layout: The layout, or ``"auto"``.
        microbatch: Size of a micro-batch in rows.
        whole: Whether all rows of a trajectory have to be in the same micro-batch.
    """
    ids = row_ids(batch)
    names: tuple[LayoutName, ...] = ("padded", "packed", "shared") if layout == "auto" else (layout,)
    plans = [_plan(name, ids, batch, microbatch, whole) for name in names]
    return min(plans, key=lambda plan: plan.cost)


class _Part(NamedTuple):
    """A micro-batch under construction: numbers of its rows, and the tokens that the model computes for them."""

    rows: list[int]
    tokens: int


def _plan(layout: LayoutName, ids: Sequence[Ids], batch: Batch, microbatch: int, whole: bool) -> RowPlan:
    units = _units(layout, ids, batch, whole)
    longest = max(len(ids[row]) for unit in units for row in unit)
    parts = list(_filled(layout, ids, units, microbatch, microbatch * longest))
    numbers = [torch.tensor(part.rows, device=batch.ids.device) for part in parts]
    return RowPlan(layout, numbers, sum(part.tokens for part in parts), 0 if layout == "padded" else len(ids))


def _units(layout: LayoutName, ids: Sequence[Ids], batch: Batch, whole: bool) -> list[list[int]]:
    """Return the rows in the best order for a layout, those that must stay together in one list."""
    ordered = in_trie_order(ids) if layout == "shared" else sorted(range(len(ids)), key=lambda row: len(ids[row]))
    if not whole:
        return [[row] for row in ordered]
    owner = batch.trajectory.tolist()
    units: dict[int, list[int]] = {}
    for row in ordered:
        units.setdefault(owner[row], []).append(row)
    return list(units.values())


def _filled(
    layout: LayoutName, ids: Sequence[Ids], units: Sequence[list[int]], most_rows: int, most_tokens: int
) -> Iterator[_Part]:
    """Yield micro-batches, each of as many units as fit, at least one."""
    part = _Part([], 0)
    for unit in units:
        grown = _grown(layout, ids, part, unit)
        if part.rows and (len(grown.rows) > most_rows if layout == "padded" else grown.tokens > most_tokens):
            yield part
            grown = _grown(layout, ids, _Part([], 0), unit)
        part = grown
    yield part


def _grown(layout: LayoutName, ids: Sequence[Ids], part: _Part, unit: list[int]) -> _Part:
    """Return a micro-batch with more rows; for shared rows its tokens are exact in the order of the trie."""
    rows = part.rows + unit
    if layout == "padded":
        return _Part(rows, len(rows) * max(len(ids[row]) for row in rows))
    tokens = part.tokens + sum(len(ids[row]) for row in unit)
    if layout == "shared":
        tokens -= sum(num_shared(ids[above], ids[row]) for above, row in pairwise([*part.rows[-1:], *unit]))
    return _Part(rows, tokens)
