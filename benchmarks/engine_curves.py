"""The same short training run by each engine: the same numbers where sampling repeats, else curves within seed noise.

Sokoban, plain play, an embedded model whose heads are wide enough for vLLM. In workers of Ray the same engine samples
the same tokens with any number of them; vLLM draws in its own way, so its runs are compared with those of other seeds.
Run: python -m benchmarks.engine_curves, in the environment of `make test-vllm`.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.measure import write_result
from benchmarks.pay.report import interval

RECIPE = "base-model sokoban --hidden 128"
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
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "VLLM_CPU_CI_ENV": "1", "RAY_AUTH_MODE": "disabled"}


def call(flags: str) -> None:
    """Run ``tsr``."""
    command = [sys.executable, "-m", "tsr_gym", *flags.split()]
    subprocess.run(command, env=os.environ | ENVIRONMENT, check=True, stdout=subprocess.DEVNULL)


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the records of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def run(out: Path, base: Path, way: str, seed: int) -> dict[str, Any]:
    """Return the results of a run; do the run first where they are missing."""
    flags = f"train sokoban {SETTING} {WAYS[way][0]} --seed {seed}"
    folder = out / f"{''.join(letter if letter.isalnum() else '-' for letter in way)}-{seed}"
    if not folder.exists():
        call(f"{flags} --model {base} --out {folder}")
    return {
        "way": way,
        "seed": seed,
        "command": f"tsr {flags} --model BASE",
        "success": [round(100 * line["success"], 2) for line in lines(folder / "evaluations.jsonl")],
        "sampled_tokens": [line["sampled_tokens"] for line in lines(folder / "metrics.jsonl")],
    }


def main() -> None:
    """Train, and write results/engine_curves.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/engine_curves"), help="where runs go; kept if there")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    base = args.out / "base"
    if not base.exists():
        call(f"{RECIPE} --out {base}")
    runs = [run(args.out, base, way, seed) for way, (_, seeds) in WAYS.items() for seed in range(seeds)]
    by_way = {way: [row for row in runs if row["way"] == way] for way in WAYS}
    first = by_way["transformers"][0]
    pairs = zip(by_way["vllm"], by_way["transformers"], strict=True)
    numbers = {
        "base": f"tsr {RECIPE}",
        "same_as_transformers": {
            way: all(runs_of_way[0][name] == first[name] for name in ("success", "sampled_tokens"))
            for way, runs_of_way in by_way.items()
            if "Ray" in way
        },
        "vllm_minus_transformers": interval([row["success"][-1] - own["success"][-1] for row, own in pairs]),
        "runs": runs,
    }
    write_result("engine_curves", numbers)


if __name__ == "__main__":
    main()
