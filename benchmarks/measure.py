"""What the measurements share: the best of several timings, and one JSON file per measurement."""

import json
import os
import platform
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from subprocess import CalledProcessError, run
from time import process_time
from typing import Any

PACKAGES = ("gymnasium", "numpy", "numba", "torch", "transformers")
RESULTS = Path(__file__).parent / "results"
SHARED = Path(__file__).resolve().parents[2] / "shared"


def rows_of(path: str) -> list[dict[str, Any]]:
    """Return the rows of a file below ../shared."""
    return [json.loads(line) for line in (SHARED / path).read_text(encoding="utf-8").splitlines()]


def best_seconds(work: Callable[[], object], *, repeats: int = 5, before: Callable[[], object] | None = None) -> float:
    """Return the least processor time of `work`; `before` prepares each repeat and is not timed."""
    best = float("inf")
    for _ in range(repeats):
        if before is not None:
            before()
        start = process_time()
        work()
        best = min(best, process_time() - start)
    return best


def stamped(numbers: dict[str, Any]) -> dict[str, Any]:
    """Return numbers with the machine, versions, commit and date they belong to."""
    cpu = [line for line in _cpu_lines() if line.startswith("model name")]
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": cpu[0].partition(":")[2].strip() if cpu else platform.processor(),
        "cores": os.cpu_count(),
        "commit": _commit(),
        "versions": {"python": platform.python_version()} | _versions(),
    } | numbers


def write_result(name: str, numbers: dict[str, Any], *, out: Path | None = None) -> None:
    """Write and print numbers, stamped.

    Args:
        name: Of the file among the results.
        numbers: What was measured.
        out: Another file, for a trial.
    """
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps(stamped(numbers), indent=2)
    (out or RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    print(text)


def _commit() -> str | None:
    """Return what was run, marked where files had been changed; None outside of a checkout."""
    asked = ["git", "-C", str(RESULTS.parent), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        return run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, CalledProcessError):
        return None


def _versions() -> dict[str, str]:
    return {name: version(name) for name in PACKAGES if find_spec(name)}


def _cpu_lines() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []
