"""How far long work is: bars in a terminal, a line a tenth elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

# Called with the name of a stage, how much of it is done, and how much there is.
Watch = Callable[[str, int, int], None]


@contextmanager
def progress_bar() -> Iterator[Watch]:
    """Yield what is to be told of each stage of the work; shows it on the standard error."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal) as bar:
        tasks: dict[str, Any] = {}
        tenths: dict[str, int] = {}

        def watch(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done, total=total)
            tenth = 10 * done // max(total, 1)
            if not console.is_terminal and tenth > tenths.get(stage, 0):
                tenths[stage] = tenth
                print(f"{stage}: {10 * tenth} %", file=sys.stderr)

        yield watch
