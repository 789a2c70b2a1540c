"""The help of a command: in one column, with words for what settings take, and cut to those that are wanted."""

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import partial
from io import BytesIO, TextIOWrapper
from textwrap import wrap
from typing import Any

import tyro

# Wider boxes would stand beside one another.
WIDTH = 100
# What settings take whose type is any text.
TAKES = {
    **dict.fromkeys(
        ("--search", "--score", "--rater", "--filter", "--estimator", "--start-states-from", "--kind"), "CALL"
    ),
    **dict.fromkeys(("--env-set", "--eval-env-set"), "KEY=VALUE"),
    **dict.fromkeys(("--split", "--train-split", "--eval-split"), "{train,valid,test,all,none}"),
    "--credit": "CALL",
    "--model": "FOLDER",
    "--warm-start": "FILE",
    "--preset": "{paper,tsr-code,...}",
    "--history": "{auto,full,markov,window(K)}",
    "--device": "{auto,cpu,cuda,cuda:1,...}",
    "--lora-targets": "NAME",
    "--label": "NAME",
    "--against": "LABEL",
    "--env": "ENV",
    "--base-url": "URL",
    "--api-key-from": "VARIABLE",
    "--host": "ADDRESS",
    "--engine-url": "URL",
    "--ray": "{off,local,auto,HOST:PORT}",
}
POSITIONAL = {"tsr eval": "SOURCE"}
# How a box begins and ends, and how a line begins that explains flags; blanks stand where no lines can be drawn.
BEGINS, ENDS, ENTRY = re.compile(r"╭| \S"), re.compile(r"╰|\s*$"), re.compile(r"(│| ) (--?[a-z].*)")
FLAGS = re.compile(r"--?[a-z][\w-]*(?:, --?[a-z][\w-]*)*(?![\w:])")
# The beginning of a line that goes on with what stands above it.
GOES_ON = re.compile(r"[│ ] {5,}(?=\S)")
_TYPE = re.compile(r"(?:\{None\}\|)?(?:STR|PATH|INT|FLOAT)\b")


def help_text(
    kind: Any, command: Sequence[str], *, prog: str, config: Sequence[Any] = (), description: str | None = None
) -> str:
    """Return the help of a command.

    Args:
        kind: The dataclass that it reads its arguments as, or a union of those of subcommands.
        command: The subcommand whose help is wanted; empty for that of the command itself.
        prog: The command.
        config: Markers of tyro.
        description: Of the command, instead of the dataclass's docstring.
    """
    # Of the same encoding, which decides whether boxes are drawn.
    written = TextIOWrapper(BytesIO(), encoding=sys.stdout.encoding, write_through=True)
    with _one_column(), redirect_stdout(written), suppress(SystemExit):
        tyro.cli(kind, args=[*command, "--help"], prog=prog, description=description, config=tuple(config))
    written.seek(0)
    spelled = "\n".join(_spelled(line, prog) for line in written.read().splitlines())
    return "\n".join(_filled(spelled.splitlines(), min(WIDTH, shutil.get_terminal_size().columns)))


@contextmanager
def _one_column() -> Iterator[None]:
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(min(WIDTH, shutil.get_terminal_size().columns))
    try:
        yield
    finally:
        del os.environ["COLUMNS"]
        if before is not None:
            os.environ["COLUMNS"] = before


def _spelled(line: str, prog: str) -> str:
    """Return a line with words for types, as long as it was where there is room."""
    place = POSITIONAL.get(prog, "ENV")
    if line.startswith("usage: "):
        named = re.sub(r"(--[\w-]+) STR\b", lambda found: f"{found[1]} {TAKES.get(found[1], 'STR')}", line)
        return re.sub(r"\bSTR\b", place, named.replace("{None}|", ""))
    if heading := re.match(r"(╭─ | |)((?:config|what)\.(?:learn\.)?)(\w+ options)", line):
        return _swap(line, heading[2] + heading[3], heading[3], "─" if "─" in heading[1] else " ")
    if re.match(r"(│| ) (STR|\[\{None\}\|STR\]) ", line):
        return _swap(line, "[{None}|STR]" if "[{" in line else "STR", place)
    found = ENTRY.match(line)
    if found is None:
        return line
    word = next((TAKES[flag] for flag in _flags_in(line) if flag in TAKES), None)
    several = re.search(r"(?:\{None\}\|)?\{?\[?(\w+) \[\1 \.\.\.\]\]?\}?", found[2])
    if several is not None:
        return _swap(line, several[0], f"{word or several[1]} ...")
    kind = _TYPE.search(found[2])
    return line if kind is None else _swap(line, kind[0], word or kind[0].removeprefix("{None}|"))


def _swap(line: str, old: str, new: str, blank: str = " ") -> str:
    """Return a line with another word and the rest in its place, on a line of its own where there is no room."""
    before, _, after = line.partition(old)
    rest = after.lstrip(" ")
    room = len(old) + len(after) - len(rest) - len(new)
    if blank != " ":
        return f"{before}{new} {blank * (len(old) - len(new))}{rest}"
    if room >= min(1, len(after) - len(rest)):
        return f"{before}{new}{' ' * room}{rest}"
    border = line[0] if line[0] == line[-1] == "│" else ""
    first = f"{before}{new}".ljust(len(line) - len(border)) + border
    return f"{first.rstrip(' ')}\n{(border or ' ').ljust(len(line) - len(rest))}{rest}"


@contextmanager
def errors_spelled(prog: str) -> Iterator[None]:
    """Write what tyro says of a wrong command line with the words of the help for what settings take."""
    written = TextIOWrapper(BytesIO(), encoding=sys.stderr.encoding, write_through=True)
    try:
        with _one_column(), redirect_stderr(written):
            yield
    finally:
        written.seek(0)
        place = POSITIONAL.get(prog, "ENV")
        for line in written.read().splitlines():
            flag = re.search(r"(?:^|[│ ]) *(--[\w-]+) STR\b", line)
            word = TAKES.get(flag[1], "STR") if flag else place
            print(re.sub(r"^((?:│| ) +(?:--[\w-]+ )?)STR\b( *)", partial(_in_place, word), line), file=sys.stderr)


def _in_place(word: str, found: re.Match[str]) -> str:
    """Return the words before a type, and another word in its place that takes as much room where there is any."""
    return f"{found[1]}{word}{' ' * max(len(found[2]) + len('STR') - len(word), 0)}"


def _filled(lines: Sequence[str], width: int) -> list[str]:
    """Return lines in which the words for a setting run on; those of its docstring end wherever the source does."""
    filled: list[str] = []
    for line in lines:
        goes_on = GOES_ON.match(line)
        before = filled[-1] if filled else ""
        at = goes_on.end() if goes_on else 0
        border = "│" if line.startswith("│") else ""
        if not goes_on or before[at - 2 : at].strip(" │") or not before[at : at + 1].strip(" │"):
            filled.append(line)
            continue
        words = f"{before[at:].rstrip(' │')} {line[at:].rstrip(' │')}"
        first, *others = wrap(words, width - at - 2, break_on_hyphens=False)
        parts = [before[:at] + first, *(goes_on[0] + other for other in others)]
        filled[-1:] = [f"{part.ljust(width - 2)} │" if border else part for part in parts]
    return filled


def cut(text: str, wanted: Callable[[str], bool]) -> str:
    """Return a help text with the settings that are wanted, in the groups that they stand in."""
    return "\n".join(line for box in _boxes(text.splitlines()) for line in _cut(box, wanted))


def _boxes(lines: Sequence[str]) -> list[list[str]]:
    """Return the lines of a help text in boxes; what stands outside of all is one of its own."""
    boxes: list[list[str]] = [[]]
    for line in lines:
        if BEGINS.match(line):
            boxes.append([])
        boxes[-1].append(line)
    return boxes


def _cut(box: Sequence[str], wanted: Callable[[str], bool]) -> list[str]:
    """Return a box without the settings that are not wanted; nothing where none is left."""
    named = [_flags_in(line) for line in box]
    if not any(named):
        return list(box)
    kept, shown, found = [], True, False
    for line, own in zip(box, named, strict=True):
        if own:
            shown = "--help" in own or any(map(wanted, own))
            found = found or shown
        if shown or ENDS.match(line):
            kept.append(line)
    return kept if found else []


def _flags_in(line: str) -> list[str]:
    """Return the flags that a line of a box begins to explain."""
    found = ENTRY.match(line)
    flags = FLAGS.match(found[2]) if found else None
    return flags[0].split(", ") if flags else []
