"""Speed of Sokoban's generators, solver and deadlock rules, each checked before it is timed.

- generate: rooms per second of the two reproductions and of the native generator, after a comparison of golden rooms.
- solver: which labelled levels it solves, whether its counts are the published ones, and seconds per level.
- deadlock: set-up per level, and time per check after each push of random play on labelled Boxoban levels, by all rules
  except search. A flagged position starts the level anew. The timed part includes the tables of levels that appear when
  frozen boxes become walls.

Run: python -m benchmarks.sokoban_speed [generate] [solver] [deadlock]
"""

import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from time import process_time
from typing import Any

import numpy as np

from benchmarks.measure import best_seconds, run_parts, run_timed, shared_rows, write_result
from tsr_gym_envs.sokoban.levels import parse_level, play_lurd
from tsr_gym_envs.sokoban.rooms import generate_room
from tsr_gym_envs.sokoban.rules import SokobanState, push
from tsr_gym_envs.sokoban.solver import Optimal, find_deadlock, solve
from tsr_gym_envs.sokoban.tables import level_tables

# File of golden rooms, generator, rows and columns, boxes.
GOLDEN = (
    ("sokoban_ragen_val256.jsonl", "ragen", (6, 6), 1),
    ("sokoban_ragen_train1600.jsonl", "ragen", (6, 6), 1),
    ("gym_sokoban_6x6_1box_rooms.jsonl", "gym-sokoban", (6, 6), 1),
    ("gym_sokoban_10x10_rooms.jsonl", "gym-sokoban", (10, 10), 4),
)
# Generator, rows and columns, boxes, rooms.
TIMED = (
    ("ragen", (6, 6), 1, 2000),
    ("gym-sokoban", (6, 6), 1, 2000),
    ("ragen", (8, 8), 2, 200),
    ("gym-sokoban", (10, 10), 4, 40),
    ("native", (6, 6), 1, 500),
    ("native", (10, 10), 4, 20),
)


def draw_all(room: Callable[[int], SokobanState], num: int) -> None:
    """Draw the rooms of the first seeds."""
    for seed in range(num):
        room(seed)


def measure_generators() -> None:
    """Write results/sokoban_generate.json."""
    parity = {}
    for file, generator, dim, num_boxes in GOLDEN:
        rows = [row for row in shared_rows(f"golden/sokoban/{file}") if not row.get("retried")]
        room = partial(generate_room, generator=generator, dim=dim, num_boxes=num_boxes)
        equal = sum(room(row["seed"]).to_xsb() == "\n".join(row["rows"]) for row in rows)
        parity[file] = f"{equal} of {len(rows)}"
    speed = {}
    for generator, dim, num_boxes, num in TIMED:
        room = partial(generate_room, generator=generator, dim=dim, num_boxes=num_boxes)
        seconds = best_seconds(partial(draw_all, room, num), repeats=3)
        speed[f"{generator} {dim[0]}x{dim[1]}, {num_boxes} boxes"] = round(num / seconds, 1)
    write_result("sokoban_generate", {"golden_rooms_equal": parity, "rooms_per_second": speed})


SETS = (
    "golden/sokoban/boxoban_labelled.jsonl",
    "golden/sokoban/boxoban_play_states.jsonl",
    "golden/sokoban/sokoban_states.jsonl",
    "data/sokoban/microban1.jsonl",
    "data/sokoban/microban2.jsonl",
)


def solve_set(path: str, optimal: Optimal, max_nodes: int) -> dict[str, Any]:
    """Return how one set is solved."""
    seconds, undecided, statuses, labelled, equal = [], [], [], 0, 0
    for number, row in enumerate(shared_rows(path), start=1):
        state = parse_level("\n".join(row["rows"]))
        start = process_time()
        solution = solve(state, optimal=optimal, max_nodes=max_nodes)
        seconds.append(process_time() - start)
        statuses.append(solution.status)
        if solution.lurd is not None and not play_lurd(state, solution.lurd).solved:
            raise SystemExit(f"{path}, row {number}: the solution does not solve it")
        if solution.status == "unknown":
            undecided.append(number)
        if row.get(f"min_{optimal}") is not None or row.get("solvable") is False:
            labelled += 1
            got = solution.pushes if optimal == "pushes" else solution.moves
            equal += got == row.get(f"min_{optimal}") and solution.status != "unknown"
    return {
        "levels": len(seconds),
        "decided": {status: statuses.count(status) for status in ("solved", "unsolvable", "unknown")},
        "labels_equal": f"{equal} of {labelled}",
        "undecided_rows": undecided,
        "ms": {"median": 1e3 * float(np.median(seconds)), "max": 1e3 * max(seconds)},
    }


def measure_solver(max_nodes: int = 4_000_000) -> None:
    """Measure, and write results/sokoban_solver.json."""
    solve(parse_level("######\n#@$ .#\n# $ .#\n######"))
    numbers = {
        f"{path}, {metric}": solve_set(path, metric, max_nodes) for path in SETS for metric in ("pushes", "moves")
    }
    write_result("sokoban_solver", {"max_nodes": max_nodes, "sets": numbers})


NUM_LEVELS = 50
PUSHES_PER_LEVEL = 1000


def play_at_random(start: SokobanState, rng: np.random.Generator) -> list[SokobanState]:
    """Return the positions after each push of random play."""
    pushed: list[SokobanState] = []
    state = start
    while len(pushed) < PUSHES_PER_LEVEL:
        after = push(state, int(rng.integers(4)))
        if after.boxes != state.boxes:
            pushed.append(after)
            if after.solved or find_deadlock(after):
                after = start
        state = after
    return pushed


def check_all(states: list[SokobanState]) -> None:
    """Check every position."""
    for state in states:
        find_deadlock(state)


def only_tables_of(start: SokobanState) -> None:
    """Forget the tables of all levels but one."""
    level_tables.cache_clear()
    level_tables(start.level)


def measure_levels(num_levels: int) -> tuple[list[float], list[float], Counter[str]]:
    """Return seconds of set-up and of a check by level, and how often each rule fired."""
    rng = np.random.default_rng(0)
    starts = [parse_level("\n".join(row["rows"])) for row in shared_rows("golden/sokoban/boxoban_labelled.jsonl")]
    starts = starts[:: len(starts) // num_levels][:num_levels]
    setups, checks, rules = [], [], Counter[str]()
    for start in starts:
        pushed = play_at_random(start, rng)
        rules.update(deadlock.rule if (deadlock := find_deadlock(state)) else "none" for state in pushed)
        setups.append(best_seconds(partial(level_tables, start.level), before=level_tables.cache_clear))
        checks.append(best_seconds(partial(check_all, pushed), before=partial(only_tables_of, start)) / len(pushed))
    return setups, checks, rules


def measure_deadlocks() -> None:
    """Measure, and write results/sokoban_deadlock.json."""
    setups, checks, rules = measure_levels(NUM_LEVELS)
    write_result(
        "sokoban_deadlock",
        {
            "what": "10x10 Boxoban levels with 4 boxes, find_deadlock without search after every push of random play",
            "levels": NUM_LEVELS,
            "pushes_per_level": PUSHES_PER_LEVEL,
            "setup_ms": {"median": 1e3 * float(np.median(setups)), "max": 1e3 * max(setups)},
            "check_us": {"mean": 1e6 * float(np.mean(checks)), "max_of_levels": 1e6 * max(checks)},
            "found": dict(rules.most_common()),
        },
    )


PARTS = {"generate": measure_generators, "solver": measure_solver, "deadlock": measure_deadlocks}

if __name__ == "__main__":
    run_timed(lambda: run_parts(PARTS, sys.argv[1:]))
