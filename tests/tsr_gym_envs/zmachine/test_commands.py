"""Which commands reach a story."""

import re

import pytest

from tsr_gym_envs.zmachine.story_env import command_of, refusal

WORDS = frozenset(
    ("go", "north", "take", "lamp", "save", "undo", "quit", "script", "on", "examine", "superbrie", "tw-print", "x")
)


@pytest.mark.parametrize(
    "command",
    ["go north", "TAKE LAMP", "take lamp. go north", "save lamp", "examined lamp", "superbriefly", "take 3 lamp", "x"],
)
def test_words_of_the_game_reach_it(command):
    assert refusal(command, WORDS) is None


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("save", "'save' is left to the search"),
        ("go north. undo", "'undo' is left to the search"),
        ("take lamp then QUIT", "'quit' is left to the search"),
        ("script on", "'script on' is left to the search"),
        ("tw-print score", "'tw-print score' is left to the search"),
        ("dance", "'dance' is no word of this game"),
        ("take the lamp", "'the' is no word of this game"),
        ("||", r"'\|\|' is no word of this game"),
        ("...", "holds no word"),
        ("take " * 50, "the command is longer than 198 bytes"),
        ("漢字", "is no word of this game"),
    ],
)
def test_everything_else_is_told_why_not(command, reason):

    assert re.match(rf".*{reason}", refusal(command_of(command), WORDS))
