"""The harness of all measurements: timing, alternating rounds, result files and the tables that are made from them.

A result file is JSON with the machine, the versions, the commit, the arguments and the date it belongs to. Each run and
each row of a table stands on one line of it. A script that measures time runs its main function by `run_timed`: on a
quiet machine, one thread for each library, with wall-clock and processor time. With ``--quick`` nothing is recorded.
"""

import gc
import json
import os
import platform
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from subprocess import CalledProcessError, run
from time import perf_counter, process_time
from typing import Any, NamedTuple

from tsr_gym.records import to_json

PACKAGES = ("gymnasium", "numpy", "numba", "torch", "transformers")
RESULTS = Path(__file__).parent / "results"
SHARED = Path(__file__).resolve().parents[2] / "shared"
# Objects and lists that fit into so many characters stay on one line of a result file.
WIDE = 110


# The load of a machine, its mean over a minute, above which the times of a script mean little.
MOST_LOAD = 1.5
ANYWAY, TRIALS = "--anyway", frozenset({"--quick", "--smoke", "--tiny"})
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Start(NamedTuple):
    """The arguments of a script, and the load of the machine and both clocks at its start."""

    arguments: list[str]
    load: float
    wall: float
    processor: float


_START: ContextVar[Start | None] = ContextVar("start", default=None)


def run_timed(main: Callable[[], object]) -> None:
    """Run the main function of a script that measures time, which then ends.

    Libraries use one thread each, unless the environment sets another number.

    Raises:
        SystemExit: The machine is busy, and the script has neither the flag ``--anyway`` nor that of a trial.
    """
    if unset := [name for name in ONE_THREAD if name not in os.environ]:
        # Libraries read these variables when they are imported, which has happened.
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | dict.fromkeys(unset, "1"))
    arguments, load = sys.argv[1:], os.getloadavg()[0]
    if load > MOST_LOAD and not {ANYWAY, *TRIALS}.intersection(arguments):
        raise SystemExit(
            f"wanted a machine with a load of at most {MOST_LOAD} for a result of record, got {load:.2f}: wait, "
            f"or add {ANYWAY}, and the result shows the load"
        )
    sys.argv[1:] = [argument for argument in arguments if argument != ANYWAY]
    _START.set(Start(arguments, load, perf_counter(), processor_seconds()))
    main()


def processor_seconds() -> float:
    """Return the processor time of this process and of its children that have ended."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


class MissingPeer(Exception):
    """A peer's package is not installed."""


class Work(NamedTuple):
    """One side of a comparison.

    Attributes:
        run: Does the work once.
        units: Number of steps, nodes or queries that one run does.
        how: The form in which the side runs, and what differs from ours.
    """

    run: Callable[[], object]
    units: int
    how: str


def require_peer(package: str) -> None:
    """Raise MissingPeer where a package is not installed."""
    if find_spec(package) is None:
        raise MissingPeer(f"{package} is not installed")


def insist(is_so: bool, what: str) -> None:
    """Exit where the two sides of a comparison do not do the same work."""
    if not is_so:
        raise SystemExit(f"not comparable: {what}")


def installed(packages: Iterable[str]) -> dict[str, str]:
    """Return the version of each package, "not installed" for one without metadata."""
    versions = {}
    for name in packages:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return versions


def shared_rows(path: str) -> list[dict[str, Any]]:
    """Return the rows of a file of JSON lines below ../shared."""
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


def alternate(works: Mapping[str, Work], rounds: int) -> dict[str, dict[str, Any]]:
    """Return units per second of processor time by side: the median, least and largest of some rounds.

    ``wall`` is the median per second of wall-clock time, which is less where other processes took the processor.

    The sides run in turns, so that other load on the machine falls on all of them. Each side runs once before the first
    timed round. The garbage collector then ignores the objects that exist, so that no side pays for another's.
    """
    for work in works.values():
        work.run()
    gc.collect()
    gc.freeze()
    rates: dict[str, list[float]] = {name: [] for name in works}
    walls: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            wall, started = perf_counter(), process_time()
            work.run()
            rates[name].append(work.units / (process_time() - started))
            walls[name].append(work.units / (perf_counter() - wall))
    gc.unfreeze()
    return {
        name: {"median": median(rate), "min": min(rate), "max": max(rate), "wall": median(walls[name])}
        | {"units": works[name].units, "how": works[name].how}
        for name, rate in rates.items()
    }


def machine() -> dict[str, Any]:
    """Return this machine: its processor and cores, the threads of this process, and how much it runs at present."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    torch = sys.modules.get("torch")
    return {
        "processor": facts.get("model name", platform.processor()),
        "avx512": "avx512f" in facts.get("flags", "").split(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads() if torch else os.environ.get("OMP_NUM_THREADS", "not limited"),
        "load": [round(load, 2) for load in os.getloadavg()],
    }


def stamped(numbers: dict[str, Any]) -> dict[str, Any]:
    """Return numbers with the date, machine, commit, versions and arguments they belong to."""
    start = _START.get()
    clocks = (
        {}
        if start is None
        else {
            "load_before": round(start.load, 2),
            "wall_seconds": round(perf_counter() - start.wall, 1),
            "processor_seconds": round(processor_seconds() - start.processor, 1),
        }
    )
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "commit": _commit(),
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in PACKAGES if find_spec(name)},
        "arguments": sys.argv[1:] if start is None else start.arguments,
        **clocks,
    } | numbers


def write_result(name: str, numbers: dict[str, Any], *, out: Path | None = None) -> None:
    """Print numbers with their stamp, and write them: to the record, but not from a trial such as ``--quick``.

    Args:
        name: File name in `RESULTS`, without ``.json``.
        numbers: The measurement.
        out: File to write in its place, for a trial.
    """
    text = laid_out(stamped(numbers))
    if out is not None or not TRIALS.intersection(sys.argv[1:]):
        (out or RESULTS / f"{name}.json").write_text(text, encoding="utf-8")
    print(text)


def laid_out(value: Any) -> str:
    """Return JSON in which every item of a list stands on one line, and so does every object that is short."""
    return f"{_laid_out(value, '')}\n"


def _laid_out(value: Any, indent: str) -> str:
    flat = to_json(value)
    inner = f"{indent}  "
    if isinstance(value, Mapping) and len(flat) > WIDE:
        lines = [f"{inner}{json.dumps(str(key))}: {_laid_out(part, inner)}" for key, part in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if isinstance(value, list | tuple) and len(flat) > WIDE and isinstance(value[0], Mapping | list | tuple):
        return "[\n" + ",\n".join(f"{inner}{to_json(part)}" for part in value) + f"\n{indent}]"
    return flat


def run_parts(parts: Mapping[str, Callable[[], object]], names: Sequence[str]) -> None:
    """Run the named measurements of a script, or all of them where no name is given; exit on an unknown name."""
    if unknown := sorted(set(names) - set(parts)):
        raise SystemExit(f"wanted measurements among {sorted(parts)}, got {unknown}")
    for name in names or parts:
        parts[name]()


def write_between_marks(page: str, tables: Mapping[str, str]) -> str:
    """Return a page with its tables replaced, each between ``<!-- table: NAME -->`` and ``<!-- end -->``."""

    def table(match: "re.Match[str]") -> str:
        return match[0] if match[1] not in tables else f"<!-- table: {match[1]} -->\n{tables[match[1]]}\n<!-- end -->"

    return re.sub(r"<!-- table: (\w+) -->\n.*?<!-- end -->", table, page, flags=re.DOTALL)


def table_of(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table, or "Not run yet." where there are no rows."""
    if not rows:
        return "Not run yet."
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def difference_words(row: Mapping[str, Any]) -> str:
    """Return a difference in points, with its 95 % interval where it has one."""
    if row["low"] is None:
        return f"{row['points']:+.1f}"
    return f"{row['points']:+.1f} [{row['low']:+.1f}, {row['high']:+.1f}]"


def _commit() -> str | None:
    """Return the commit of the checkout, marked where files were changed; None outside of a checkout."""
    command = ["git", "-C", str(RESULTS.parent), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        return run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, CalledProcessError):
        return None
