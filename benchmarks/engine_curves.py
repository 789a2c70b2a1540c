"""The same short training run by each engine: the same numbers where sampling repeats, else curves within seed noise.

Sokoban, plain play, an embedded model whose heads are wide enough for vLLM. In workers of Ray the same engine samples
the same tokens with any number of them; vLLM draws in its own way, so its runs are compared with those of other seeds.
Run: python -m benchmarks.engine_curves, in the environment of `make test-vllm`.
"""

import argparse
import os
from pathlib import Path
from typing import Any

from benchmarks.measure import write_result
from benchmarks.pay.report import interval
from benchmarks.tsr_runs import Row, build_bases, train
from tsr_gym.agents.runs.log import JsonLines

RECIPE = "sokoban --hidden 128"
SETTING = (
    "--groups 8 --trajectories 8 --minibatch 16 --filter mixed_success --algorithm grpo --lr 5e-4 --entropy 0.003 "
    "--updates 16 --eval-every 4 --eval-instances 128 --save-trees 0"
)
# Flags, and how many seeds.
WAYS = {
    "transformers": ("", 3),
    "vllm": ("--engine vllm", 3),
    "transformers, 1 worker of Ray": ("--ray local --ray-workers 1", 1),
    "transformers, 2 workers of Ray": ("--ray local --ray-workers 2", 1),
}
# For vLLM on a CPU and for a cluster of Ray on this machine alone; the processes of the runs inherit them.
ENVIRONMENT = {"VLLM_CPU_CI_ENV": "1", "RAY_AUTH_MODE": "disabled"}


def run_name(way: str, seed: int) -> str:
    """Return the folder name of a run."""
    return f"{''.join(letter if letter.isalnum() else '-' for letter in way)}-{seed}"


def flags_of(way: str, seed: int) -> str:
    """Return the settings of a run as its command, without folder and model."""
    return f"train sokoban {SETTING} {WAYS[way][0]} --seed {seed}"


def row(folder: Path, way: str, seed: int) -> Row:
    """Return the results of a run from its files."""
    evaluations, updates = (JsonLines(folder / name).read() for name in ("evaluations.jsonl", "metrics.jsonl"))
    return {
        "way": way,
        "seed": seed,
        "command": f"tsr {flags_of(way, seed)} --model BASE",
        "success": [round(100 * line["success"], 2) for line in evaluations],
        "sampled_tokens": [line["sampled_tokens"] for line in updates],
    }


def main() -> None:
    """Train, and write results/engine_curves.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/engine_curves"), help="where runs go; kept if there")
    args = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    build_bases(args.out, {"base": RECIPE}, workers=1)
    model = f"--model {args.out / 'bases' / 'base'}"
    planned = [(way, seed) for way, (_, seeds) in WAYS.items() for seed in range(seeds)]
    train(args.out, {run_name(*run): f"{flags_of(*run)} {model}" for run in planned}, workers=1)
    runs = [row(args.out / "cells" / run_name(*run), *run) for run in planned]
    by_way = {way: [run for run in runs if run["way"] == way] for way in WAYS}
    first = by_way["transformers"][0]
    pairs = zip(by_way["vllm"], by_way["transformers"], strict=True)
    numbers: dict[str, Any] = {
        "base": f"tsr base-model {RECIPE}",
        "same_as_transformers": {
            way: all(runs_of_way[0][name] == first[name] for name in ("success", "sampled_tokens"))
            for way, runs_of_way in by_way.items()
            if "Ray" in way
        },
        "vllm_minus_transformers": interval([run["success"][-1] - own["success"][-1] for run, own in pairs]),
        "runs": runs,
    }
    write_result("engine_curves", numbers)


if __name__ == "__main__":
    main()
