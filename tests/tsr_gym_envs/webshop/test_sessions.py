"""How episodes begin: the original's random numbers, keys that come back, and splits."""

import json

import numpy as np
import pytest

from tsr_gym import ConfigError
from tsr_gym_envs.webshop.catalogue.goals import make_goals
from tsr_gym_envs.webshop.repairs import RULES
from tsr_gym_envs.webshop.sessions import MAX_KNOWN, Stream, begin, begin_as_original, stream_from
from tsr_gym_envs.webshop.settings import make_settings


@pytest.fixture(scope="module")
def goals(real_catalogue):
    return {name: make_goals(real_catalogue, repairs) for name, repairs in RULES.items()}


def settings_of(**given):
    return make_settings("default", given)


class Original:
    """Episodes one after the other, as the original begins them."""

    def __init__(self, goals, stream=None, **settings):
        self.goals, self.settings = goals["original"], settings_of(rules="original", **settings)
        self.stream = stream or Stream(self.goals.dice)

    def begin(self, **options):
        state = begin_as_original(self.goals, self.settings, {"stream": self.stream, **options})
        self.stream = Stream(state.dice, state.known)
        return state.session, state.goal


def test_episodes_come_in_the_originals_sequence(shared, goals):
    wanted = json.loads((shared / "golden/webshop/rng_reset_sequence.json").read_text())["sessions"]
    original = Original(goals)
    # The first was begun by the constructor.
    assert [list(original.begin()) for _ in wanted[1:]] == wanted[1:]


def test_a_number_names_a_goal_and_a_key_belongs_to_one(goals):
    original = Original(goals)
    last = len(goals["original"]) - 1
    assert original.begin(session=5) == ("5", 5)
    assert original.begin(session=-1) == ("-1", last)
    key, goal = original.begin(session="me")
    assert original.begin()[1] != goal
    assert original.begin(session="me") == (key, goal)
    # Keys are words: whoever came first decides.
    assert original.begin(session="5") == ("5", 5)
    key, goal = original.begin(session="6")
    assert goal != 6
    assert original.begin(session=6) == ("6", goal)
    assert original.begin(goal=6) == ("6", 6)


def test_known_sessions_draw_no_random_numbers(goals):
    original = Original(goals)
    original.begin(session="me")
    dice = original.stream.dice
    original.begin(session="me")
    original.begin(session=3)
    assert original.stream.dice == dice


def test_only_so_many_sessions_are_remembered(goals):
    original = Original(goals)
    for number in range(MAX_KNOWN + 9):
        original.begin(session=number)
    assert [key for key, _ in original.stream.known] == [str(number) for number in range(9, MAX_KNOWN + 9)]


def test_prefixes_belong_to_keys(goals):
    assert Original(goals, session_prefix="p_").begin(session=7) == ("p_7", 7)


def test_a_seed_decides_a_whole_sequence(goals):
    first, again, other = (Original(goals, stream_from(seed)) for seed in (3, np.int64(3), 4))
    sequences = [[original.begin() for _ in range(5)] for original in (first, again, other)]
    assert sequences[0] == sequences[1] != sequences[2]


def test_keys_mean_the_same_goal_in_every_process_once_repaired(goals):
    settings = settings_of()

    def goal_of(**options):
        return begin(goals["fixed"], settings, options, np.random.default_rng()).goal

    assert goal_of(session="me") == goal_of(session="me") == 2173
    assert len({goal_of(session=f"key {number}") for number in range(20)}) > 10
    assert (goal_of(session=5), goal_of(goal=5), goal_of(goal=-2)) == (5, 5, len(goals["fixed"]) - 2)


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_draws_stay_in_their_split(goals, split):
    settings = settings_of(split=split)
    inside = set(goals["fixed"].split(split).tolist())
    rng = np.random.default_rng(1)
    drawn = {begin(goals["fixed"], settings, {}, rng).goal for _ in range(50)}
    drawn |= {begin(goals["fixed"], settings, {"session": f"{number}!"}, rng).goal for number in range(50)}
    assert drawn <= inside
    assert len(drawn) > 20


def test_random_queries_have_dice_where_they_are_not_repaired(goals):
    rng = np.random.default_rng(1)
    assert begin(goals["fixed"], settings_of(), {}, rng).dice is None
    assert begin(goals["fixed"], settings_of(repairs=["page_state"]), {}, rng).dice is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"goal": 10**6}, "wanted the number of a goal from -6910 to 6909, got 1000000"),
        ({"goal": -6911}, "got -6911"),
        ({"session": 10**6}, "got 1000000"),
        ({"goal": "5"}, "wanted the number of a goal, got '5'"),
        ({"goal": 1.5}, "wanted a number or the key of a session"),
        ({"goal": 1, "session": 1}, "got both"),
    ],
)
def test_what_is_no_goal_is_refused(goals, options, message):
    with pytest.raises(ConfigError, match=message):
        begin(goals["fixed"], settings_of(), options, np.random.default_rng())
    with pytest.raises(ConfigError, match=message):
        Original(goals).begin(**options)
