"""Maps for a seed: those that Gymnasium and RAGEN draw."""

import pytest
from gymnasium.envs.toy_text.frozen_lake import generate_random_map

from tsr_gym import ConfigError, GenerationFailed
from tsr_gym_envs.frozen_lake.lakes import gymnasium_map, path_length, ragen_map


def test_maps_are_those_that_the_originals_draw_for_a_seed(golden):
    draw = {"ragen": ragen_map, "gymnasium": gymnasium_map}
    for row in golden("frozen_lake/frozenlake_maps.jsonl"):
        assert draw[row["gen"]](row["seed"], row["size"], row["p"]) == row["desc"]


def test_gymnasiums_maps_are_those_of_the_installed_gymnasium():
    for seed in range(20):
        assert gymnasium_map(seed, 5, 0.7) == generate_random_map(size=5, p=0.7, seed=seed)


def test_ragens_maps_have_one_start_one_goal_and_a_way():
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
        (["SG"], 1),
        (["SFH", "HFG"], 3),
        (["SH", "HG"], None),
        (["SFFF", "HHHF", "GFFF"], 8),
        (["SHG", "FFF", "GHS"], 2),
    ],
)
def test_the_shortest_way_leads_around_the_holes(desc, steps):
    assert path_length(desc) == steps


@pytest.mark.parametrize(("size", "p"), [(1, 0.8), (65, 0.8), (4, 0.0), (4, 1.5), (4, float("nan"))])
def test_impossible_settings_are_refused(size, p):
    for draw in (ragen_map, gymnasium_map):
        with pytest.raises(ConfigError):
            draw(1, size, p)


def test_a_hopeless_search_ends_with_the_cure(monkeypatch):
    monkeypatch.setattr("tsr_gym_envs.frozen_lake.lakes.MAX_ATTEMPTS", 3)
    with pytest.raises(GenerationFailed, match="in 3 attempts: raise p"):
        # Two cells of 4096 and almost no ice between them.
        ragen_map(1, 64, 1e-9)
