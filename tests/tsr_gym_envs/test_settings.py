"""Settings of the wrong kind are refused by name; how many actions are left is counted by hand."""

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from tsr_gym import ConfigError, UnknownSetting
from tsr_gym_envs.settings import actions_within

WRONG = [
    ("Sokoban", {"num_boxes": "x"}, "wanted num_boxes as a whole number, got 'x'"),
    ("Sokoban", {"num_boxes": 1.5}, "wanted num_boxes as a whole number, got 1.5"),
    ("Sokoban", {"num_boxes": True}, "wanted num_boxes as a whole number, got True"),
    ("Sokoban", {"num_boxes": None}, "wanted num_boxes as a whole number, got None"),
    ("Sokoban", {"dim": 6}, "wanted dim as 2 whole numbers, got 6"),
    ("Sokoban", {"dim": [6]}, "wanted dim as 2 whole numbers, got (6,)"),
    ("Sokoban", {"dim": "66"}, "wanted dim as 2 whole numbers, got '66'"),
    ("Sokoban", {"max_turns": "5"}, "wanted max_turns as a whole number or None, got '5'"),
    ("Sokoban", {"solution_length": 3}, "wanted solution_length as 2 whole numbers or None, got 3"),
    ("Sokoban", {"reward_step": "x"}, "wanted reward_step as a number, got 'x'"),
    ("Sokoban", {"level": 5}, "wanted level as text or None, got 5"),
    ("Sokoban", {"levels": 5}, "wanted levels as text or None, got 5"),
    ("Sokoban", {"preset": ["paper"]}, "wanted preset of ['paper', 'tsr-code'], got ['paper']"),
    ("FrozenLake", {"size": 4.0}, "wanted size as a whole number, got 4.0"),
    ("FrozenLake", {"p": "x"}, "wanted p as a number, got 'x'"),
    ("FrozenLake", {"is_slippery": "no"}, "wanted is_slippery as True or False, got 'no'"),
    ("FrozenLake", {"desc": 3}, "wanted desc as texts or None, got 3"),
    ("FrozenLake", {"reward_schedule": 1}, "wanted reward_schedule as 3 numbers, got 1"),
    ("WebShop", {"catalogue": 5}, "wanted catalogue as text or None, got 5"),
    ("WebShop", {"repairs": "plain_queries"}, "wanted repairs as texts or None, got 'plain_queries'"),
    ("WebShop", {"num_products": "x"}, "wanted num_products as a whole number or None, got 'x'"),
    ("WebShop", {"price_seed": "a"}, "wanted price_seed as a whole number, got 'a'"),
    ("RetrievalQA", {"max_turns": "x"}, "wanted max_turns as a whole number, got 'x'"),
    ("RetrievalQA", {"top_k": "x"}, "wanted top_k as a whole number, got 'x'"),
    ("RetrievalQA", {"protocol": 4}, "['search-r1', 'skyrl', 'verl'], a mapping or a Protocol, got 4"),
    ("RetrievalQA", {"reward": 3}, "a mapping or a Reward, got 3"),
    ("RetrievalQA", {"questions": ["a"], "corpus": "b"}, "questions as a path or as Question objects, got ['a']"),
    ("RetrievalQA", {"corpus": "mine.jsonl"}, "wanted questions for the corpus mine.jsonl"),
    ("RetrievalQA", {"questions": "q.jsonl"}, "wanted a corpus or a retriever for the questions q.jsonl"),
]


@pytest.mark.parametrize(("name", "settings", "message"), WRONG, ids=str)
def test_a_setting_of_the_wrong_kind_is_refused_by_its_name(name, settings, message):
    with pytest.raises(ConfigError) as caught:
        gym.make(f"tsr/{name}-v0", **settings)
    assert message in str(caught.value)


def test_numbers_of_numpy_and_paths_are_taken_as_what_they_are(tmp_path):
    gym.make("tsr/Sokoban-v0", num_boxes=np.int64(1), dim=[np.int32(6), 6], reward_step=np.float32(-1), reward_box=1)
    (tmp_path / "levels.xsb").write_text("#####\n#@$.#\n#####")
    assert gym.make("tsr/Sokoban-v0", levels=Path(tmp_path / "levels.xsb")).reset(seed=0)[0].count("P") == 1


@pytest.mark.parametrize(
    ("turns", "actions", "per_turn", "wanted"),
    [
        (3, 10, 2, 6),
        (3, 5, 2, 5),
        (3, 5, None, 5),
        (None, 5, 2, 5),
        (3, None, 2, 6),
        (3, None, None, None),
        (None, None, 2, None),
        # Without turns there are no actions, for any length of a turn.
        (0, 5, None, 0),
        (0, None, None, 0),
        (0, 5, 5, 0),
        (2, 0, 5, 0),
    ],
)
def test_the_tighter_limit_counts(turns, actions, per_turn, wanted):
    assert actions_within(turns, actions, per_turn) == wanted


def test_options_of_the_wrong_kind_are_refused_and_unknown_keywords_are_type_errors():
    for name, options, message in (
        ("Sokoban", {"number": "x"}, "wanted the number of a room below 5, got 'x'"),
        ("Sokoban", {"number": 1.0}, "wanted the number of a room below 5, got 1.0"),
        ("Sokoban", {"level": 5}, "wanted a level as text, got 5"),
        ("FrozenLake", {"number": "x"}, "wanted the number of a map below 5, got 'x'"),
        ("FrozenLake", {"desc": 5}, "wanted desc as rows of text, got 5"),
    ):
        with pytest.raises(ConfigError, match=message):
            gym.make(f"tsr/{name}-v0", num_levels=5).reset(seed=0, options=options)
    for name in ("Sokoban", "FrozenLake", "WebShop", "RetrievalQA"):
        # These are the words that clients look for.
        with pytest.raises(TypeError, match="unexpected keyword argument 'frameskip'"):
            gym.make(f"tsr/{name}-v0", frameskip=1)
    assert issubclass(UnknownSetting, ConfigError)
