"""Where a measurement of the learner is written: among the results, or for a trial to another file."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.measure import write_result


def record(name: str, numbers: dict[str, Any], out: Path | None) -> None:
    """Write numbers to the results, or to a file."""
    if out is None:
        write_result(name, numbers)
        return
    text = json.dumps({"date": datetime.now(UTC).isoformat(timespec="seconds")} | numbers, indent=2)
    out.write_text(text + "\n", encoding="utf-8")
    print(text)
