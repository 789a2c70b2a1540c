"""The solver: what it solves of the labelled levels, whether the counts are the published ones, and how fast.

Run: python -m benchmarks.sokoban_solver [max_nodes]
"""

import sys
from time import process_time
from typing import Any

import numpy as np

from benchmarks.measure import shared_rows, write_result
from tsr_gym_envs.sokoban.levels import parse_level, play_lurd
from tsr_gym_envs.sokoban.solver import Optimal, solve

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


def main() -> None:
    """Measure, and write results/sokoban_solver.json."""
    max_nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 4_000_000
    solve(parse_level("######\n#@$ .#\n# $ .#\n######"))
    numbers = {f"{path}, {kind}": solve_set(path, kind, max_nodes) for path in SETS for kind in ("pushes", "moves")}
    write_result("sokoban_solver", {"max_nodes": max_nodes, "sets": numbers})


if __name__ == "__main__":
    main()
