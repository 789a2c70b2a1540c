"""Diagnosis: from the records of a run to findings such as an Echo Trap, each with what to do; torch-free.

Thresholds are rules of thumb, not measurements; docs/stability.md says what each finding means.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Finding:
    """A sign that a run shows, what was seen, with numbers, and what to do."""

    name: str
    what: str
    advice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """When a trend is a finding."""

    window: int = 10
    """Updates whose median stands for the beginning, and for the end; twice as many are needed."""
    fallen: float = 0.5
    """Share of its beginning below which a number has fallen."""
    solved: float = 0.9
    """Success above which there is little left to learn, and falling spread is no sign of anything."""
    equal_groups: float = 0.8
    """Share of groups with equal returns above which an update learns from nearly nothing."""
    clip_fraction: float = 0.3
    """Share of clipped tokens above which most of an update is thrown away."""
    duplicates: float = 0.5
    """Share of repeated candidates above which a search pays for what it has."""
    spikes: float = 0.1
    """Share of steps with spiking gradients above which they are no accident."""


class _Trend(NamedTuple):
    early: float
    late: float

    def __str__(self) -> str:
        return f"{self.early:.3g} -> {self.late:.3g}"


_Check = Callable[[Sequence[Record], Thresholds], Finding | None]


def diagnose(records: Sequence[Record], thresholds: Thresholds | None = None) -> list[Finding]:
    """Return what the records of a run show.

    Args:
        records: One per update in order, with what `group_metrics`, `tree_metrics`, `prompt_information` and the
            learner report; numbers that are missing or None are skipped.
        thresholds: When a trend is a finding.

    Returns:
        Findings, the gravest first; nothing while the run is younger than two windows.
    """
    limits = thresholds or Thresholds()
    if len(records) < 2 * limits.window:
        return []
    found = [check(records, limits) for check in _CHECKS]
    return [finding for finding in found if finding is not None]


def at_random(records: Sequence[Record], random: float | None, updates: int = 20) -> Finding | None:
    """Return that the last updates were no better than random play, or None where they were, or are too few.

    Args:
        records: One per update in order, with the `success` of training.
        random: Success of random play, None where nobody knows it.
        updates: How many of the last ones are looked at.
    """
    found = [record["success"] for record in records[-updates:] if record.get("success") is not None]
    # Two in a hundred is what the mean of so many may be off by chance.
    if random is None or len(found) < updates or (success := sum(found) / updates) > random + 0.02:
        return None
    return Finding(
        "at the random bar",
        f"success was {success:.3f} over the last {updates} updates, random play has {random:.3f}",
        "raise the learning rates (--lr, --critic-lr), which small models need to be far above the paper's; see that "
        "some trajectories succeed where others of their group fail, by easier tasks or by search; try another --model",
    )


def _trend(records: Sequence[Record], name: str, window: int) -> _Trend | None:
    early, late = (
        [record[name] for record in part if record.get(name) is not None]
        for part in (records[:window], records[-window:])
    )
    return _Trend(median(early), median(late)) if early and late else None


def _echo_trap(records: Sequence[Record], limits: Thresholds) -> Finding | None:
    spread, entropy, success = (_trend(records, name, limits.window) for name in ("group_spread", "entropy", "success"))
    if spread is None or entropy is None or (success is not None and success.late >= limits.solved):
        return None
    if spread.late < limits.fallen * spread.early and entropy.late < limits.fallen * entropy.early:
        return Finding(
            "echo trap",
            f"returns within a group vary less ({spread}) and so does what is said (entropy {entropy}), unsolved",
            "go back to a checkpoint before the fall; keep only groups of mixed success, lower the learning rate, "
            "raise the entropy bonus or clip_high, or sample more groups",
        )
    return None


def _template_collapse(records: Sequence[Record], limits: Thresholds) -> Finding | None:
    entropy, recall = (_trend(records, name, limits.window) for name in ("entropy", "prompt_recall"))
    if recall is None or entropy is None or entropy.late < limits.fallen * entropy.early:
        return None
    if recall.late < limits.fallen * recall.early:
        return Finding(
            "template collapse",
            f"answers say less about their prompts (retrieval above chance {recall}) at an entropy of {entropy}",
            "entropy hides it: filter by the spread of returns, lower the weights of KL and entropy, and look whether "
            "the reward needs the prompt at all",
        )
    return None


def _gradient_unrest(records: Sequence[Record], limits: Thresholds) -> Finding | None:
    spikes = [record["spikes"] for record in records[-limits.window :] if record.get("spikes") is not None]
    if not spikes or sum(spikes) / len(spikes) <= limits.spikes:
        return None
    return Finding(
        "gradient unrest",
        f"{sum(spikes) / len(spikes):.0%} of the last steps had spiking gradients",
        "lower the learning rate or grad_clip; skip spiking steps; look at the trajectories of a spike",
    )


def _excess(number: str, limit: Callable[[Thresholds], float], name: str, what: str, advice: str) -> _Check:
    """Return a check of whether a number of the records has come to lie above its limit."""

    def check(records: Sequence[Record], limits: Thresholds) -> Finding | None:
        trend = _trend(records, number, limits.window)
        if trend is None or trend.late <= limit(limits):
            return None
        return Finding(name, what.format(trend), advice)

    return check


_CHECKS: tuple[_Check, ...] = (
    _echo_trap,
    _template_collapse,
    _excess(
        "equal_groups",
        lambda limits: limits.equal_groups,
        "nothing to learn",
        "in most groups every trajectory earns the same (share {})",
        "easier or harder tasks, more trajectories a group, or search, so that some succeed where others fail",
    ),
    _gradient_unrest,
    _excess(
        "clip_fraction",
        lambda limits: limits.clip_fraction,
        "clip binds",
        "a large share of tokens is clipped ({})",
        "fewer epochs or larger minibatches; with old_logprobs=sampler, see whether sampler and learner agree",
    ),
    _excess(
        "duplicate_candidates",
        lambda limits: limits.duplicates,
        "idle search",
        "most candidates repeat a sibling (share {})",
        "less branching, a higher sampling temperature, or plain play: the policy has made up its mind",
    ),
)
