"""Rooms of the two reproductions against the originals' rooms and against a plain retelling of the originals."""

import random
from hashlib import blake2b

import numpy as np
import pytest

from tests.conftest import deep
from tsr_gym import ConfigError, GenerationFailed
from tsr_gym_envs.sokoban.levels import parse_level
from tsr_gym_envs.sokoban.parity import gym_sokoban_room, ragen_room
from tsr_gym_envs.sokoban.rooms import generate_room
from tsr_gym_envs.sokoban.solver import solve

STEPS = ((-1, 0), (1, 0), (0, -1), (0, 1))


@pytest.mark.parametrize(
    ("name", "generator", "dim", "num_boxes"),
    [
        ("sokoban_ragen_val256.jsonl", "ragen", (6, 6), 1),
        ("sokoban_ragen_train1600.jsonl", "ragen", (6, 6), 1),
        ("gym_sokoban_6x6_1box_rooms.jsonl", "gym-sokoban", (6, 6), 1),
        ("gym_sokoban_10x10_rooms.jsonl", "gym-sokoban", (10, 10), 4),
    ],
)
def test_the_originals_rooms_are_reproduced(golden, name, generator, dim, num_boxes):
    for row in golden(f"sokoban/{name}"):
        if not row.get("retried"):
            room = generate_room(row["seed"], generator=generator, dim=dim, num_boxes=num_boxes)
            assert room == parse_level("\n".join(row["rows"])), row["seed"]


class NoRoom(Exception):
    """The originals raise a RuntimeError or a RuntimeWarning here."""


class Room:
    """One draw of a room as in the originals, in plain Python; cells are (row, column)."""

    def __init__(self, python, numpy, dim, num_boxes, ragen, depth):
        self.python, self.numpy, self.dim, self.ragen = python, numpy, dim, ragen
        for _ in range(4):
            self.carve()
            self.place(num_boxes)
            self.explored, self.best_score = set(), -1
            self.search(self.player, dict.fromkeys(self.goals), 0, None, depth)
            if self.best_score > 0:
                break
        if self.best_score == 0:
            raise NoRoom
        self.player, self.boxes = self.best
        if ragen:
            self.stroll()

    def carve(self):
        height, width = self.dim
        masks = ["000111000", "010010010", "000110010", "000110110", "000011010"]
        ways = [(1, 0), (0, 1), (-1, 0), (0, -1)]
        down, right = self.python.sample(ways, 1)[0]
        row, column = self.python.randint(1, height - 1), self.python.randint(1, width - 1)
        self.floor = set()
        for _ in range(int(1.7 * (height + width))):
            if self.python.random() < 0.35:
                down, right = self.python.sample(ways, 1)[0]
            row, column = max(min(row + down, height - 2), 1), max(min(column + right, width - 2), 1)
            mask = self.python.sample(masks, 1)[0]
            self.floor |= {(row + i // 3 - 1, column + i % 3 - 1) for i in range(9) if mask[i] == "1"}
        self.floor = {(r, c) for r, c in self.floor if 0 < r < height - 1 and 0 < c < width - 1}

    def place(self, num_boxes):
        free = sorted(self.floor)
        if len(free) <= num_boxes + 1:
            raise NoRoom
        self.player = free.pop(self.numpy.randint(len(free)))
        self.goals = [free.pop(self.numpy.randint(len(free))) for _ in range(num_boxes)]

    def search(self, player, pulled_to, score, last, depth):
        """`pulled_to` is the cell to which the box of each goal has been pulled, None for a box that never moved."""
        depth -= 1
        if depth <= 0 or len(self.explored) >= 300_000:
            return
        boxes = {where or goal: goal for goal, where in pulled_to.items()}
        name = (player, frozenset((box, pulled_to[goal] is not None) for box, goal in boxes.items()))
        if name in self.explored:
            return
        self.explored.add(name)
        spread = sum(abs(b[0] - g[0]) + abs(b[1] - g[1]) for b, g in boxes.items())
        all_open = not any(goal in boxes or goal == player for goal in self.goals)
        if (total := score * spread * all_open) > self.best_score:
            self.best_score, self.best, self.spread = total, (player, set(boxes)), spread
        for action in range(4 if self.ragen else 8):
            down, right = STEPS[action % 4]
            target, behind = (player[0] + down, player[1] + right), (player[0] - down, player[1] - right)
            if target not in self.floor or target in boxes:
                continue
            if action < 4 and behind in boxes:
                goal = boxes[behind]
                fresh = not (self.ragen and last == goal)
                self.search(target, {**pulled_to, goal: player}, score + fresh, goal, depth)
            else:
                self.search(target, pulled_to, score, last, depth)

    def stroll(self):
        if self.python.random() > (0.8 if self.spread == 1 else 0.5):
            return
        visited = [self.player]
        for steps in range(1, 4):
            around = [(self.player[0] + down, self.player[1] + right) for down, right in STEPS]
            ways = [cell for cell in around if cell in self.floor - self.boxes and cell not in visited]
            if not ways:
                return
            self.player = self.python.choice(ways)
            visited.append(self.player)
            if steps == 3 or self.python.random() > 0.5:
                return

    def xsb(self):
        rows = [["#"] * self.dim[1] for _ in range(self.dim[0])]
        for cell in self.floor:
            contents = (cell in self.goals, cell in self.boxes, cell == self.player)
            glyphs = {(0, 0, 0): " ", (1, 0, 0): ".", (0, 1, 0): "$", (1, 1, 0): "*", (0, 0, 1): "@", (1, 0, 1): "+"}
            rows[cell[0]][cell[1]] = glyphs[contents]
        return "\n".join("".join(row) for row in rows)


MANY = [((6, 6), 1), ((9, 6), 2), ((7, 7), 2), ((10, 10), 3), ((5, 5), 3)]


@pytest.mark.parametrize(
    ("dim", "num_boxes", "seeds"),
    [
        *((dim, boxes, range(500, 515)) for dim, boxes in [((6, 6), 1), ((7, 6), 1), ((5, 8), 2), ((5, 5), 3)]),
        *(deep(dim, boxes, range(10_000, 10_000 + 2000 // (dim[0] * boxes))) for dim, boxes in MANY),
    ],
)
def test_gym_sokoban_rooms_of_other_shapes_are_those_of_the_retelling(dim, num_boxes, seeds):
    for seed in seeds:
        python, numpy = random.Random(seed), np.random.RandomState(seed)
        room = None
        while room is None:
            try:
                room = Room(python, numpy, dim, num_boxes, ragen=False, depth=300)
            except NoRoom:
                continue
        assert gym_sokoban_room(seed, dim=dim, num_boxes=num_boxes).to_xsb() == room.xsb(), seed


LARGE_SEEDS = range(4_294_967_000, 4_294_967_025)
SHAPES = [((6, 6), 1, 300), ((8, 8), 2, 10), ((6, 9), 2, 40), ((7, 7), 3, 12), ((6, 6), 1, 5)]


@pytest.mark.parametrize(
    ("dim", "num_boxes", "depth", "seeds"),
    [
        *((*shape, LARGE_SEEDS) for shape in SHAPES),
        *(deep(*shape, range(10_000, 10_400)) for shape in [*SHAPES[:2], ((8, 7), 3, 300)]),
    ],
)
def test_ragen_rooms_of_other_shapes_and_depths_are_those_of_the_retelling(dim, num_boxes, depth, seeds):
    num_compared = 0
    for seed in seeds:
        try:
            room = Room(random.Random(seed), np.random.RandomState(seed), dim, num_boxes, ragen=True, depth=depth)
        except NoRoom:
            continue
        num_compared += 1
        assert ragen_room(seed, dim=dim, num_boxes=num_boxes, search_depth=depth).to_xsb() == room.xsb(), seed
    assert num_compared > len(seeds) / 2


def test_a_seed_without_a_room_continues_with_the_hash_of_its_digits():
    num_retried = 0
    for first in range(100, 160):
        seed, room = first, None
        while room is None:
            try:
                room = Room(random.Random(seed), np.random.RandomState(seed), (8, 8), 2, ragen=True, depth=10)
            except NoRoom:
                num_retried += 1
                seed = int.from_bytes(blake2b(str(seed).encode(), digest_size=4).digest(), "little")
        assert ragen_room(first, dim=(8, 8), num_boxes=2, search_depth=10).to_xsb() == room.xsb()
    assert num_retried > 0


def test_the_global_random_streams_are_left_alone():
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    before = (random.getstate(), np.random.get_state()[1].tolist())  # noqa: NPY002
    generate_room(5, generator="ragen")
    generate_room(5, generator="gym-sokoban")
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # noqa: NPY002


@pytest.mark.parametrize(
    ("dim", "num_boxes", "solution_length"),
    [((6, 6), 2, (12, 18)), ((8, 8), 3, (25, 35)), ((10, 10), 4, (20, 30)), ((12, 9), 5, (20, 30))],
)
def test_native_rooms_have_the_wanted_solution_length(dim, num_boxes, solution_length):
    shortest, longest = solution_length
    settings = {"dim": dim, "num_boxes": num_boxes, "solution_length": solution_length}
    for seed in range(4):
        room = generate_room(seed, **settings)
        assert room == generate_room(seed, **settings)
        assert shortest <= solve(room, optimal="moves").moves <= longest
        assert room.boxes.bit_count() == num_boxes


def test_settings_that_do_not_belong_to_a_generator_are_refused_and_impossible_rooms_given_up():
    for settings in (
        {"generator": "boxoban"},
        {"generator": "ragen", "solution_length": (1, 10)},
        {"generator": "gym-sokoban", "search_depth": 300},
        {"search_depth": 300},
        {"generator": "ragen", "search_depth": 1},
        {"generator": "ragen", "dim": (3, 9)},
    ):
        with pytest.raises(ConfigError):
            generate_room(0, **settings)
    with pytest.raises(ConfigError, match="seed"):
        generate_room(2**32, generator="ragen")
    with pytest.raises(GenerationFailed):
        generate_room(0, generator="ragen", dim=(4, 4))
    with pytest.raises(GenerationFailed, match="solution"):
        generate_room(0, dim=(4, 4), solution_length=(50, 60))
