"""Spikes: gradient norms that stand out, and numbers that are not finite; torch-free.

A rule returns a decision, and its memory is a plain value that belongs into a checkpoint. See docs/stability.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from statistics import median
from typing import Any, NamedTuple

from tsr_gym.errors import ConfigError, TrainingDiverged


def require_finite(values: Mapping[str, float], *, where: str, advice: str = "") -> None:
    """Raise where a number is NaN or infinite, and name it.

    Args:
        values: Numbers by name.
        where: Where they were found, such as ``"update 12"``.
        advice: What to do about it.

    Raises:
        TrainingDiverged: Some are not finite.
    """
    bad = [f"{name} = {value}" for name, value in values.items() if not isfinite(value)]
    if bad:
        raise TrainingDiverged(f"{where}: {', '.join(bad)}" + (f": {advice}" if advice else ""))


@dataclass(frozen=True, slots=True)
class GradientMemory:
    """The memory of a spike rule; part of a checkpoint.

    Attributes:
        norms: Gradient norms of the last steps that counted, oldest first.
        skipped: How many steps in a row were skipped.
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
        skip: Whether the step should not be taken.
        limit: The largest norm that is no spike; infinite until there is something to compare with.
        memory: What to remember.
    """

    is_spike: bool
    skip: bool
    limit: float
    memory: GradientMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class SpikeRule:
    """Tell a gradient norm that spikes: far above the median of the last ones, in units of their own scatter.

    The limit is ``median + factor * max(1.4826 * MAD, floor * median)``, with MAD the median absolute deviation; 1.4826
    makes it a standard deviation where norms are normal, and the floor keeps norms that hardly vary from calling every
    change a spike. Median and MAD do not move for a few spikes.
    """

    window: int = 64
    """Steps that are remembered."""
    warm_up: int = 16
    """Steps before anything is called a spike."""
    factor: float = 8.0
    """How many robust standard deviations above the median."""
    floor: float = 0.1
    """Smallest standard deviation, as a share of the median."""
    skip: bool = False
    """Whether a step that spikes is to be skipped."""
    max_skips: int = 3
    """Steps skipped in a row at most: larger gradients that stay are no spike."""

    def __post_init__(self) -> None:
        if min(self.window, self.warm_up, self.max_skips) < 1 or not self.factor > 0 or not self.floor >= 0:
            raise ConfigError(
                "wanted window, warm_up and max_skips >= 1, factor > 0 and floor >= 0, got "
                f"{self.window}, {self.warm_up}, {self.max_skips}, {self.factor} and {self.floor}"
            )

    def judge(self, memory: GradientMemory, norm: float) -> Judgement:
        """Return the verdict on a step, with the memory after it.

        A norm that is skipped is not remembered; one that counts is, spike or not. After as many skips in a row as
        there may be, the old norms are forgotten, and nothing is a spike until the rule has warmed up to the new ones.

        Args:
            memory: Of the steps before.
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
        before = () if self.skip and is_spike else memory.norms
        return Judgement(is_spike, False, limit, GradientMemory((*before, norm)[-self.window :]))

    def limit(self, memory: GradientMemory) -> float:
        """Return the largest norm that is no spike."""
        if len(memory.norms) < max(1, min(self.warm_up, self.window)):
            return float("inf")
        middle = median(memory.norms)
        if middle == 0:
            return float("inf")
        scatter = median(abs(norm - middle) for norm in memory.norms)
        return middle + self.factor * max(1.4826 * scatter, self.floor * middle)
