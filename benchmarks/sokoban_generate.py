"""Room generation: rooms per second of the two reproductions and of the native generator.

The golden rooms are compared before anything is timed. Run: python -m benchmarks.sokoban_generate
"""

from collections.abc import Callable
from functools import partial

from benchmarks.measure import best_seconds, shared_rows, write_result
from tsr_gym_envs.sokoban.rooms import generate_room
from tsr_gym_envs.sokoban.rules import SokobanState

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


def main() -> None:
    """Measure, and write results/sokoban_generate.json."""
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


if __name__ == "__main__":
    main()
