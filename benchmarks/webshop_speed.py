"""Speed and memory of WebShop: steps, start-up, snapshots, new queries and processes, small and at full scale.

The original's figures were measured on the original (Python 3.8, Java 17, Pyserini 0.17, two cores). It cannot be
installed next to this package, so they are quoted. The first rows need the real products (../shared).

With --products N, time, memory and disk of importing a generated catalogue of N products with its search index and
goals are measured in place of that; --keep DIR keeps it, and --store DIR then measures the rows at scale on it. The
full WebShop has 1,180,000 products, which are not at hand.

Run: python -m benchmarks.webshop_speed [--quick] [--store DIR] [--products N [--keep DIR]]
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any

import gymnasium as gym
import numpy as np

import tsr_gym
from benchmarks.measure import SHARED, best_seconds, run_timed, write_result
from tsr_gym_envs.webshop.catalogue.opening import open_catalogue
from tsr_gym_envs.webshop.shop import open_index

# Run in a separate process, so that its peak memory is that of the command.
TSR_CHILD = """
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


def run_tsr(*args: str) -> dict[str, float]:
    """Run a command line of tsr and return its seconds and peak memory."""
    start = perf_counter()
    done = subprocess.run([sys.executable, "-c", TSR_CHILD, *args], check=True, stdout=subprocess.PIPE, text=True)
    cpu, peak = done.stdout.split()[-2:]
    return {"seconds": perf_counter() - start, "cpu_seconds": float(cpu), "peak_mb": float(peak)}


def megabytes(folder: Path) -> float:
    """Return the size of a folder on disk."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def measure_import(products: int, keep: Path | None) -> None:
    """Generate, import, make the goals, and write one JSON file."""
    with TemporaryDirectory() as folder:
        files, out = Path(folder) / "files", keep or Path(folder) / "store"
        numbers: dict[str, Any] = {"products": products}
        numbers["generate"] = run_tsr("webshop", "generate", "--products", str(products), "--files", str(files))
        numbers["files_mb"] = megabytes(files)
        numbers["import"] = run_tsr("webshop", "import", str(files), "--out", str(out))
        numbers["store_mb"] = megabytes(out)
        start = perf_counter()
        goals = subprocess.run([sys.executable, "-c", GOALS, str(out)], check=True, stdout=subprocess.PIPE, text=True)
        numbers["goals"] = {"number": int(goals.stdout), "seconds_of_first_use": perf_counter() - start}
        numbers["store_with_goals_mb"] = megabytes(out)
    write_result("webshop_import", numbers)


REAL = SHARED / "data" / "webshop"
# Measured on the original, wall or thread time as its users see it.
ORIGINAL = {
    "steps_per_second": 65,
    "seconds_to_first_observation": 6.0,
    "memory_gb_full": "12-15",
    "snapshot": "deepcopy fails",
}
# Run in a separate process: what it costs to have a shop, beyond Python and its libraries.
CHILD = """
import sys, time, json
import gymnasium as gym, numpy, numba, rapidfuzz, tsr_gym
import tsr_gym_envs.webshop.env
def memory():
    rows = open('/proc/self/smaps_rollup').read().splitlines()
    kb = {line.split(':')[0]: int(line.split()[1]) for line in rows if line.endswith('kB')}
    return {'private_mb': (kb['Private_Clean'] + kb['Private_Dirty']) / 1024, 'dirty_mb': kb['Private_Dirty'] / 1024,
            'rss_mb': kb['Rss'] / 1024, 'pss_mb': kb['Pss'] / 1024}
imported = memory()
start = time.perf_counter()
env = gym.make('tsr/WebShop-v0', catalogue=sys.argv[1])
env.reset(seed=int(sys.argv[2]))
seconds = time.perf_counter() - start
for seed in range(20):
    env.reset(seed=seed + int(sys.argv[2]))
    env.step('search[' + env.unwrapped.goals[env.unwrapped.state.goal]['query'] + ']')
    env.step('click[next >]')
print(json.dumps({'seconds': seconds, 'imported': imported, 'used': memory()}), flush=True)
sys.stdin.readline()
print(json.dumps(memory()), flush=True)
sys.stdin.readline()
"""


def trips(env: gym.Env[Any, Any], count: int, *, fresh: bool) -> Iterator[list[str]]:
    """Yield scripted episodes: search, open a hit, look at it, choose its options, buy; fresh ones repeat no query."""
    shop: Any = env.unwrapped
    rng = np.random.default_rng(0)
    for number, goal in enumerate(rng.integers(len(shop.goals), size=count)):
        wanted = shop.goals[int(goal)]
        query = wanted["instruction_text"] if fresh else wanted["query"]
        yield [f"search[{query}{f' {number}' if fresh else ''}]"]


def play(env: gym.Env[Any, Any], searches: list[str]) -> int:
    """Play scripted episodes and return how many steps they took."""
    steps = 0
    for seed, search in enumerate(searches):
        env.reset(seed=seed)
        info = env.step(search)[-1]
        links = [name for name in info["available_actions"]["clickables"] if name.startswith("b0") and len(name) == 10]
        steps += 1
        if not links:
            continue
        info = env.step(f"click[{links[0]}]")[-1]
        names = info["available_actions"]["clickables"]
        options = names[names.index("buy now") + 1 :][:3]
        for name in ("description", "< prev", *options, "buy now"):
            env.step(f"click[{name}]")
            steps += 1
        steps += 1
    return steps


def steps_per_second(env: gym.Env[Any, Any], count: int, *, fresh: bool) -> float:
    """Return steps per second of processor time; where queries are fresh, each is asked once only."""
    rounds = []
    everything = [search for (search,) in trips(env, count * 4, fresh=fresh)]
    play(env, everything[:20])
    if not fresh:
        play(env, everything[:count])
    for turn in range(3):
        searches = everything[(turn + 1) * count : (turn + 2) * count] if fresh else everything[:count]
        start = process_time()
        steps = play(env, searches)
        rounds.append(steps / (process_time() - start))
    return median(rounds)


def snapshots(env: gym.Env[Any, Any]) -> dict[str, float]:
    """Return microseconds of a snapshot and a restore, of the bare environment and of the stack that make returns."""
    env.reset(seed=1)
    env.step("search[shoes]")
    bare: Any = env.unwrapped

    def work(count: int = 2000) -> None:
        for _ in range(count):
            bare.restore(bare.snapshot())

    def stack(count: int = 2000) -> None:
        for _ in range(count):
            tsr_gym.restore(env, tsr_gym.snapshot(env))

    return {"bare_us": best_seconds(work) / 2000 * 1e6, "stack_us": best_seconds(stack) / 2000 * 1e6}


def processes(catalogue: str) -> dict[str, Any]:
    """Return start-up seconds and the memory of two processes that use one catalogue at the same time."""
    command = [sys.executable, "-c", CHILD, catalogue]
    children, firsts = [], []
    for seed in ("100", "100"):
        child = subprocess.Popen([*command, seed], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        children.append(child)
        firsts.append(json.loads(child.stdout.readline()))
    ends = []
    for child in children:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write("\n")
        child.stdin.flush()
        ends.append(json.loads(child.stdout.readline()))
    for child in children:
        child.communicate("\n")
    second = ends[1]["private_mb"] - firsts[1]["imported"]["private_mb"]
    return {
        "seconds_to_first_observation": min(first["seconds"] for first in firsts),
        "seconds_of_each_process": [first["seconds"] for first in firsts],
        "private_mb_of_second_process": ends[1]["private_mb"],
        "private_mb_beyond_imports": second,
        "rss_mb": ends[1]["rss_mb"],
    }


def query_times(catalogue: str, count: int) -> dict[str, float]:
    """Return milliseconds of new queries, the texts of instructions, after the pages of the index were read once."""
    shop: Any = gym.make("tsr/WebShop-v0", catalogue=catalogue).unwrapped
    engine = open_index(open_catalogue(catalogue))
    numbers = np.random.default_rng(1).integers(len(shop.goals), size=2 * count)
    texts = [shop.goals[int(number)]["instruction_text"] for number in numbers]
    times = []
    for text in texts:
        start = perf_counter()
        engine.search(text, 50)
        times.append((perf_counter() - start) * 1e3)
    warm = sorted(times[count:])
    return {"median_ms": median(warm), "p99_ms": quantiles(warm, n=100)[98], "first_ms": times[0], "queries": count}


def at_scale(store: Path) -> dict[str, Any]:
    """Return the rows that need many products, of a store that webshop_speed --products made."""
    return {
        "products": open_catalogue(store).num_products,
        "processes": processes(str(store)),
        "query": query_times(str(store), 300),
    }


def main() -> None:
    """Measure everything and write one JSON file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", type=Path, help="a large catalogue, for the rows at scale")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--products", type=int, help="measure the import of a catalogue of so many products instead")
    parser.add_argument("--keep", type=Path, help="folder that keeps the imported catalogue")
    args = parser.parse_args()
    if args.products:
        measure_import(args.products, args.keep)
        return
    count = 100 if args.quick else 1000
    small = str(REAL) if REAL.is_dir() else None
    if small is None:
        print("SKIPPED the real products: ../shared is not there; generated ones take their place", file=sys.stderr)
    env = gym.make("tsr/WebShop-v0", catalogue=small)
    numbers: dict[str, Any] = {
        "products": "real" if small else "generated",
        "original": ORIGINAL,
        "steps_per_second_repeated_queries": steps_per_second(env, count, fresh=False),
        "steps_per_second_new_queries": steps_per_second(env, count // 4, fresh=True),
        "snapshot_and_restore": snapshots(env),
        "processes_small": processes(str(small)) if small else None,
        "query_small": query_times(small, 300) if small else None,
    }
    if args.store:
        numbers["at_scale"] = at_scale(args.store)
    write_result("webshop_speed", numbers)


if __name__ == "__main__":
    run_timed(main)
