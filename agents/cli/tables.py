"""Tables of a report in the terminal."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table


class Shown(NamedTuple):
    """A table for the terminal."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str | None = None


def show_tables(tables: Iterable[Any], *, words: bool = False) -> None:
    """Print tables with `title`, `caption`, `columns` and `rows`.

    Args:
        tables: What to print.
        words: Whether all columns hold words and stand on the left; of numbers only the first does.
    """
    console = Console()
    # A table that is piped into a file should not be folded at 80 columns.
    wide = Console(width=None if console.is_terminal else 180)
    for part in tables:
        table = Table(title=part.title, caption=part.caption)
        for number, name in enumerate(part.columns):
            table.add_column(name, justify="left" if words or number == 0 else "right")
        for row in part.rows:
            table.add_row(*row)
        wide.print(table)
