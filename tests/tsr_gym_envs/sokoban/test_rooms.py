"""Where episodes of Sokoban begin: published rooms by seed, splits of them, numbered rooms."""

import sys

import gymnasium as gym
import pytest

from tests.tsr_gym_envs.sokoban.boards import rows_of
from tsr_gym import ConfigError, MissingExtra
from tsr_gym_envs.sokoban.generate import generate_room
from tsr_gym_envs.sokoban.rules import state_key
from tsr_gym_envs.sokoban.symmetry import canonical_form
from tsr_gym_envs.split import in_split

FORMS = [{}, {"obs_type": "array"}]


def room(**settings):
    return gym.make("tsr/Sokoban-v0", **settings)


def start(env, **arguments):
    env.reset(**arguments)
    return env.unwrapped.state


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("sokoban_ragen_val256.jsonl", {"generator": "ragen"}),
        ("gym_sokoban_6x6_1box_rooms.jsonl", {"generator": "gym-sokoban"}),
        ("gym_sokoban_10x10_rooms.jsonl", {"generator": "gym-sokoban", "dim": (10, 10), "num_boxes": 4}),
    ],
)
def test_a_seed_leads_to_the_room_that_was_published_for_it(golden, name, settings, form):
    env = room(**settings, **form)
    for row in golden(f"sokoban/{name}")[:: 4 if form else 1]:
        if not row.get("retried"):
            assert rows_of(start(env, seed=row["seed"])) == row["rows"]


@pytest.mark.parametrize("generator", ["ragen", "gym-sokoban"])
def test_without_a_seed_published_rooms_are_drawn_from_the_episodes_before(generator):
    one, other = room(generator=generator), room(generator=generator)
    rooms = [start(one, seed=5), *[start(one) for _ in range(4)]]
    assert rooms == [start(other, seed=5), *[start(other) for _ in range(4)]]
    assert len(set(rooms)) > 2
    # A seed that the originals cannot take stands for a room all the same.
    assert start(one, seed=2**40) == start(other, seed=2**40)


def test_ragens_search_depth_is_a_setting():
    env = room(generator="ragen", search_depth=10)
    assert [start(env, seed=seed) for seed in range(20)] == [
        generate_room(seed, generator="ragen", search_depth=10) for seed in range(20)
    ]


@pytest.mark.parametrize("split", ["train", "valid"])
def test_published_rooms_outside_the_split_are_replaced_by_rooms_inside(split):
    env = room(generator="ragen", split=split)
    for seed in range(40):
        published = generate_room(seed, generator="ragen")
        came = start(env, seed=seed)
        assert in_split(state_key(canonical_form(came)), split)
        assert (came == published) == in_split(state_key(canonical_form(published)), split)
        assert came == start(env, seed=seed) == start(env, seed=99, options={"number": seed})


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_number_of_rooms_is_the_first_rooms_of_the_generator(form):
    for settings in ({}, {"generator": "ragen"}):
        env = room(num_levels=5, **settings, **form)
        rooms = [generate_room(number, **settings) for number in range(5)]
        assert {start(env, seed=seed) for seed in range(60)} == set(rooms)
        assert [start(env, options={"number": number}) for number in range(5)] == rooms


def test_native_rooms_can_be_numbered_without_end():
    env = room()
    assert start(env, options={"number": 10**9}) == generate_room(10**9)
    assert start(env, seed=7) == generate_room(7)


@pytest.fixture
def folder(tmp_path):
    for name, floors in (("a", " "), ("b", "   ")):
        boards = [f"#####{'#' * n}\n#@$.{' ' * n}#\n#####{'#' * n}" for n in (len(floors), len(floors) + 1)]
        (tmp_path / f"{name}.xsb").write_text("\n\n".join(boards))
    return tmp_path


def widths(env, **arguments):
    return {start(env, seed=seed, **arguments).level.width for seed in range(30)}


def test_a_number_of_levels_is_the_first_levels_of_the_files(folder):
    assert widths(room(levels=str(folder))) == {6, 7, 8, 9}
    assert widths(room(levels=str(folder), num_levels=3)) == {6, 7, 8}
    assert widths(room(levels=str(folder / "b.xsb"))) == {8, 9}
    assert start(room(levels=str(folder / "b.xsb")), options={"number": 1}).level.width == 9
    with pytest.raises(ConfigError, match="wanted 5 levels, got 4"):
        room(levels=str(folder), num_levels=5)
    with pytest.raises(ConfigError, match="wanted num_levels, which numbers the levels of several files"):
        room(levels=str(folder)).reset(options={"number": 0})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"generator": "maze"}, r"generator of \['gym-sokoban', 'native', 'ragen'\], got 'maze'"),
        ({"generator": "ragen", "solution_length": (1, 5)}, "solution_length is native's"),
        ({"search_depth": 5}, "search_depth ragen's"),
        ({"num_levels": 0}, "num_levels >= 1"),
        ({"num_levels": 2, "level": "#####\n#@$.#\n#####"}, "not beside level"),
    ],
    ids=str,
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        room(**settings)


@pytest.mark.parametrize(("settings", "number"), [({"num_levels": 3}, 3), ({}, -1), ({"generator": "ragen"}, 2**32)])
def test_a_number_that_no_room_has_is_refused(settings, number):
    with pytest.raises(ConfigError, match=f"wanted the number of a room below .*, got {number}"):
        room(**settings).reset(options={"number": number})


def test_published_rooms_need_numba_and_say_so_at_once(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(MissingExtra, match=r"pip install 'tsr-gym\[envs\]'"):
        room(generator="ragen")
    start(room(), seed=1)
