"""What is said of Atari games without an emulator: which of them ALE saves completely."""

from types import SimpleNamespace

import pytest

from tsr_gym.foreign.atari import AtariAdapter


@pytest.mark.parametrize(
    ("settings", "level"),
    [
        ({}, "exact"),
        ({"sound_obs": True}, "none"),
        ({"_game": "miniature_golf"}, "none"),
        ({"_game": "video_checkers"}, "exact"),
        ({"_game": "video_checkers", "_frameskip": (2, 5)}, "none"),
        ({"_game": "video_checkers", "_frameskip": 1, "_obs_type": "ram"}, "exact"),
    ],
    ids=str,
)
def test_a_game_is_exact_where_ale_saves_all_of_what_it_shows(settings, level):
    game = {"_game": "breakout", "_frameskip": 4, "_obs_type": "rgb", "sound_obs": False}
    support = AtariAdapter().support(SimpleNamespace(**(game | settings)))
    assert support.level == level
    if "sound_obs" in settings:
        assert support.reason == "breakout: the sound goes on from earlier frames, which ALE does not save"
