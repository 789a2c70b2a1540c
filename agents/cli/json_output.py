"""What a command reports, as JSON for programs: in a file, or in place of the words for people."""

import json
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

# Stands for the standard output, as in many programs.
HERE = Path("-")


def with_json(args: Sequence[str]) -> list[str]:
    """Return a command line in which a `--json` without a file names the standard output.

    >>> with_json(["runs/a", "--json"]), with_json(["--json", "a.json"])
    (['runs/a', '--json', '-'], ['--json', 'a.json'])
    """
    filled = []
    for arg, after in zip(args, [*args, "--"][1:], strict=True):
        filled += [arg, str(HERE)] if arg == "--json" and after.startswith("--") else [arg]
    return filled


def write_json(value: Any, target: Path) -> None:
    """Write a report, a dataclass or JSON's own types, into a file or to the standard output.

    Raises:
        OSError: The file cannot be written.
    """
    plain = asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
    text = json.dumps(plain, indent=2, default=str)
    if target == HERE:
        print(text)
    else:
        target.write_text(text + "\n", encoding="utf-8")
