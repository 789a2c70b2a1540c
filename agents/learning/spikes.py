"""Spikes: gradient norms that stand out, and numbers that are not finite; torch-free.

The rule returns a decision, and its memory is a plain value that is part of a checkpoint. See docs/stability.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from statistics import median
from typing import Any, NamedTuple

from tsr_gym.errors import TrainingDiverged
from tsr_gym.ranges import check_counts, check_range


def require_finite(values: Mapping[str, float], *, where: str, advice: str = "") -> None:
    """Raise an error that names the numbers that are NaN or infinite, if there are any.

    Args:
        values: Numbers by name.
        where: Where they occurred, such as ``"update 12"``.
        advice: What to do about it.

    Raises:
        TrainingDiverged: A number is not finite.
    """
    bad = [f"{name} = {value}" for name, value in values.items() if not isfinite(value)]
    if bad:
        raise TrainingDiverged(f"{where}: {', '.join(bad)}" + (f": {advice}" if advice else ""))


@dataclass(frozen=True, slots=True)
class GradientMemory:
    """The memory of a spike rule; part of a checkpoint.

    Attributes:
        norms: Gradient norms of the last steps that were taken, oldest first.
        skipped: Number of steps that were skipped in a row.
    """

    norms: tuple[float, ...] = ()
    skipped: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the memory as JSON's own types."""
        return {"norms": list(self.norms), "skipped": self.skipped}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "GradientMemory":
        """Return the memory that `to_json` wrote."""
        return cls(tuple(data["norms"]), data["skipped"])


class Judgement(NamedTuple):
    """The verdict of a spike rule on a step.

    Attributes:
        is_spike: Whether the norm is above the limit.
        skip: Whether to skip the step.
        limit: The largest norm that is no spike; infinite during the warm-up.
        memory: The memory after the step.
    """

    is_spike: bool
    skip: bool
    limit: float
    memory: GradientMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class SpikeRule:
    """Detect a gradient norm that spikes: far above the median of the last ones, in units of their scatter.

    The limit is ``median + factor * max(1.4826 * MAD, floor * median)``, with MAD the median absolute deviation; 1.4826
    makes it a standard deviation for normally distributed norms, and the floor prevents that every change of nearly
    constant norms is a spike. A few spikes do not change median and MAD.
    """

    window: int = 64
    """Number of steps in the memory."""
    warm_up: int = 16
    """Steps before anything is called a spike."""
    factor: float = 8.0
    """How many robust standard deviations above the median."""
    floor: float = 0.1
    """Smallest standard deviation, as a share of the median."""
    skip: bool = False
    """Whether a step that spikes is to be skipped."""
    max_skips: int = 3
    """Most steps skipped in a row: gradients that stay larger are no spike."""

    def __post_init__(self) -> None:
        check_counts(window=self.window, warm_up=self.warm_up, max_skips=self.max_skips)
        check_range(above=0, finite=False, factor=self.factor)
        check_range(least=0, floor=self.floor)

    def judge(self, memory: GradientMemory, norm: float) -> Judgement:
        """Return the verdict on a step, with the memory after it.

        The norm of a skipped step is not remembered, that of every other step is, spike or not. After `max_skips` skips
        in a row the old norms are dropped, and nothing is a spike until the rule has warmed up to the new ones.

        Args:
            memory: The memory of the steps before.
            norm: Gradient norm of this step, before clipping.

        Raises:
            TrainingDiverged: The norm is not finite.
        """
        require_finite({"gradient norm": norm}, where="spike rule", advice="the step must not be taken")
        limit = self.limit(memory)
        is_spike = norm > limit
        skip = self.skip and is_spike and memory.skipped < self.max_skips
        if skip:
            return Judgement(True, True, limit, GradientMemory(memory.norms, memory.skipped + 1))
        # A spike that is taken after too many skips is the new level: the old norms are dropped.
        before = () if self.skip and is_spike else memory.norms
        return Judgement(is_spike, False, limit, GradientMemory((*before, norm)[-self.window :]))

    def limit(self, memory: GradientMemory) -> float:
        """Return the largest norm that is no spike."""
        if len(memory.norms) < max(1, min(self.warm_up, self.window)):
            return float("inf")
        middle = median(memory.norms)
        # Most steps had no gradient at all: there is no scale to compare with.
        if middle == 0:
            return float("inf")
        scatter = median(abs(norm - middle) for norm in memory.norms)
        return middle + self.factor * max(1.4826 * scatter, self.floor * middle)
