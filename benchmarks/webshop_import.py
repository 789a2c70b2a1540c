"""Time, memory and disk of importing a catalogue of the full WebShop's size, with its search index and goals.

The full catalogue is not at hand, so a generated one of as many products takes its place.
Run: python -m benchmarks.webshop_import [--products 1180000] [--keep DIR]
"""

import argparse
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from benchmarks.measure import write_result

# Run by a process of its own, whose peak memory is its own.
CHILD = """
import resource, sys, time
from tsr_gym.agents.cli import main
start = time.process_time()
status = main(sys.argv[1:])
print(time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
sys.exit(status)
"""
GOALS = """
import sys
import gymnasium as gym, tsr_gym
print(len(gym.make("tsr/WebShop-v0", catalogue=sys.argv[1]).unwrapped.goals))
"""


def run(*args: str) -> dict[str, float]:
    """Run a command line of tsr and return what it took."""
    start = perf_counter()
    done = subprocess.run([sys.executable, "-c", CHILD, *args], check=True, stdout=subprocess.PIPE, text=True)
    cpu, peak = done.stdout.split()[-2:]
    return {"seconds": perf_counter() - start, "cpu_seconds": float(cpu), "peak_mb": float(peak)}


def megabytes(folder: Path) -> float:
    """Return what a folder takes on disk."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def main() -> None:
    """Generate, import, make the goals, and write one JSON file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--products", type=int, default=1_180_000)
    parser.add_argument("--keep", type=Path, help="folder that keeps the imported catalogue")
    args = parser.parse_args()
    with TemporaryDirectory() as folder:
        files, out = Path(folder) / "files", args.keep or Path(folder) / "store"
        numbers: dict[str, Any] = {"products": args.products}
        numbers["generate"] = run("webshop", "generate", "--products", str(args.products), "--files", str(files))
        numbers["files_mb"] = megabytes(files)
        numbers["import"] = run("webshop", "import", str(files), "--out", str(out))
        numbers["store_mb"] = megabytes(out)
        start = perf_counter()
        goals = subprocess.run([sys.executable, "-c", GOALS, str(out)], check=True, stdout=subprocess.PIPE, text=True)
        numbers["goals"] = {"number": int(goals.stdout), "seconds_of_first_use": perf_counter() - start}
        numbers["store_with_goals_mb"] = megabytes(out)
    write_result("webshop_import", numbers)


if __name__ == "__main__":
    main()
