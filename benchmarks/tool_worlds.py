"""Worlds with tools: what going back to an earlier state costs, and a command, against the usual ways.

Each part writes a world's rows into one file, and leaves those of the others. In a part both sides hold the same files
and do the same work, one after the other in one process; processor time, the least of several rounds.

Shell: 200 files in ten folders. A snapshot with its restore against `copy.deepcopy` of just-bash's own object and a
copy of a folder on disk; a command from value to value, against just-bash's `run`. Their outputs are compared first.

Needs the extra shell. Run: python -m benchmarks.tool_worlds [NAME ...] [--quick]
"""

import argparse
import copy
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import gymnasium as gym

import tsr_gym
from benchmarks.measure import RESULTS, best_seconds, insist, installed, run_timed, write_result
from tsr_gym_envs.shell.files import HOME, beginning
from tsr_gym_envs.shell.session import Session, ShellLimits, run
from tsr_gym_envs.shell.tasks import verdict

NAME = "tool_worlds"
FILES, FOLDERS = 200, 10
COMMANDS = (
    "ls d3", "cat d3/f13.txt", "grep -c ERROR d3/f13.txt > count.txt", "sed -i 's/ERROR/WARN/' d4/*.txt", "cp -r d5 e5",
    "for f in d6/*.txt; do mv $f ${f%.txt}.bak; done", "awk '{ s += $2 } END { print s }' d7/*.txt", "find . | wc -l",
)  # fmt: skip


def contents() -> dict[str, str]:
    """Return the texts of the files by path."""
    paths = {number: f"{HOME}/d{number % FOLDERS}/f{number}.txt" for number in range(FILES)}
    return {path: f"line {number}\nERROR {number}\nINFO {number}\n" * 5 for number, path in paths.items()}


def measure_shell(rounds: int) -> dict[str, Any]:
    """Return microseconds of going back and of commands, by side."""
    from just_bash import Bash

    env = gym.make("tsr/Shell-v0", max_turns=None)
    env.reset(seed=0)
    base: Any = env.unwrapped
    session = Session(beginning(contents(), {}))
    base._episode = base._episode._replace(state=base.state._replace(session=session))
    theirs = Bash(files=dict(contents()))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "home"
        for path, text in contents().items():
            file = folder / path.removeprefix(f"{HOME}/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")

        def copied_folder() -> None:
            shutil.rmtree(Path(name) / "copy", ignore_errors=True)
            shutil.copytree(folder, Path(name) / "copy")

        def pair() -> None:
            for _ in range(100):
                tsr_gym.restore(env, tsr_gym.snapshot(env))

        def inspected() -> None:
            # As after a turn that is deeper than all others before: the state is looked at first.
            for _ in range(100):
                base._is_new = True
                tsr_gym.restore(env, tsr_gym.snapshot(env))

        back = {
            "snapshot_and_restore": best_seconds(pair, repeats=rounds) / 100,
            "with_inspection": best_seconds(inspected, repeats=rounds) / 100,
            "deepcopy_of_just_bash": best_seconds(lambda: copy.deepcopy(theirs), repeats=rounds),
            "copy_of_a_folder": best_seconds(copied_folder, repeats=rounds),
        }
    task, rows = base.state.task, {}
    for command in COMMANDS:
        ours, other = run(session, command, ShellLimits()), copy.deepcopy(theirs).run(command)
        insist((ours.printed, ours.status) == (other.stdout, other.exit_code), command)
        files = ours.session.files
        bashes = [copy.deepcopy(theirs) for _ in range(rounds + 1)]
        rows[command] = {
            "ours_us": _us(best_seconds(lambda line=command: run(session, line, ShellLimits()), repeats=rounds)),
            # Every run changes the object, so each has a new one, whose copy is not timed.
            "just_bash_us": _us(best_seconds(lambda line=command, left=bashes: left.pop().run(line), repeats=rounds)),
            "verdict_us": _us(best_seconds(lambda after=files: verdict.__wrapped__(task, after), repeats=rounds)),
        }
    return {
        "files": FILES,
        "back_us": {side: _us(seconds) for side, seconds in back.items()},
        "snapshot_bytes": len(tsr_gym.snapshot(env).to_bytes()),
        "commands": rows,
        "versions": installed(["just-bash"]),
    }


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 1)


PARTS = {"shell": measure_shell}


def main() -> None:
    """Measure the named worlds, by default all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*PARTS, []], help="worlds; by default all")
    parser.add_argument("--quick", action="store_true", help="few rounds, nothing is recorded")
    args = parser.parse_args()
    path = RESULTS / f"{NAME}.json"
    before = json.loads(path.read_text(encoding="utf-8"))["worlds"] if path.exists() else {}
    worlds = {name: PARTS[name](3 if args.quick else 15) for name in args.names or PARTS}
    write_result(NAME, {"worlds": {**before, **worlds}})


if __name__ == "__main__":
    run_timed(main)
