"""What a run of the zoo found, as JSON, and as the table that the documentation shows."""

from collections import Counter, defaultdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

LIBRARIES = ("gymnasium", "ale-py", "box2d", "mujoco", "pygame-ce", "jax", "opencv-python-headless", "numpy")
# What can come of a stack, best first; the last two are Gymnasium's own refusals.
OUTCOMES = ("exact", "deepcopy", "replay", "refused", "inexact", "crashed", "not built", "does not fit")
_WITH_REASONS = ("refused", "inexact", "crashed", "not built")


def report(rows, full):
    """Return what came of stacks as plain values.

    Args:
        rows: One dictionary per stack, with ``group``, ``name``, ``outcome`` and ``reason``.
        full: Whether all pairs of ids and wrappers were looked at.
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
        "names": {group: {one: held[one] for one in OUTCOMES if one in held} for group, held in sorted(names.items())},
    }


def counts_of(rows, group):
    """Return how many stacks of a group came to what, best first."""
    counts = Counter(row["outcome"] for row in rows if row["group"] == group)
    return {outcome: counts[outcome] for outcome in OUTCOMES if counts[outcome]}


def table(found):
    """Return the counts of a report as a table in Markdown."""
    shown = [one for one in OUTCOMES if any(one in counts for counts in found["counts"].values())]
    lines = [f"| {' | '.join(['stacks', *shown])} |", f"|---|{'---:|' * len(shown)}"]
    for group, counts in found["counts"].items():
        lines.append(f"| {' | '.join([group, *[str(counts.get(one, '')) for one in shown]])} |")
    return "\n".join(lines) + "\n"


def _version(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return None
