"""A whole training update, before and now: the beam setting of the first demonstration, both versions in one run.

The version before, 8d5a8cb, is taken from this repository's history into a separate folder. Its base model and its
command line are given to both, in processes that take turns, on one core and on both. An update is searching with the
model, stepping environments, keeping trees, and learning; what is there in the other versions and not part of it
(start, evaluation, checkpoints) is not counted. Both sample the same tokens, but for rounding in the seventh digit.
Run: python -m benchmarks.update_speed, on a machine that does nothing else; in an environment with ray, with its rows.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.measure import run_timed, write_result

BEFORE = "8d5a8cb"
HERE = Path(__file__).resolve().parents[1]
BUILD = (
    "from pathlib import Path; from tsr_gym.agents.teaching.base_model import BaseRecipe, build_base_model; "
    "build_base_model('sokoban', Path('base'), BaseRecipe(env_set=('solution_length=[3,10]',), band=(0.02, 0.1)))"
)
SETTING = (
    "train sokoban --model base --env-set solution_length=[3,10] --groups 16 --trajectories 8 --keep 0.5 --filter "
    "mixed_success --lr 5e-4 --critic-lr 1e-3 --entropy 0.003 --save-trees 0 --eval-instances 16 "
    "--eval-every 1000 --checkpoint-every 1000 --score SokobanScore(potential='estimate')"
)
BEAM_BEFORE, BEAM = "--search beam --width 2 --branching 4", "--search beam(width=2,branching=4)"
TWO = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
# The first updates build what the others use.
WARM = 2
# How far the tokens of an update may lie apart for it to be the same work.
SAME = 0.02


@dataclass(frozen=True)
class Way:
    """A version and how it is begun.

    Attributes:
        root: Where its package lies.
        flags: Added to the setting's.
        launcher: Arguments of Python before the module's.
        same: Whether it samples what the version before samples.
    """

    root: Path
    flags: str
    launcher: Sequence[str] = ()
    same: bool = True


def ways(before: Path) -> dict[str, Way]:
    """Return the compared versions by name."""
    by_name = {
        "before": Way(before, BEAM_BEFORE),
        "now": Way(HERE, BEAM),
        "before, torchrun with 2": Way(before, BEAM_BEFORE, TWO, same=False),
        "now, torchrun with 2": Way(HERE, BEAM, TWO, same=False),
    }
    if find_spec("ray") is not None:
        by_name["now, 2 workers of Ray"] = Way(HERE, f"{BEAM} --ray local --ray-workers 2")
        by_name["now, 2 workers of Ray, overlapped"] = Way(
            HERE, f"{BEAM} --ray local --ray-workers 2 --overlap", same=False
        )
    return by_name


def take(way: Way, folder: Path, name: str, updates: int) -> list[dict[str, Any]]:
    """Train, and return the lines of its updates but for the first ones."""
    command = [sys.executable, *way.launcher, "-m", "tsr_gym", *SETTING.split(), *way.flags.split()]
    command += ["--updates", str(updates), "--out", name]
    environment = os.environ | {"PYTHONPATH": str(way.root), "OMP_NUM_THREADS": "1"}
    subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
    lines = (folder / name / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines][WARM:]


def row_of(updates: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the seconds of updates, medians over all of them."""
    parts = updates[0]["seconds"]
    return {
        "updates": len(updates),
        "seconds": {part: round(median(update["seconds"][part] for update in updates), 4) for part in parts},
        "sampled_tokens": median(update["sampled_tokens"] for update in updates),
    }


def compare(rounds: int, updates: int) -> dict[str, Any]:
    """Return the rows of all ways, after checking that those which should do the same work did.

    Raises:
        SystemExit: Some did not.
    """
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        before = folder / "before"
        before.mkdir()
        archive = subprocess.run(["git", "archive", BEFORE], cwd=HERE, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", before], input=archive, check=True)
        environment = os.environ | {"PYTHONPATH": str(before), "OMP_NUM_THREADS": "1"}
        subprocess.run([sys.executable, "-c", BUILD], cwd=folder, env=environment, check=True)
        lines: dict[str, list[dict[str, Any]]] = {name: [] for name in ways(before)}
        for turn in range(rounds):
            for number, (name, way) in enumerate(ways(before).items()):
                lines[name] += take(way, folder, f"run-{number}-{turn}", updates)
        rows = {name: row_of(timings) for name, timings in lines.items()}
        alike = [name for name, way in ways(before).items() if way.same]
    tokens = [rows[name]["sampled_tokens"] for name in alike]
    if max(tokens) > (1 + SAME) * min(tokens):
        raise SystemExit(
            f"the versions did not do the same work: {dict(zip(alike, tokens, strict=True))} tokens an update"
        )
    first = rows["before"]["seconds"]["all"]
    return {name: row | {"updates_to_before": round(first / row["seconds"]["all"], 3)} for name, row in rows.items()}


def main() -> None:
    """Measure, and write results/update_speed.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each")
    parser.add_argument("--updates", type=int, default=14, help="updates of a turn")
    args = parser.parse_args()
    numbers = {
        "measured": "wall-clock of updates, medians over all rounds; ratios within this run",
        "before_version": BEFORE,
        "setting": SETTING,
        "rounds": args.rounds,
        "ways": compare(args.rounds, args.updates),
    }
    write_result("update_speed", numbers)


if __name__ == "__main__":
    run_timed(main)
