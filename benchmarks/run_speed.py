"""Whole training runs, this version and an earlier one: processor and wall time of updates, evaluations and all.

The version before, 1dc40ac, is checked out from this repository's history into a separate folder. The same base model
and the same flags are given to both, in processes that take turns, on one thread. Sides of a run sample the same tokens
for as many updates as the result states; later ones can differ, because gradients are summed in another order. A first
short run of each side, which is not counted, compiles and draws what later ones read.
Run: python -m benchmarks.run_speed, on a machine that does nothing else: 40 minutes; with --quick 8.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.measure import insist, run_parts, run_timed, write_result
from benchmarks.pay.plan import (
    FILTERING,
    IN_QA,
    IN_SHOP,
    LEVIN,
    QA_SCORE,
    SHOP_SCORE,
    TSR_PLUS,
    Cell,
    Method,
    Setting,
    sokoban,
    words,
)
from tsr_gym import agents
from tsr_gym.agents.models.settings import SHIPPED
from tsr_gym.agents.teaching.base_model import default_model

BEFORE = "1dc40ac"
HERE = Path(__file__).resolve().parents[1]
# Runs the command line, and appends the clocks at each line of a log to a file of JSON lines.
DRIVER = """
import json, runpy, sys, time
begun = time.time()
from tsr_gym.agents.runs.log import JsonLines
clocks, module, *sys.argv[1:] = sys.argv[1:]
append = JsonLines.append
def appended(self, record):
    append(self, record)
    with open(clocks, "a") as file:
        tokens = record.get("sampled_tokens") if self.path.stem == "metrics" else None
        line = {"log": self.path.stem, "processor": time.process_time(), "wall": time.time() - begun, "tokens": tokens}
        file.write(json.dumps(line) + chr(10))
JsonLines.append = appended
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


class Side(NamedTuple):
    """A version: where its package lies, None for the installed one, and the module of its command line."""

    root: Path | None
    module: str


class Run(NamedTuple):
    """A run: its setting, how it is trained, and the folder of its base model; None for the embedded one."""

    setting: Setting
    method: Method
    base: Path | None


ROOMS = sokoban(10, 16, 90_000)
RUNS = {
    "tsr+": Run(ROOMS, TSR_PLUS, SHIPPED / "S1"),
    "levin": Run(ROOMS, LEVIN, SHIPPED / "S1"),
    "filtering": Run(ROOMS, FILTERING, SHIPPED / "S1"),
    # Without guides, which have been corrected since the version before.
    "shop": Run(words("webshop", SHOP_SCORE, IN_SHOP), FILTERING, None),
    "questions": Run(words("retrieval_qa", QA_SCORE, IN_QA), FILTERING, None),
}


def main() -> None:
    """Measure, and write results/run_speed.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each side")
    parser.add_argument("--quick", action="store_true", help="a tenth of the tokens, 64 held-out instances, one round")
    parser.add_argument("--out", type=Path, help="file to write in place of the result, for a trial")
    parser.add_argument("names", nargs="*", help=f"among {', '.join(RUNS)}; all by default")
    args = parser.parse_args()
    insist(Path(agents.__file__).is_relative_to(HERE), f"{agents.__file__} is installed, wanted this checkout's")
    rounds = 1 if args.quick else args.rounds
    rows: dict[str, Any] = {}
    with _versions() as sides, TemporaryDirectory() as folder:

        def measured(name: str) -> None:
            rows[name] = compare(Path(folder), name, RUNS[name], sides, rounds=rounds, quick=args.quick)

        run_parts({name: lambda name=name: measured(name) for name in RUNS}, args.names)  # type: ignore[misc]
    numbers = {"measured": "seconds, medians of rounds", "before_version": BEFORE, "rounds": rounds, "runs": rows}
    write_result("run_speed", numbers, out=args.out)


def compare(
    folder: Path, name: str, run: Run, sides: Mapping[str, Side], *, rounds: int, quick: bool
) -> dict[str, Any]:
    """Return the medians of a run by side, and how many times as fast the version of this checkout is."""
    base = run.base or default_model(run.setting.world)
    setting = replace(run.setting, tokens=run.setting.tokens // 10, eval_instances=64) if quick else run.setting
    flags = Cell(setting, "", run.method, 0).flags()
    command = ["train", setting.world, *flags.split(), "--model", str(base)]
    turns: dict[str, list[list[dict[str, Any]]]] = {side: [] for side in sides}
    for turn in range(-1, rounds):
        for side, version in sides.items():
            # The last one of a flag counts.
            last = ["--updates", "1"] if turn < 0 else []
            clocks = take(version, folder / f"{name}-{side}-{turn}", [*command, *last])
            turns[side] += [clocks] if turn >= 0 else []
    tokens = {side: [line["tokens"] for line in lines[0] if line["log"] == "metrics"] for side, lines in turns.items()}
    equal = equal_updates(*tokens.values())
    insist(equal > 0, f"{name}: the first update has {[numbers[0] for numbers in tokens.values()]} tokens")
    seconds = {side: seconds_of(lines) for side, lines in turns.items()}
    ratios = {
        part: round(seconds["before"]["processor"][part] / seconds["now"]["processor"][part], 2)
        for part in seconds["now"]["processor"]
    }
    return {
        # The model by its name, not by where it lies here.
        "command": shlex.join(["tsr", *command[:-1], run.base.name if run.base else f"base-{setting.world}"]),
        "updates": [len(numbers) for numbers in tokens.values()],
        "updates_of_equal_tokens": equal,
        "seconds": seconds,
        "times_as_fast": ratios,
    }


def take(side: Side, out: Path, command: list[str]) -> list[dict[str, Any]]:
    """Train in a process, and return the clocks at each line of its logs, and at its end."""
    clocks = out.with_suffix(".jsonl")
    arguments = [sys.executable, "-c", DRIVER, str(clocks), side.module, *command, "--out", str(out)]
    pinned = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    environment = os.environ | pinned | ({"PYTHONPATH": str(side.root)} if side.root else {})
    before = os.times()
    done = subprocess.run(arguments, cwd=out.parent, env=environment, capture_output=True, text=True)
    after = os.times()
    insist(done.returncode == 0, f"{side.module} failed: {done.stderr[-2000:]}")
    spent = [sum((times.children_user, times.children_system)) for times in (before, after)]
    end = {"log": "end", "processor": spent[1] - spent[0], "wall": after.elapsed - before.elapsed}
    return [*map(json.loads, clocks.read_text().splitlines()), end]


def seconds_of(turns: list[list[dict[str, Any]]]) -> dict[str, dict[str, float]]:
    """Return processor and wall seconds by part, the medians of some turns.

    The part before the first update is imports, the building of the run and its first evaluation.
    """
    parts: dict[str, list[dict[str, float]]] = {"processor": [], "wall": []}
    for lines in turns:
        for clock, rows in parts.items():
            row = {"before the first update": lines[0][clock], "updates": 0.0, "later evaluations": 0.0}
            for earlier, line in pairwise(lines):
                part = {"metrics": "updates", "evaluations": "later evaluations"}.get(line["log"])
                if part is not None:
                    row[part] += line[clock] - earlier[clock]
            rows.append(row | {"all": lines[-1][clock]})
    return {
        clock: {part: round(median(row[part] for row in rows), 3) for part in rows[0]} for clock, rows in parts.items()
    }


def equal_updates(before: list[int], now: list[int]) -> int:
    """Return after how many updates two runs first sampled different numbers of tokens, or all updates."""
    pairs = list(zip(before, now, strict=False))
    return next((place for place, (old, new) in enumerate(pairs) if old != new), len(pairs))


@contextmanager
def _versions() -> Iterator[dict[str, Side]]:
    """Yield both versions, the one before in a separate folder of this repository's history."""
    with TemporaryDirectory() as name:
        before = Path(name) / "before"
        subprocess.run(["git", "worktree", "add", "--detach", "--quiet", before, BEFORE], cwd=HERE, check=True)
        try:
            yield {"before": Side(before, "tsr_gym.cli"), "now": Side(None, "tsr_gym")}
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", before], cwd=HERE, check=True)


if __name__ == "__main__":
    run_timed(main)
