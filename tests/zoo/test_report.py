"""The results of a zoo run as JSON and as the table of the documentation, and the tests of both."""

import json
from collections import Counter, defaultdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

from tests.conftest import ROOT

LIBRARIES = ("gymnasium", "ale-py", "box2d", "mujoco", "pygame-ce", "jax", "opencv-python-headless", "numpy")
# The outcomes of a stack, best first; the last two are refusals of Gymnasium.
OUTCOMES = ("exact", "deepcopy", "replay", "refused", "inexact", "crashed", "not built", "does not fit")
_WITH_REASONS = ("refused", "inexact", "crashed", "not built")


def report(rows, full):
    """Return the outcomes of stacks as plain values.

    Args:
        rows: One dictionary per stack, with ``group``, ``name``, ``outcome`` and ``reason``.
        full: Whether all pairs of ids and wrappers were checked.
    """
    names = defaultdict(lambda: defaultdict(list))
    for row in sorted(rows, key=lambda row: row["name"]):
        names[row["group"]][row["outcome"]].append(row["name"])
    ordered = sorted(rows, key=lambda row: (OUTCOMES.index(row["outcome"]), row["group"], row["name"]))
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "libraries": {name: _version(name) for name in LIBRARIES},
        "full": full,
        "counts": {group: counts_of(rows, group) for group in sorted(names)},
        "reasons": [row for row in ordered if row["outcome"] in _WITH_REASONS],
        "names": {
            group: {outcome: held[outcome] for outcome in OUTCOMES if outcome in held}
            for group, held in sorted(names.items())
        },
    }


def counts_of(rows, group):
    """Return the number of stacks of a group by outcome, best first."""
    counts = Counter(row["outcome"] for row in rows if row["group"] == group)
    return {outcome: counts[outcome] for outcome in OUTCOMES if counts[outcome]}


def table(results):
    """Return the counts of a report as a table in Markdown."""
    shown = [outcome for outcome in OUTCOMES if any(outcome in counts for counts in results["counts"].values())]
    lines = [f"| {' | '.join(['stacks', *shown])} |", f"|---|{'---:|' * len(shown)}"]
    for group, counts in results["counts"].items():
        lines.append(f"| {' | '.join([group, *[str(counts.get(one, '')) for one in shown]])} |")
    return "\n".join(lines) + "\n"


def _version(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return None


ROWS = [
    {"group": "Atari", "name": "ALE/Pong-v5", "outcome": "exact", "reason": "saved"},
    {"group": "Atari", "name": "ALE/Golf-v5", "outcome": "replay", "reason": "not read back"},
    {"group": "one wrapper", "name": "Pong + RecordVideo", "outcome": "refused", "reason": "it writes files"},
    {"group": "one wrapper", "name": "CartPole + Resize", "outcome": "does not fit", "reason": "no picture"},
    {"group": "one wrapper", "name": "CartPole + RecordVideo", "outcome": "refused", "reason": "it writes files"},
]


def test_a_report_counts_every_stack_and_gives_every_refusal_with_its_reason():
    results = report(ROWS, full=False)
    assert results["counts"] == {"Atari": {"exact": 1, "replay": 1}, "one wrapper": {"refused": 2, "does not fit": 1}}
    assert [row["name"] for row in results["reasons"]] == ["CartPole + RecordVideo", "Pong + RecordVideo"]
    assert {row["reason"] for row in results["reasons"]} == {"it writes files"}
    assert results["names"]["Atari"] == {"exact": ["ALE/Pong-v5"], "replay": ["ALE/Golf-v5"]}


def test_the_table_shows_the_outcomes_that_there_are():
    assert table(report(ROWS, full=False)).splitlines() == [
        "| stacks | exact | replay | refused | does not fit |",
        "|---|---:|---:|---:|---:|",
        "| Atari | 1 | 1 |  |  |",
        "| one wrapper |  |  | 2 | 1 |",
    ]


def test_the_documentation_shows_the_committed_report_in_which_nothing_is_inexact():
    results = json.loads((ROOT / "docs" / "gym_zoo.json").read_text(encoding="utf-8"))
    assert table(results) in (ROOT / "docs" / "any_environment.md").read_text(encoding="utf-8")
    outcomes = {outcome for counts in results["counts"].values() for outcome in counts}
    assert outcomes <= {"exact", "deepcopy", "replay", "refused", "not built", "does not fit"}
    for group, held in results["names"].items():
        assert {outcome: len(names) for outcome, names in held.items()} == results["counts"][group]
