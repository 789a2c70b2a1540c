"""Diagnosis: runs with simple trends, and their findings."""

import pytest

from tsr_gym.agents.reports.diagnosis import Thresholds, at_random, diagnose

SHORT = Thresholds(window=3)


def run(updates=8, **trends):
    """Return records in which numbers change linearly from one value to another."""
    return [
        {name: first + (last - first) * step / (updates - 1) for name, (first, last) in trends.items()}
        for step in range(updates)
    ]


def names(records, thresholds=SHORT):
    return [finding.name for finding in diagnose(records, thresholds)]


HEALTHY = {
    "group_spread": (1.0, 0.9), "entropy": (1.0, 0.8), "success": (0.1, 0.6), "prompt_recall": (0.8, 0.9),
    "equal_groups": (0.3, 0.3), "clip_fraction": (0.0, 0.1), "duplicate_candidates": (0.1, 0.2), "spikes": (0.0, 0.0),
}  # fmt: skip


def test_a_healthy_run_has_no_findings():
    assert names(run(**HEALTHY)) == []


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("echo trap", {"group_spread": (1.0, 0.0), "entropy": (1.0, 0.0), "success": (0.1, 0.1)}),
        ("template collapse", {"prompt_recall": (0.9, 0.0), "success": (0.3, 0.1)}),
        ("lost format", {"valid": (1.0, 0.75)}),
        ("nothing to learn", {"equal_groups": (0.5, 1.0)}),
        ("gradient unrest", {"spikes": (0.0, 0.5)}),
        ("clip binds", {"clip_fraction": (0.0, 0.6)}),
        ("idle search", {"duplicate_candidates": (0.2, 0.9)}),
    ],
)
def test_each_finding_has_its_symptom(name, change):
    (finding,) = diagnose(run(**{**HEALTHY, **change}), SHORT)
    assert finding.name == name
    assert finding.advice


@pytest.mark.parametrize(
    "change",
    [
        # Spread falls because everything is solved.
        {"group_spread": (1.0, 0.0), "entropy": (1.0, 0.0), "success": (0.8, 1.0)},
        # One of the two alone is not the trap.
        {"group_spread": (1.0, 0.0)},
        {"entropy": (1.0, 0.0)},
        # Success rises from .6 to 41 %.
        {"group_spread": (1.0, 0.0), "entropy": (1.0, 0.0), "success": (0.006, 0.41)},
        {"prompt_recall": (0.9, 0.0), "success": (0.006, 0.41)},
        {"valid": (0.97, 0.93)},
    ],
)
def test_falling_numbers_alone_are_no_collapse(change):
    assert names(run(**{**HEALTHY, **change})) == []


def test_falling_entropy_is_no_hidden_collapse_and_a_finding_has_its_numbers():
    assert names(run(**{**HEALTHY, "prompt_recall": (0.9, 0.0), "entropy": (1.0, 0.0)})) == []
    (finding,) = diagnose(run(**{**HEALTHY, "equal_groups": (0.5, 1.0)}), SHORT)
    # Medians of the first and of the last three of eight.
    assert "0.571 -> 0.929" in finding.what


def test_young_runs_have_no_findings_and_missing_numbers_are_skipped():
    collapsed = {**HEALTHY, "equal_groups": (0.9, 1.0)}
    assert names(run(5, **collapsed)) == []
    assert names(run(8, **collapsed), Thresholds(window=3, equal_groups=0.99)) == []
    assert diagnose(run(19, **collapsed)) == []
    assert [finding.name for finding in diagnose(run(20, **collapsed))] == ["nothing to learn"]
    assert names([{} for _ in range(8)]) == []
    assert names([{"equal_groups": None, "spikes": None} for _ in range(8)]) == []
    holes = run(**{**HEALTHY, "equal_groups": (1.0, 1.0)})
    holes[-1] = {**holes[-1], "equal_groups": None}
    assert names(holes) == ["nothing to learn"]


@pytest.mark.parametrize(
    ("success", "random", "updates", "wanted"),
    [
        (0.2, 0.19, 20, True),
        (0.2, 0.1, 20, False),
        (0.0, 0.1, 20, True),
        (0.0, 0.1, 19, False),
        (0.0, None, 20, False),
        (None, 0.1, 20, False),
    ],
)
def test_a_run_at_the_random_bar_is_reported(success, random, updates, wanted):
    finding = at_random([{"success": success}] * updates, random)
    assert (finding is not None) is wanted
    # A good update before the last twenty does not count, a good half of them does.
    if wanted:
        assert at_random([{"success": 1.0}, *[{"success": success}] * 20], random) == finding
        assert at_random([*[{"success": success}] * 10, *[{"success": 1.0}] * 10], random) is None
