"""FrozenLake's rules against Gymnasium's own, transition by transition and random number by random number."""

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tsr_gym import ConfigError, InvalidLevel
from tsr_gym_envs.frozen_lake.rules import MAPS, FrozenLakeState, Ice, check_map, moves, transition_table

SETTINGS = [
    {"is_slippery": True},
    {"is_slippery": False},
    {"is_slippery": True, "success_rate": 0.8},
    {"is_slippery": True, "success_rate": 0.0, "reward_schedule": (10, -5, -1)},
]


def test_transition_tables_are_the_originals_in_its_order(golden):
    for row in golden("frozen_lake/frozenlake_P.jsonl"):
        table = transition_table(row["desc"], **row["cfg"])
        came = [[[list(outcome) for outcome in table[cell][action]] for action in range(4)] for cell in sorted(table)]
        assert came == row["P"]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("name", MAPS)
def test_transition_tables_are_those_of_the_installed_gymnasium(name, settings):
    real = gym.make("FrozenLake-v1", map_name=name, **settings).unwrapped
    assert tuple("".join(letter.decode() for letter in row) for row in real.desc) == MAPS[name]
    assert transition_table(MAPS[name], **settings) == real.P


# On the very border between two outcomes.
@example(seed=0, rate=1.0, uniform=0.0)
@example(seed=16, rate=0.0, uniform=0.5)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 1 / 3, 0.5, 0.8, 0.9, 1.0]), st.floats(0, 1, exclude_max=True))
def test_a_uniform_number_picks_the_outcome_that_gymnasium_picks(seed, rate, uniform):
    desc = MAPS["4x4"]
    cell, action = seed % 16, seed // 16 % 4
    outcomes = transition_table(desc, success_rate=rate)[cell][action]
    # gymnasium.envs.toy_text.utils.categorical_sample, in its own words.
    index = np.argmax(np.cumsum([outcome[0] for outcome in outcomes]) > uniform)
    assert moves(desc, Ice(rate), True)[cell][action].draw(uniform) == outcomes[index]


def test_the_state_knows_the_letter_under_the_player():
    desc = ("SFH", "FFG")
    assert [FrozenLakeState(desc, cell).cell for cell in range(6)] == list("SFHFFG")


@pytest.mark.parametrize(
    ("desc", "message"),
    [
        ((), "wanted the rows of a map"),
        (("",), "wanted the rows of a map"),
        ((1, 2), "wanted the rows of a map"),
        (("SFG", "FF"), "map row 2: wanted 3 cells as in row 1, got 2"),
        (("SFG", "FXF"), "map row 2, column 2: wanted S, F, H or G, got 'X'"),
        (("FFG",), r"at least one start \(S\)"),
        (("SFF",), r"at least one goal \(G\)"),
        (("SG" + "F" * 63,), "at most 64x64, got 1x65"),
        (("SG",) * 65, "at most 64x64, got 65x2"),
    ],
)
def test_a_malformed_map_is_refused_with_its_place(desc, message):
    with pytest.raises(InvalidLevel, match=message):
        check_map(desc)


@pytest.mark.parametrize(
    ("rate", "rewards", "message"),
    [(rate, (1.0, 0.0, 0.0), "between 0 and 1") for rate in (-0.1, 1.1, float("nan"))] + [(0.5, (1.0, 0.0), "three")],
)
def test_impossible_ice_is_refused(rate, rewards, message):
    with pytest.raises(ConfigError, match=message):
        Ice(rate, rewards)


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("turns", range(4))
def test_a_transition_and_a_symmetry_commute(turns, mirrored):
    desc, steps = ("SFHF", "FGFF", "HFFS"), ((0, -1), (1, 0), (0, 1), (-1, 0))

    def seen(array):
        array = np.rot90(array, turns)
        return array[:, ::-1] if mirrored else array

    # Which cell of the plain map lies on each cell of the view, and what becomes of each direction.
    cells = seen(np.arange(12).reshape(3, 4))
    place_of = {int(cell): place for place, cell in enumerate(cells.ravel())}
    sent = []
    for down, right in steps:
        mark = np.zeros((3, 3), int)
        mark[1 + down, 1 + right] = 1
        row, column = np.argwhere(seen(mark))[0] - 1
        sent.append(steps.index((row, column)))
    turned = tuple("".join(row) for row in seen(np.array([list(row) for row in desc])))
    plain, other = (transition_table(rows, success_rate=0.8, reward_schedule=(3, -2, -1)) for rows in (desc, turned))
    for cell in range(12):
        for action in range(4):
            expected = sorted((chance, place_of[there], *rest) for chance, there, *rest in plain[cell][action])
            assert sorted(other[place_of[cell]][sent[action]]) == expected


@given(st.one_of(st.lists(st.text(alphabet="SFHG", max_size=5), max_size=5), st.lists(st.text(max_size=9), max_size=9)))
def test_arbitrary_rows_are_a_map_or_refused(rows):
    is_map = bool(rows) and len({len(row) for row in rows}) == 1 and set("SG") <= set("".join(rows)) <= set("SFHG")
    try:
        assert check_map(tuple(rows)) == tuple(rows)
    except InvalidLevel:
        assert not is_map
    else:
        assert is_map


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_no_map(data):
    with pytest.raises(InvalidLevel):
        check_map(tuple(data))


@pytest.mark.parametrize("rows", [("F" * 10**6,), ("SG",) * 10**5], ids=["wide", "high"])
def test_huge_maps_are_refused_at_once(rows):
    with pytest.raises(InvalidLevel, match="at most 64x64"):
        check_map(rows)
