"""Diagnosis: findings about a run from its records, such as an echo trap, each with advice; torch-free.

Thresholds are rules of thumb, not measurements; docs/stability.md explains each finding.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Finding:
    """A symptom of a run, the observation with numbers, and advice."""

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
    risen: float = 0.05
    """Gain of success above which a run learns, so that falling spread, entropy or retrieval are no collapse."""
    invalid: float = 0.1
    """Loss in the share of valid answers above which the answer format is being lost."""
    solved: float = 0.9
    """Success above which there is little left to learn, so that a falling spread is expected."""
    equal_groups: float = 0.8
    """Share of groups with equal returns above which an update has nearly no signal."""
    clip_fraction: float = 0.3
    """Share of clipped tokens above which most of an update is thrown away."""
    duplicates: float = 0.5
    """Share of repeated candidates above which most of a search's budget is wasted."""
    spikes: float = 0.1
    """Share of steps with spiking gradients above which they are systematic."""


class _Trend(NamedTuple):
    early: float
    late: float

    def __str__(self) -> str:
        return f"{self.early:.3g} -> {self.late:.3g}"


_Check = Callable[[Sequence[Record], Thresholds], Finding | None]


def diagnose(records: Sequence[Record], thresholds: Thresholds | None = None) -> list[Finding]:
    """Return the findings of a run, the gravest first; none while it is shorter than two windows.

    Args:
        records: One per update in order, with the numbers of `group_metrics`, `tree_metrics`, `prompt_information` and
            the learner; what is missing or no finite number is skipped.
        thresholds: When a trend is a finding.
    """
    limits = thresholds or Thresholds()
    if len(records) < 2 * limits.window:
        return []
    numbers = [{name: value for name, value in record.items() if _is_number(value)} for record in records]
    findings = [check(numbers, limits) for check in _CHECKS]
    return [finding for finding in findings if finding is not None]


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and -1e18 < value < 1e18  # type: ignore[operator]


def at_random(records: Sequence[Record], random: float | None, updates: int = 20) -> Finding | None:
    """Return a finding where the last updates were no better than random play; else, or with too few updates, None.

    Args:
        records: One per update in order, with the `success` of training.
        random: Success of random play; None where it is unknown.
        updates: Number of the last updates that count.
    """
    successes = [record["success"] for record in records[-updates:] if record.get("success") is not None]
    # The mean of so many updates is about two points off by chance.
    if random is None or len(successes) < updates or (success := sum(successes) / updates) > random + 0.02:
        return None
    return Finding(
        "at the random bar",
        f"success was {success:.3f} over the last {updates} updates, random play has {random:.3f}",
        "raise the learning rates (--lr, --critic-lr), which small models need far above the paper's; use easier tasks "
        "or search, so that some trajectories of a group succeed where others fail; try another --model",
    )


def _trend(records: Sequence[Record], name: str, window: int) -> _Trend | None:
    early, late = (
        [record[name] for record in part if record.get(name) is not None]
        for part in (records[:window], records[-window:])
    )
    return _Trend(median(early), median(late)) if early and late else None


def _echo_trap(records: Sequence[Record], limits: Thresholds) -> Finding | None:
    spread, entropy, success = (_trend(records, name, limits.window) for name in ("group_spread", "entropy", "success"))
    if spread is None or entropy is None or _learns(success, limits):
        return None
    if spread.late < limits.fallen * spread.early and entropy.late < limits.fallen * entropy.early:
        return Finding(
            "echo trap",
            f"returns within a group vary less ({spread}) and so do answers (entropy {entropy}), before it is solved",
            "resume from a checkpoint before the fall; keep only groups of mixed success, lower the learning rate, "
            "raise the entropy bonus or clip_high, or sample more groups",
        )
    return None


def _learns(success: _Trend | None, limits: Thresholds) -> bool:
    return success is not None and (success.late >= limits.solved or success.late > success.early + limits.risen)


def _lost_format(records: Sequence[Record], limits: Thresholds) -> Finding | None:
    valid = _trend(records, "valid", limits.window)
    if valid is None or valid.late >= valid.early - limits.invalid:
        return None
    return Finding(
        "lost format",
        f"fewer answers can be parsed (share of valid turns {valid})",
        "read invalid answers in tsr view; raise --max-tokens if they are cut, --penalty if they cost nothing, or "
        "lower the learning rate",
    )


def _template_collapse(records: Sequence[Record], limits: Thresholds) -> Finding | None:
    entropy, recall, success = (
        _trend(records, name, limits.window) for name in ("entropy", "prompt_recall", "success")
    )
    if recall is None or entropy is None or entropy.late < limits.fallen * entropy.early or _learns(success, limits):
        return None
    if recall.late < limits.fallen * recall.early:
        return Finding(
            "template collapse",
            f"answers depend less on their prompts (retrieval above chance {recall}) at an entropy of {entropy}",
            "entropy hides it: filter by the spread of returns, lower the weights of KL and entropy, and check whether "
            "the reward depends on the prompt at all",
        )
    return None


def _gradient_unrest(records: Sequence[Record], limits: Thresholds) -> Finding | None:
    spikes = [record["spikes"] for record in records[-limits.window :] if record.get("spikes") is not None]
    if not spikes or sum(spikes) / len(spikes) <= limits.spikes:
        return None
    return Finding(
        "gradient unrest",
        f"{sum(spikes) / len(spikes):.0%} of the last steps had spiking gradients",
        "lower the learning rate or grad_clip; skip spiking steps; read the trajectories of a spike",
    )


def _excess(number: str, limit: Callable[[Thresholds], float], name: str, what: str, advice: str) -> _Check:
    """Return a check whether the last median of a number lies above its limit."""

    def check(records: Sequence[Record], limits: Thresholds) -> Finding | None:
        trend = _trend(records, number, limits.window)
        if trend is None or trend.late <= limit(limits):
            return None
        return Finding(name, what.format(trend), advice)

    return check


_CHECKS: tuple[_Check, ...] = (
    _echo_trap,
    _template_collapse,
    _lost_format,
    _excess(
        "equal_groups",
        lambda limits: limits.equal_groups,
        "nothing to learn",
        "in most groups every trajectory earns the same (share {})",
        "use easier or harder tasks, more trajectories per group, or search, so that some succeed where others fail",
    ),
    _gradient_unrest,
    _excess(
        "clip_fraction",
        lambda limits: limits.clip_fraction,
        "clip binds",
        "a large share of tokens is clipped ({})",
        "use fewer epochs or larger minibatches; with old_logprobs=sampler, check that sampler and learner agree",
    ),
    _excess(
        "duplicate_candidates",
        lambda limits: limits.duplicates,
        "idle search",
        "most candidates repeat a sibling (share {})",
        "use less branching, a higher sampling temperature, or plain play: the policy is nearly deterministic",
    ),
)
