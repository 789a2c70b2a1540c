"""Output of commands: JSON for programs, tables and progress bars for people."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from tsr_gym.errors import ConfigError
from tsr_gym.records import to_json
from tsr_gym.tree import Meter

# Seconds after which a command that prints nothing shows what it does.
SILENCE = 10.0
# Means the standard output, as in many programs.
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


def check_there(*paths: Path) -> None:
    """Raise ConfigError where there is nothing at a path."""
    if missing := [path for path in paths if not path.exists()]:
        raise ConfigError(f"{missing[0]}: wanted a file or a folder, there is none")


def write_json(value: Any, target: Path | None) -> bool:
    """Write a report as JSON where it is wanted, and return whether its text for people is to be printed as well.

    Args:
        value: A dataclass, or JSON's own types.
        target: The file; `HERE` for the standard output, where nothing else may then stand; None for no JSON.

    Raises:
        OSError: The file cannot be written.
    """
    if target is None:
        return True
    plain = asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
    text = to_json(plain, indent=2, unknown=str)
    if target == HERE:
        print(text)
        return False
    target.write_text(text + "\n", encoding="utf-8")
    return True


@contextmanager
def still_working(
    doing: Callable[[], str] = lambda: "", console: Console | None = None
) -> Iterator[Callable[[str], None]]:
    """Yield a function that prints a line. Where none came for ten seconds, what is being done is printed.

    Lines of what is being done come ever less often, at most every two minutes.

    Args:
        doing: Returns what is being done; "" for the last line that was printed.
        console: Where to print; None for the standard error.
    """
    shown = console or Console(stderr=True)
    ended, state = Event(), _Silence("", monotonic(), SILENCE)

    def note(line: str) -> None:
        state.line, state.since, state.limit = line, monotonic(), SILENCE
        if line:
            shown.print(line, soft_wrap=True, markup=False, highlight=False)

    def watch() -> None:
        while not ended.wait(0.5):
            passed = monotonic() - state.since
            if passed >= state.limit and (text := doing() or state.line):
                state.limit = min(2 * state.limit, state.limit + 120)
                shown.print(f"{text} ... {passed:.0f} s", soft_wrap=True, markup=False, highlight=False)

    thread = Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield note
    finally:
        ended.set()
        thread.join()


@contextmanager
def progress_bar(begins: str = "loading") -> Iterator[Meter]:
    """Yield a function that shows the progress of each stage of the work on the standard error.

    Without a terminal it prints a line per tenth of a stage, and what is being done after ten seconds without a line.

    Args:
        begins: What is done before the first stage.
    """
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal) as bar:
        tasks: dict[str, Any] = {}
        tenths: dict[str, int] = {}
        doing = begins

        with still_working(lambda: "" if tasks and console.is_terminal else doing, console) as note:

            def watch(stage: str, done: int, total: int) -> None:
                nonlocal doing
                doing = f"{stage}: {done:,} of {total:,}"
                if stage not in tasks:
                    tasks[stage] = bar.add_task(stage, total=total)
                bar.update(tasks[stage], completed=done, total=total)
                tenth = 10 * done // max(total, 1)
                if not console.is_terminal and tenth > tenths.get(stage, 0):
                    tenths[stage] = tenth
                    note(f"{stage}: {10 * tenth} %")

            yield watch


@dataclass(slots=True)
class _Silence:
    """The last line that was printed, when, and how many seconds after it the next one is due."""

    line: str
    since: float
    limit: float


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
        words: Whether all columns hold words and are aligned left; of numbers only the first is.
    """
    console = Console()
    # Without a terminal rich assumes 80 columns and would wrap the table; a piped table gets 180.
    wide = Console(width=None if console.is_terminal else 180)
    for part in tables:
        table = Table(title=part.title, caption=part.caption)
        for number, name in enumerate(part.columns):
            table.add_column(name, justify="left" if words or number == 0 else "right")
        for row in part.rows:
            table.add_row(*row)
        wide.print(table)
