"""Rules, texts, distances and generation of frozen lakes."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.toy_text.frozen_lake import generate_random_map
from hypothesis import example, given
from hypothesis import strategies as st

import tsr_gym  # noqa: F401 (registers the worlds)
from tsr_gym import ConfigError, GenerationFailed, InvalidLevel
from tsr_gym_envs.frozen_lake.lakes import gymnasium_map, path_length, ragen_map
from tsr_gym_envs.frozen_lake.rules import (
    MAPS,
    FrozenLakeState,
    Ice,
    check_map,
    fewest_steps,
    moves,
    proximity,
    transition_table,
)

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


@pytest.mark.parametrize(
    ("desc", "message"),
    [
        *(((), "wanted the rows of a map"), (("",), "wanted the rows of a map"), ((1, 2), "wanted the rows of a map")),
        (("SFG", "FF"), "map row 2: wanted 3 cells as in row 1, got 2"),
        (("SFG", "FXF"), "map row 2, column 2: wanted S, F, H or G, got 'X'"),
        (("FFG",), r"at least one start \(S\)"),
        (("SFF",), r"at least one goal \(G\)"),
        (("SG" + "F" * 63,), "at most 64x64, got 1x65"),
        (("SG",) * 65, "at most 64x64, got 65x2"),
        *((("F" * 10**6,), "at most 64x64"), (("SG",) * 10**5, "at most 64x64"), (tuple(b"SG"), "the rows of a map")),
    ],
    ids=range(12),
)
def test_a_malformed_map_is_refused_with_its_place(desc, message):
    with pytest.raises(InvalidLevel, match=message):
        check_map(desc)


def test_impossible_ice_and_generators_are_refused_and_a_hopeless_search_ends_with_the_cure(monkeypatch):
    for rate, rewards in ((-0.1, (1, 0, 0)), (1.1, (1, 0, 0)), (float("nan"), (1, 0, 0)), (0.5, (1.0, 0.0))):
        with pytest.raises(ConfigError, match="between 0 and 1" if len(rewards) == 3 else "three"):
            Ice(rate, rewards)
    for size, p in ((1, 0.8), (65, 0.8), (4, 0.0), (4, 1.5), (4, float("nan"))):
        for draw in (ragen_map, gymnasium_map):
            with pytest.raises(ConfigError):
                draw(1, size, p)
    monkeypatch.setattr("tsr_gym_envs.frozen_lake.lakes.MAX_ATTEMPTS", 3)
    with pytest.raises(GenerationFailed, match="in 3 attempts: raise p"):
        # Two cells of 4096 and almost no ice between them.
        ragen_map(1, 64, 1e-9)


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


def reached_after(desc, cell, slippery):
    """Return after how many actions a goal can first be reached, by what can happen at all."""
    table, letters = transition_table(desc, is_slippery=slippery), "".join(desc)
    here = {cell}
    for steps in range(len(letters) + 1):
        if any(letters[there] == "G" for there in here):
            return steps
        # Holes and goals are absorbing: their rows of the table lead nowhere else.
        here |= {
            there
            for cell_before in here
            if letters[cell_before] not in "GH"
            for action in range(4)
            for chance, there, *_ in table[cell_before][action]
            if chance > 0
        }
    return None


@pytest.mark.parametrize("slippery", [True, False])
def test_the_fewest_steps_are_those_after_which_a_goal_can_first_be_reached(slippery):
    rng = np.random.default_rng(3)
    missing = 0
    for _ in range(40):
        letters = rng.choice(list("FFFHG"), (int(rng.integers(1, 5)), int(rng.integers(2, 5))))
        letters.flat[0], letters.flat[-1] = "S", "G"
        desc = tuple("".join(row) for row in letters)
        for cell in range(letters.size):
            steps = fewest_steps(FrozenLakeState(desc, cell))
            assert steps == reached_after(desc, cell, slippery)
            missing += steps is None
    assert missing > 20


@pytest.mark.parametrize("settings", [{}, {"action_type": "discrete"}])
def test_a_hole_and_a_shore_without_a_way_are_dead_ends(settings):
    env = gym.make("tsr/FrozenLake-v0", desc=["SFH", "HHG"], **settings).unwrapped
    env.reset(seed=1)
    reasons = [env.dead_end(FrozenLakeState(("SFH", "HHG"), cell)) for cell in range(6)]
    assert reasons == ["no way", "no way", "hole", "hole", "hole", None]
    assert env.fewest_actions(FrozenLakeState(("SFG", "HHH"), 0)) == 2


LAKE = ("SFFH", "FHFF", "FFFG")


@pytest.mark.parametrize(
    ("cell", "score"), [(0, -5.0), (1, -4.0), (11, 0.0), (10, -1.0), (4, -4.0), (3, -2.0 - 7.0), (5, -3.0 - 7.0)]
)
def test_the_score_is_minus_the_distance_minus_the_penalty_of_a_hole(cell, score):
    assert FrozenLakeState(LAKE, cell).cell == "".join(LAKE)[cell]
    assert proximity(FrozenLakeState(LAKE, cell), hole_penalty=7.0) == score
    # The nearest goal counts.
    assert [proximity(FrozenLakeState(("GFSFFG",), cell), hole_penalty=0.0) for cell in (2, 3)] == [-2.0, -2.0]


def test_maps_are_those_that_the_originals_and_the_installed_gymnasium_draw(golden):
    draw = {"ragen": ragen_map, "gymnasium": gymnasium_map}
    for row in golden("frozen_lake/frozenlake_maps.jsonl"):
        assert draw[row["gen"]](row["seed"], row["size"], row["p"]) == row["desc"]
    for seed in range(20):
        assert gymnasium_map(seed, 5, 0.7) == generate_random_map(size=5, p=0.7, seed=seed)
    for seed in range(200):
        letters = "".join(ragen_map(seed, 4, 0.6))
        assert sorted(letter for letter in letters if letter in "SG") == ["G", "S"]
        assert path_length(ragen_map(seed, 4, 0.6)) >= 1


def test_distances_are_those_of_an_independent_search(golden):
    for row in golden("frozen_lake/frozenlake_ceiling_ragen_val256.jsonl"):
        assert path_length(row["desc"]) == row["d"]


@pytest.mark.parametrize(
    ("desc", "steps"),
    [
        (["SG"], 1), (["SFH", "HFG"], 3), (["SH", "HG"], None), (["SFFF", "HHHF", "GFFF"], 8),
        (["SHG", "FFF", "GHS"], 2),
    ],
)  # fmt: skip
def test_the_shortest_way_leads_around_the_holes(desc, steps):
    assert path_length(desc) == steps
