"""`tsr doctor`: what is installed, what works, and what each missing extra would bring."""

import os
import platform
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from tsr_gym.agents.cli.arguments import read_arguments
from tsr_gym.agents.cli.json_output import HERE, with_json, write_json
from tsr_gym.files import cache_home
from tsr_gym.optional import load, require
from tsr_gym.version import __version__

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
MARKS = {"works": "[green]works[/]", "missing": "[yellow]missing[/]", "failed": "[red]failed[/]"}


@dataclass(frozen=True, slots=True)
class DoctorArgs:
    """Say what is installed and what works, and what each missing extra would bring. Status 1: something is broken."""

    self_test: bool = True
    """Make, restore and search every world that can be made, for ten seconds at most."""
    json: Path | None = None
    """File for the same as JSON; without a file it is printed."""


def main(args: list[str]) -> int:
    """Look, print what was found, and return 1 where something that is installed does not work."""
    chosen = read_arguments(DoctorArgs, with_json(args), prog="tsr doctor")
    require("packaging", "cli")
    found = examine(chosen.self_test)
    if chosen.json is not None:
        write_json(found, chosen.json)
    if chosen.json != HERE:
        _show(found)
    return 1 if found["problems"] else 0


def examine(self_test: bool) -> dict[str, Any]:
    """Return everything that `tsr doctor` says, as JSON's own types.

    Args:
        self_test: Whether the worlds are tried.
    """
    extras: Any = load("tsr_gym.agents.cli.installed:extras")
    test: Any = load("tsr_gym.agents.cli.self_test:self_test")
    installed, trials = extras(), test() if self_test else []
    problems = [f"{one.what}: {one.words}" for one in trials if one.state == "failed"]
    if installed is None:
        where = Path(__file__).parents[2]
        problems.append(f"tsr-gym is imported from {where} but not installed: pip install -e {where}")
    elif installed[0].lacking:
        problems.append(f"the core lacks {', '.join(installed[0].lacking)}: {installed[0].install}")
    return {
        "tsr_gym": __version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "threads": {"processors": _processors(), **{name: os.environ.get(name) for name in THREADS}},
        "cache": _cache(),
        "extras": [{**asdict(one), "complete": one.complete} for one in installed or ()],
        "self_test": [asdict(one) for one in trials],
        "problems": problems,
    }


def _processors() -> int:
    # Where a process may be bound to some of them, only those count.
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _cache() -> dict[str, Any]:
    folder = cache_home()
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {"folder": str(folder), "files": len(files), "bytes": sum(path.stat().st_size for path in files)}


def _show(found: dict[str, Any]) -> None:
    console = Console()
    wide = Console(width=None if console.is_terminal else 180)
    threads = found["threads"]
    limits = [f"{name}={threads[name]}" for name in THREADS if threads[name] is not None]
    wide.print(f"tsr-gym {found['tsr_gym']}, Python {found['python']} ({found['executable']}), {found['platform']}")
    wide.print(f"threads: {threads['processors']} processors{''.join(f', {limit}' for limit in limits)}")
    cache = found["cache"]
    wide.print(f"cache: {cache['folder']}, {cache['files']} files, {decimal(cache['bytes'])}")
    if found["extras"]:
        wide.print(_extras_table(found["extras"]))
    if found["self_test"]:
        tests = Table(title="self-test")
        for name in ("what", "", "found"):
            tests.add_column(name)
        for one in found["self_test"]:
            tests.add_row(one["what"], MARKS.get(one["state"], one["state"]), one["words"].replace("[", r"\["))
        wide.print(tests)
    for problem in found["problems"]:
        wide.print(f"problem: {problem}", markup=False, soft_wrap=True)


def _extras_table(extras: list[dict[str, Any]]) -> Table:
    table = Table(title="installed")
    for name in ("extra", "brings", "versions", "to complete it"):
        table.add_column(name)
    for one in extras:
        versions = ", ".join(f"{name} {number}" for name, number in one["versions"].items())
        missing = "" if one["complete"] else f"lacks {', '.join(one['lacking'])}: {one['install']}"
        # Square brackets would be read as styles.
        table.add_row(one["name"] or "core", one["brings"], versions, missing.replace("[", r"\["))
    return table
