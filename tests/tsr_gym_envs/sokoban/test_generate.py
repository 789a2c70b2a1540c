"""Rooms for a seed: solvable in a wanted number of moves, by an independent search, and the same everywhere."""

import numpy as np
import pytest

from tests.tsr_gym.own_process import run_python
from tests.tsr_gym_envs.sokoban.boards import fewest_moves, rows_of, solved
from tsr_gym import ConfigError, GenerationFailed
from tsr_gym_envs.sokoban.generate import draw_room, generate_room


def room(seed, dim=(6, 6), num_boxes=1, solution_length=(1, 10)):
    return draw_room(np.random.default_rng(seed), dim=dim, num_boxes=num_boxes, solution_length=solution_length)


@pytest.mark.parametrize(
    ("settings", "seeds"),
    [
        ({}, 40),
        ({"solution_length": (4, 4)}, 15),
        ({"dim": (5, 8), "solution_length": (6, 9)}, 15),
        ({"dim": (6, 6), "num_boxes": 2, "solution_length": (2, 8)}, 12),
    ],
    ids=str,
)
def test_a_shortest_solution_lies_within_the_wanted_range(settings, seeds):
    shortest, longest = settings.get("solution_length", (1, 10))
    for seed in range(seeds):
        state = room(seed, **settings)
        rows = rows_of(state)
        assert (len(rows), len(rows[0])) == settings.get("dim", (6, 6))
        assert "".join(rows).count("$") + "".join(rows).count("*") == settings.get("num_boxes", 1)
        assert not solved(rows)
        assert shortest <= fewest_moves(rows, limit=longest) <= longest


def test_the_rim_is_wall():
    for seed in range(30):
        rows = rows_of(room(seed))
        assert set(rows[0] + rows[-1] + "".join(row[0] + row[-1] for row in rows)) == {"#"}


def test_lengths_are_spread_over_the_wanted_range():
    lengths = [fewest_moves(rows_of(room(seed)), limit=10) for seed in range(120)]
    assert set(lengths) == set(range(1, 11))
    assert max(lengths.count(length) for length in set(lengths)) < 40


def test_rooms_differ():
    assert len({room(seed) for seed in range(100)}) > 90


def test_a_seed_stands_for_one_room_in_every_process():
    code = (
        "from tsr_gym_envs.sokoban.generate import generate_room\n"
        "print([generate_room(seed).to_xsb() for seed in range(5)])"
    )
    wanted = [generate_room(seed).to_xsb() for seed in range(5)]
    assert run_python(code, hash_seed="3").strip() == repr(wanted)


def test_the_room_of_a_seed_is_what_its_generator_draws():
    assert generate_room(7) == room(7)
    rng = np.random.default_rng(7)
    first = draw_room(rng, dim=(6, 6), num_boxes=1, solution_length=(1, 10))
    second = draw_room(rng, dim=(6, 6), num_boxes=1, solution_length=(1, 10))
    assert first == room(7) != second


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dim": (3, 6)}, r"dim between 4x4 and 64x64.*got \(3, 6\)"),
        ({"dim": (6, 65)}, "dim between 4x4 and 64x64"),
        ({"num_boxes": 0}, "wanted 1 to 8 boxes in a 6x6 room, got 0"),
        ({"num_boxes": 9}, "wanted 1 to 8 boxes in a 6x6 room, got 9"),
        ({"solution_length": (0, 3)}, "1 <= shortest <= longest"),
        ({"solution_length": (5, 3)}, "1 <= shortest <= longest"),
    ],
    ids=str,
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        room(1, **settings)


def test_a_hopeless_search_ends_with_the_cure():
    with pytest.raises(GenerationFailed, match=r"(?s)4x4 room.*100 to 100 moves.*widen solution_length or enlarge dim"):
        room(1, dim=(4, 4), solution_length=(100, 100))
