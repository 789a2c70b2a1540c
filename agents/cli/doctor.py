"""`tsr doctor`: what is installed, what works, and what each missing extra adds."""

import os
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

import gymnasium as gym
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from tsr_gym.agents.cli.arguments import read_arguments
from tsr_gym.agents.cli.output import progress_bar, with_json, write_json
from tsr_gym.errors import MissingExtra
from tsr_gym.files import cache_home
from tsr_gym.optional import require
from tsr_gym.orphans import end_with_parent
from tsr_gym.registration import ENTRY_POINTS
from tsr_gym.snapshots import Snapshot
from tsr_gym.stack import restore, snapshot
from tsr_gym.text_env import TextEnv
from tsr_gym.version import __version__

if TYPE_CHECKING:
    from packaging.requirements import Requirement

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
MARKS = {"works": "[green]works[/]", "missing": "[yellow]missing[/]", "failed": "[red]failed[/]"}


@dataclass(frozen=True, slots=True)
class DoctorArgs:
    """Report what is installed, what works, and what each missing extra would add. Status 1: something is broken."""

    self_test: bool = True
    """Make, restore and search every world whose extras are installed, for ten seconds at most."""
    json: Path | None = None
    """File for the report as JSON; without a file it is printed."""


def main(args: list[str]) -> int:
    """Print the report, and return 1 where an installed part does not work."""
    options = read_arguments(DoctorArgs, with_json(args), prog="tsr doctor")
    require("packaging", "cli")
    with progress_bar("examining packages" + (" and running the self-test" if options.self_test else "")):
        report = examine(options.self_test)
    if write_json(report, options.json):
        _show(report)
    return 1 if report["problems"] else 0


def examine(tests: bool) -> dict[str, Any]:
    """Return the report of `tsr doctor` in JSON's types.

    Args:
        tests: Whether to run the self-test.
    """
    installed, trials = extras(), self_test() if tests else []
    problems = [f"{trial.what}: {trial.words}" for trial in trials if trial.state == "failed"]
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
        "extras": [{**asdict(extra), "complete": extra.complete} for extra in installed or ()],
        "self_test": [asdict(trial) for trial in trials],
        "problems": problems,
    }


def _processors() -> int:
    # A container or taskset may bind the process to some processors; only these count.
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _cache() -> dict[str, Any]:
    folder = cache_home()
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {"folder": str(folder), "files": len(files), "bytes": sum(path.stat().st_size for path in files)}


def _show(report: dict[str, Any]) -> None:
    console = Console()
    wide = Console(width=None if console.is_terminal else 180)
    threads = report["threads"]
    limits = [f"{name}={threads[name]}" for name in THREADS if threads[name] is not None]
    wide.print(f"tsr-gym {report['tsr_gym']}, Python {report['python']} ({report['executable']}), {report['platform']}")
    wide.print(f"threads: {threads['processors']} processors{''.join(f', {limit}' for limit in limits)}")
    cache = report["cache"]
    wide.print(f"cache: {cache['folder']}, {cache['files']} files, {decimal(cache['bytes'])}")
    if report["extras"]:
        wide.print(_extras_table(report["extras"]))
    if report["self_test"]:
        tests = Table(title="self-test")
        for name in ("part", "", "result"):
            tests.add_column(name)
        for trial in report["self_test"]:
            tests.add_row(trial["what"], MARKS.get(trial["state"], trial["state"]), trial["words"].replace("[", r"\["))
        wide.print(tests)
    for problem in report["problems"]:
        wide.print(f"problem: {problem}", markup=False, soft_wrap=True)


def _extras_table(extras: list[dict[str, Any]]) -> Table:
    table = Table(title="installed")
    for name in ("extra", "brings", "versions", "to complete it"):
        table.add_column(name)
    for extra in extras:
        versions = ", ".join(f"{name} {number}" for name, number in extra["versions"].items())
        missing = "" if extra["complete"] else f"lacks {', '.join(extra['lacking'])}: {extra['install']}"
        # Square brackets would be read as styles.
        table.add_row(extra["name"] or "core", extra["brings"], versions, missing.replace("[", r"\["))
    return table


# What each extra is for, in the order in which they are shown.
BRINGS = {
    "cli": "the tsr command",
    "envs": "WebShop, question answering, compiled batches, the Sokoban solver and its generators",
    "agents": "language models: train, eval, base-model, pictures of reports",
    "openai": "models behind OpenAI-compatible servers: eval and calibrate",
    "lora": "training a few matrices instead of the whole model",
    "serve": "the shop as a web site, the retrieval server and its client",
    "render": "windows: render_mode='human'",
    "parquet": "questions from Parquet files",
    "dense": "retrieval by embeddings",
    "opensearch": "retrieval from an OpenSearch cluster",
    "pyserini": "Lucene itself for WebShop's search, which needs Java",
    "spacy": "the nouns of titles, as WebShop's original reward has them",
    "vllm": "sampling by vLLM: train, eval and calibrate",
    "e2b": "sandboxes of E2B",
    "ray": "searches in workers, on one machine or several",
    "shell": "tasks in a shell over files in memory",
    "textworld": "TextWorld's generated games",
    "jericho": "stories of the Z-machine, such as Zork",
    "textarena": "TextArena's games for one player",
    "verifiers": "trees as traces of verifiers, and its tasksets",
    "openenv": "worlds behind OpenEnv's server",
    "mcp": "worlds as servers of MCP: serve",
    "trl": "the bridge to TRL's trainers",
    "verl": "the bridge to verl's trainer",
    "bench": "what the speed scripts compare with",
    "dev": "tests, types and lint of the package itself",
}


@dataclass(frozen=True, slots=True)
class Extra:
    """An extra, its purpose, and whether it is installed.

    Attributes:
        name: As pip takes it; empty for the core.
        brings: Its purpose.
        versions: Installed versions by package.
        lacking: Packages that are missing or too old, in words.
        install: The command that completes it.
    """

    name: str
    brings: str
    versions: dict[str, str]
    lacking: tuple[str, ...]
    install: str

    @property
    def complete(self) -> bool:
        """Whether all its packages are installed."""
        return not self.lacking


def extras() -> list[Extra] | None:
    """Return the core and every extra; None where tsr-gym is imported without being installed."""
    from packaging.requirements import Requirement

    try:
        needed = [Requirement(line) for line in requires("tsr-gym") or ()]
    except PackageNotFoundError:
        return None
    core = [need for need in needed if need.marker is None]
    base = [_look("", "environments, snapshots, trees, strategies", core)]
    return base + [_look(name, brings, _needs_of(name, needed)) for name, brings in BRINGS.items()]


def _needs_of(extra: str, needed: Sequence["Requirement"]) -> list["Requirement"]:
    """Return the requirements of an extra and of the extras that it refers to, each distribution once."""
    own = [need for need in needed if need.marker is not None and need.marker.evaluate({"extra": extra})]
    needs = {need.name: need for need in own if need.name != "tsr-gym"}
    for other in sorted(name for need in own if need.name == "tsr-gym" for name in need.extras):
        needs.update({need.name: need for need in _needs_of(other, needed)})
    return list(needs.values())


def _look(name: str, brings: str, needed: Sequence["Requirement"]) -> Extra:
    versions, lacking = {}, []
    for need in needed:
        present = installed_version(need.name)
        if present is not None:
            versions[need.name] = present
        if present is None:
            lacking.append(need.name)
        elif not need.specifier.contains(present, prereleases=True):
            lacking.append(f"{need.name}{need.specifier} (found {present})")
    install = f"pip install 'tsr-gym[{name}]'" if name else "pip install --upgrade tsr-gym"
    return Extra(name, brings, versions, tuple(lacking), install)


def installed_version(distribution: str) -> str | None:
    """Return the version of an installed distribution without importing it; None where it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


SECONDS = 10.0
GPU = "gpu"
# These need only the core. They come first, because other worlds compile code at their first use.
QUICK = ("tsr/FrozenLake-v0", "tsr/Sokoban-v0")
# A test returns a line about its success, or raises.
Test = Callable[[], str]


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of a part of the self-test.

    Attributes:
        what: Id of an environment, or ``"gpu"``.
        state: ``works``, ``missing`` (an extra is not installed), ``failed``, or ``not done`` in the time.
        words: One line of detail.
    """

    what: str
    state: Literal["works", "missing", "failed", "not done"]
    words: str


def self_test(seconds: float = SECONDS, tests: dict[str, Test] | None = None) -> list[Trial]:
    """Return the result of every test, in their order.

    They run in another process, because a library that was built wrongly may end it, and because the time is limited.

    Args:
        seconds: Time limit; tests that have not run by then are ``not done``.
        tests: By name; None for all environments and the GPU.
    """
    planned = _tests() if tests is None else tests
    end = monotonic() + seconds
    context = get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_run, args=(theirs, planned), daemon=True)
    child.start()
    theirs.close()
    trials: list[Trial] = []
    try:
        while len(trials) < len(planned) and ours.poll(max(end - monotonic(), 0)):
            trials.append(ours.recv())
    except EOFError:
        child.join()
        trials.append(Trial([*planned][len(trials)], "failed", f"it ended the process (status {child.exitcode})"))
    finally:
        child.kill()
        child.join()
        ours.close()
    late = f"not done within {seconds:g} s: a first use compiles and builds; run it again"
    return trials + [Trial(what, "not done", late) for what in [*planned][len(trials) :]]


def _tests() -> dict[str, Test]:
    names = sorted(ENTRY_POINTS, key=lambda name: name not in QUICK)
    return {**{name: partial(try_world, name) for name in names}, GPU: find_gpu}


def _run(pipe: Connection, tests: dict[str, Test]) -> None:
    end_with_parent()
    for what, test in tests.items():
        pipe.send(_trial(what, test))


def _trial(what: str, test: Test) -> Trial:
    try:
        return Trial(what, "works", test())
    except MissingExtra as error:
        return Trial(what, "missing", str(error))
    # The self-test reports every kind of failure.
    except Exception as error:
        return Trial(what, "failed", f"{type(error).__name__}: {error}")


def try_world(env_id: str) -> str:
    """Make a world, restore it bit for bit, search it, and return a line about it.

    Raises:
        MissingExtra: A package that it needs is not installed.
        RuntimeError: The restored environment played differently.
    """
    env = gym.make(env_id)
    env.reset(seed=0)
    base = env.unwrapped
    assert isinstance(base, TextEnv)
    before, turn = snapshot(env), base.legal_actions(base.state)[0]
    first = env.step(turn)
    restore(env, Snapshot.from_bytes(before.to_bytes()))
    if env.step(turn) != first:
        raise RuntimeError(f"after a restore, {turn!r} gave another result")
    return f"made, restored and searched: a tree of {_searched(env)} nodes"


def _searched(env: gym.Env[Any, Any]) -> int:
    from tsr_gym.agents.policies.random_policy import legal_player
    from tsr_gym.agents.strategies import beam
    from tsr_gym.wrappers import AnswerFormat, TreeSearchWrapper

    base: Any = env.unwrapped
    tree_env = TreeSearchWrapper(env if base.reads_tags else AnswerFormat(env))
    tree_env.reset(seed=0)
    return len(tree_env.search(legal_player(base), partial(beam, width=2, branching=4, depth=2)).nodes)


def find_gpu() -> str:
    """Return the names of the GPUs that torch finds.

    Raises:
        MissingExtra: torch is not installed.
    """
    if find_spec("torch") is None:
        raise MissingExtra("torch", "agents")
    from torch import cuda

    names = [cuda.get_device_name(number) for number in range(cuda.device_count())] if cuda.is_available() else []
    return ", ".join(names) or "torch finds none; it computes on the processor"
