"""RowPlan: which rows go through a model together, and in which layout, by what each would cost."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from tsr_gym.agents.learning.batch import Batch, LayoutChoice
from tsr_gym.agents.learning.layouts.forest import Ids, in_trie_order, num_shared, row_ids
from tsr_gym.agents.learning.layouts.layout import LayoutName

# What a row costs beside its tokens where it is part of a forest, in tokens: little, so that what is shared or not
# padded decides, and enough that rows that have neither stay as they are.
RUN_COST = 5


class RowPlan(NamedTuple):
    """A layout and micro-batches by which some rows go through a model.

    Attributes:
        layout: In which layout.
        parts: Numbers of the rows of each micro-batch.
        tokens: Tokens that the model computes, padding included; for shared rows at most so many.
        runs: Rows that are read as parts of a forest, which takes more or smaller calls of attention.
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
    """Return the plan by which rows go through a model.

    A padded micro-batch has up to `microbatch` rows of similar length; a packed or shared one as many as have together
    no more tokens than `microbatch` of the longest rows, so that all take about the same memory. ``"auto"`` is the
    layout that costs least, see `RowPlan.cost`: shared where rows have beginnings in common, packed where their lengths
    differ, padded where neither makes up for the calls of attention.

    Args:
        batch: The rows.
        layout: In which layout, or ``"auto"``.
        microbatch: Size of a micro-batch in rows.
        whole: Whether all rows of a trajectory have to be in the same micro-batch.
    """
    ids = row_ids(batch)
    names: tuple[LayoutName, ...] = ("padded", "packed", "shared") if layout == "auto" else (layout,)
    plans = [_plan(name, ids, batch, microbatch, whole) for name in names]
    return min(plans, key=lambda plan: plan.cost)


class _Part(NamedTuple):
    """A micro-batch in the making: numbers of its rows, and how many tokens the model computes for them."""

    rows: list[int]
    tokens: int


def _plan(layout: LayoutName, ids: Sequence[Ids], batch: Batch, microbatch: int, whole: bool) -> RowPlan:
    units = _units(layout, ids, batch, whole)
    longest = max(len(ids[row]) for unit in units for row in unit)
    parts = list(_filled(layout, ids, units, microbatch, microbatch * longest))
    numbers = [torch.tensor(part.rows, device=batch.ids.device) for part in parts]
    return RowPlan(layout, numbers, sum(part.tokens for part in parts), 0 if layout == "padded" else len(ids))


def _units(layout: LayoutName, ids: Sequence[Ids], batch: Batch, whole: bool) -> list[list[int]]:
    """Return rows in a good order for a layout, those that may not be separated together."""
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
    """Yield micro-batches: each takes units until it is full, and one at least."""
    part = _Part([], 0)
    for unit in units:
        grown = _grown(layout, ids, part, unit)
        if part.rows and (len(grown.rows) > most_rows if layout == "padded" else grown.tokens > most_tokens):
            yield part
            grown = _grown(layout, ids, _Part([], 0), unit)
        part = grown
    yield part


def _grown(layout: LayoutName, ids: Sequence[Ids], part: _Part, unit: list[int]) -> _Part:
    """Return a micro-batch with more rows; of shared ones the tokens are exact in the order of the trie."""
    rows = part.rows + unit
    if layout == "padded":
        return _Part(rows, len(rows) * max(len(ids[row]) for row in rows))
    tokens = part.tokens + sum(len(ids[row]) for row in unit)
    if layout == "shared":
        tokens -= sum(num_shared(ids[one], ids[other]) for one, other in pairwise([*part.rows[-1:], *unit]))
    return _Part(rows, tokens)
