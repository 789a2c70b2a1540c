"""The help of a command with many settings, cut to those that are asked for first."""

import re
import sys
from collections.abc import Collection, Sequence
from contextlib import redirect_stdout, suppress
from io import BytesIO, TextIOWrapper
from typing import Any

from tsr_gym.cli.arguments import read_arguments

# How a box begins and ends, and how a line begins that explains flags; blanks stand where no lines can be drawn.
BEGINS, ENDS, ENTRY = re.compile(r"╭| \S"), re.compile(r"╰|\s*$"), re.compile(r"(│| ) (--?[a-z].*)")


def short_help(kind: Any, flags: Collection[str], *, prog: str, positional: bool = False) -> str:
    """Return a command's help with some of its settings, in the groups that they stand in.

    Args:
        kind: The dataclass that the command reads its arguments as.
        flags: The settings, such as ``--seed``.
        prog: The command.
        positional: As in `read_arguments`.
    """
    # Of the same encoding, which decides whether boxes are drawn.
    written = TextIOWrapper(BytesIO(), encoding=sys.stdout.encoding, write_through=True)
    with redirect_stdout(written), suppress(SystemExit):
        read_arguments(kind, ["--help"], prog=prog, positional=positional)
    lines = []
    written.seek(0)
    for box in _boxes(written.read().splitlines()):
        lines += _cut(box, flags)
    return "\n".join([*lines, f"{prog} --help-all shows every setting."])


def _boxes(lines: Sequence[str]) -> list[list[str]]:
    """Return the lines of a help text in boxes; what stands outside of all is one of its own."""
    boxes: list[list[str]] = [[]]
    for line in lines:
        if BEGINS.match(line):
            boxes.append([])
        boxes[-1].append(line)
    return boxes


def _cut(box: Sequence[str], flags: Collection[str]) -> list[str]:
    """Return a box without the settings that are not wanted; nothing where none is left."""
    named = [_flags_in(line) for line in box]
    if not any(named) or any("--help" in one for one in named):
        return list(box)
    kept, wanted, found = [], True, False
    for line, own in zip(box, named, strict=True):
        if own:
            wanted = any(flag in flags for flag in own)
            found = found or wanted
        if wanted or ENDS.match(line):
            kept.append(line)
    return kept if found else []


def _flags_in(line: str) -> list[str]:
    """Return the flags that a line of a box begins to explain."""
    found = ENTRY.match(line)
    return [word.rstrip(",") for word in found[2].split() if word.startswith("-")] if found else []
