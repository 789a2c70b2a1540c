"""Deadlock rules: set-up per level, time per push within one level's play, and what they find.

Positions come from random play on labelled Boxoban levels: whenever a push was made, the position is checked with all
rules short of search; a flagged position starts the level anew. Levels that appear when frozen boxes become walls are
set up within the timed part. Run: python -m benchmarks.sokoban_deadlock
"""

from collections import Counter
from functools import partial

import numpy as np

from benchmarks.measure import best_seconds, shared_rows, write_result
from tsr_gym_envs.sokoban.levels import parse_level
from tsr_gym_envs.sokoban.rules import SokobanState, push
from tsr_gym_envs.sokoban.solver import find_deadlock
from tsr_gym_envs.sokoban.tables import level_tables

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
    setups, checks, found = [], [], Counter[str]()
    for start in starts:
        pushed = play_at_random(start, rng)
        found.update(deadlock.rule if (deadlock := find_deadlock(state)) else "none" for state in pushed)
        setups.append(best_seconds(partial(level_tables, start.level), before=level_tables.cache_clear))
        checks.append(best_seconds(partial(check_all, pushed), before=partial(only_tables_of, start)) / len(pushed))
    return setups, checks, found


def main() -> None:
    """Measure, and write results/sokoban_deadlock.json."""
    setups, checks, found = measure_levels(NUM_LEVELS)
    write_result(
        "sokoban_deadlock",
        {
            "what": "10x10 Boxoban levels with 4 boxes, find_deadlock without search after every push of random play",
            "levels": NUM_LEVELS,
            "pushes_per_level": PUSHES_PER_LEVEL,
            "setup_ms": {"median": 1e3 * float(np.median(setups)), "max": 1e3 * max(setups)},
            "check_us": {"mean": 1e6 * float(np.mean(checks)), "max_of_levels": 1e6 * max(checks)},
            "found": dict(found.most_common()),
        },
    )


if __name__ == "__main__":
    main()
