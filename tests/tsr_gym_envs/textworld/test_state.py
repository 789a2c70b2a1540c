"""The published difficulties, and settings that cannot be."""

import pytest

from tsr_gym import ConfigError
from tsr_gym_envs.textworld.games import numbers
from tsr_gym_envs.textworld.state import TextWorldSettings, make_settings, options_of

# As the difficulties are listed where they were published: ingredients, rooms, whether to cook and to cut.
PUBLISHED = [
    *[(1, 1, False, False), (1, 1, True, False), (1, 1, False, True), (1, 6, False, False), (1, 9, False, False)],
    *[(1, 12, False, False), (1, 1, True, True), (3, 6, False, False), (3, 6, True, True), (3, 12, True, True)],
]


@pytest.mark.parametrize("level", range(1, 11))
def test_a_level_of_cooking_is_the_published_difficulty(level):
    recipe, rooms, cook, cut = PUBLISHED[level - 1]
    options = options_of(TextWorldSettings(game="cooking", level=level))
    assert options == {
        **{"recipe": recipe, "take": recipe, "go": rooms, "cook": cook, "cut": cut},
        **{"open": True, "drop": False, "split": "train"},
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"game": "cooking", "level": 11}, "wanted level from 1 to 10 of 'cooking', got 11"),
        ({"game": "chess"}, r"game of \['coin_collector', 'cooking', 'simple', 'treasure_hunter'\], got 'chess'"),
        ({"level": 0}, "wanted level from 1 to 3"),
        ({"num_games": 0}, "wanted num_games >= 1, got 0"),
        ({"foods": "none"}, "wanted foods of"),
        ({"split": "dev"}, "wanted split of"),
        ({"observation_mode": "rich"}, "wanted observation_mode of"),
        ({"levle": 2}, r"unknown settings \['levle'\]"),
        ({"level": "2"}, "wanted level as a whole number, got '2'"),
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        make_settings("default", settings)


def test_games_of_different_splits_never_meet():
    splits = {name: set(numbers(TextWorldSettings(split=name, num_games=200))) for name in ("train", "valid", "test")}
    assert all(len(games) == 200 for games in splits.values())
    assert not splits["train"] & splits["valid"]
    assert not splits["test"] & (splits["train"] | splits["valid"])
    assert numbers(TextWorldSettings(num_games=5)) == (0, 1, 2, 3, 4)
