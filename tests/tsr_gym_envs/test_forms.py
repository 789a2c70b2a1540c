"""Contracts of all worlds: imports between folders, reasons for invalid actions, every form of observation."""

import ast
import sys
import warnings
from graphlib import TopologicalSorter

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import InvalidAction
from gymnasium.utils.env_checker import check_env

import tsr_gym
from tests.conftest import ROOT, run_python
from tsr_gym import ConfigError, MissingExtra
from tsr_gym.registration import ENTRY_POINTS
from tsr_gym.testing import check_snapshot, check_text_env
from tsr_gym.wrappers import AnswerFormat

ENVS = ROOT / "tsr_gym_envs"
WORLDS = sorted(path.parent.name for path in ENVS.glob("*/env.py"))


def arrows(world):
    """Return which folders and files at the top of a world each of them imports, also inside of functions."""
    package = f"tsr_gym_envs.{world}."
    targets = {}
    for path in (ENVS / world).rglob("*.py"):
        here = path.relative_to(ENVS / world).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith(package):
                targets.setdefault(here, set()).add(node.module.removeprefix(package).partition(".")[0])
    return {here: there - {here} for here, there in targets.items()}


def test_every_world_is_looked_at():
    named = "countdown database frozen_lake jericho retrieval_qa sandbox shell sokoban textarena textworld webshop"
    assert named.split() == WORLDS
    assert arrows("webshop")["site"] >= {"trips", "web_page"}


@pytest.mark.parametrize("world", WORLDS)
def test_the_drawers_of_a_world_import_one_way_only(world):
    # Raises CycleError, which names the circle.
    assert tuple(TopologicalSorter(arrows(world)).static_order())


SHOWN = "<search>who</search>"
ONLY_ONE = {"protocol": {"preset": "search-r1", "both": "invalid", "cut": "never"}}
OF_SEARCH = "of 'search' with a list of texts as \"query_list\""
REASONS = [
    ("Sokoban", {}, "please", "'please' is no action: write Up, Down, Left or Right"),
    ("Sokoban", {}, "Up || oops || what", "'oops' is no action: write Up, Down, Left or Right"),
    ("Sokoban", {}, " || ", "the turn holds no action"),
    ("FrozenLake", {}, "please", "'please' is no action: write Left, Down, Right or Up"),
    ("FrozenLake", {}, "", "the turn holds no action"),
    ("WebShop", {}, "red shoes", "'red shoes' is no action: write search[words] or click[name]"),
    ("WebShop", {}, "buy[now]", "'buy[now]' is no action: write search[words] or click[name]"),
    ("WebShop", {}, "click[buy now]", "the page shows no 'buy now' to click"),
    ("WebShop", {}, "click[Search]", "'search' is no click: write search[words]"),
    ("WebShop", {"rules": "original"}, "Click[x]", "'Click[x]' is no action: write search[words] or click[name]"),
    ("WebShop", {}, "\n", "the turn holds no action"),
    ("RetrievalQA", {}, "who", "the turn holds neither <search> nor <answer>"),
    ("RetrievalQA", {}, "<search>who", "the turn holds neither <search> nor <answer>"),
    ("RetrievalQA", {}, "", "the turn holds neither <search> nor <answer>"),
    ("RetrievalQA", ONLY_ONE, "<search>a</search><answer>b</answer>", "wanted one search or one answer, got 2"),
    ("RetrievalQA", {"protocol": "verl"}, "<tool_call>{</tool_call>", f"the search is no call {OF_SEARCH}"),
]


def step(name, settings, action):
    env = gym.make(f"tsr/{name}-v0", disable_env_checker=True, **settings)
    env.reset(seed=0)
    return env.step(action)[4]


@pytest.mark.parametrize(("name", "settings", "action", "reason"), REASONS, ids=range(len(REASONS)))
def test_an_invalid_answer_has_its_reason(name, settings, action, reason):
    info = step(name, settings, action)
    assert (info["action_is_valid"], info["invalid_reason"]) == (False, reason)


@pytest.mark.parametrize("name", ENTRY_POINTS)
@pytest.mark.parametrize("action", [3, None, b"Up", ["Up"], 1.5])
def test_what_is_no_text_is_a_mistake_of_the_programmer_and_named(name, action):
    env = gym.make(name, disable_env_checker=True)
    env.reset(seed=0)
    before = env.unwrapped.episode
    with pytest.raises(InvalidAction, match="wanted an action as text, got"):
        env.step(action)
    assert env.unwrapped.episode == before


IDS = ["tsr/Sokoban-v0", "tsr/FrozenLake-v0"]
TEXTS = ["grid", "coord", "grid_coord", "compact"]
BOARDS = ["array", "onehot", "rgb"]
LEVEL = "#######\n#@ $ .#\n#  $ .#\n#######"
CASES = [
    *[(name, {"obs_type": form}) for name in IDS for form in BOARDS],
    *[(name, {"obs_type": form, "action_type": "discrete"}) for name in IDS for form in TEXTS],
    *[(name, {"action_type": "discrete", "num_levels": 4, "max_actions": None}) for name in IDS],
    *[(name, {"action_type": "discrete", "preset": "tsr-code", "split": "train"}) for name in IDS],
    ("tsr/Sokoban-v0", {"obs_type": "array", "level": LEVEL, "shape": (6, 9), "reward_step": 0.5}),
    ("tsr/Sokoban-v0", {"obs_type": "onehot", "generator": "ragen", "split": "valid"}),
    ("tsr/Sokoban-v0", {"generator": "gym-sokoban"}),
    ("tsr/FrozenLake-v0", {"obs_type": "discrete", "map_name": "4x4", "is_slippery": False}),
    ("tsr/FrozenLake-v0", {"obs_type": "discrete", "noise": "shared"}),
]


@pytest.mark.parametrize(("name", "settings"), CASES, ids=str)
def test_a_form_keeps_both_contracts(name, settings):
    env = gym.make(name, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        check_env(env.unwrapped)
    check_snapshot(env, other_processes=False, seeds=(1,))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("tsr/Sokoban-v0", {"generator": "ragen", "split": "train"}),
        ("tsr/Sokoban-v0", {"generator": "gym-sokoban", "num_levels": 9}),
        ("tsr/FrozenLake-v0", {"num_levels": 9, "generator": "gymnasium"}),
    ],
    ids=str,
)
def test_numbered_and_published_instances_keep_the_contracts_of_text(name, settings):
    env = gym.make(name, **settings)
    check_text_env(env)
    check_snapshot(env, other_processes=False, seeds=(0,))


def test_single_environments_need_no_numba_and_batches_report_that_they_do():
    code = (
        "import sys; sys.modules['numba'] = None\n"
        "import gymnasium as gym, tsr_gym\n"
        f"for name in {IDS}:\n"
        "    for settings in ({}, {'obs_type': 'rgb', 'render_mode': 'rgb_array'}):\n"
        "        env = gym.make(name, **settings)\n"
        "        env.reset(seed=1); env.step(env.action_space.sample()); env.render()\n"
        "    try: gym.make_vec(name)\n"
        "    except tsr_gym.MissingExtra as error: print(error)\n"
    )
    lines = run_python(code).splitlines()
    assert len(lines) == 2
    assert all(line.endswith("pip install 'tsr-gym[envs]'") for line in lines)


@pytest.mark.parametrize("name", IDS)
def test_a_form_plays_equally_in_other_processes(name):
    check_snapshot(gym.make(name, obs_type="array"), seeds=(3,))


@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"obs_type": "array", "action_type": "text"}, "text actions need text observations"),
        ({"action_type": "continuous"}, r"wanted action_type of \['discrete', 'text'\]"),
        ({"action_type": "discrete", "max_turns": 5}, "each discrete action is a turn"),
        ({"obs_type": "rgb", "max_actions_per_turn": 2}, "each discrete action is a turn"),
        ({"obs_type": "rgba"}, r"wanted obs_type of \['array', 'compact', .*'rgb'\], got 'rgba'"),
    ],
    ids=str,
)
def test_forms_that_do_not_go_together_are_refused(name, settings, message):
    with pytest.raises(ConfigError, match=message):
        gym.make(name, **settings)


def test_a_valid_answer_has_no_reason_and_a_long_word_is_cut_in_its_own():
    for name, action in (("Sokoban", "Up || Left"), ("FrozenLake", "up"), ("WebShop", "search[mug]")):
        info = step(name, {}, action)
        assert (info["action_is_valid"], info["invalid_reason"]) == (True, "")
    assert step("RetrievalQA", {}, SHOWN)["invalid_reason"] == ""
    assert len(step("Sokoban", {}, "x" * 90_000)["invalid_reason"]) < 200


def test_the_format_of_answers_has_its_own_reasons():
    reasons = dict.fromkeys(
        ["Up", "<answer>Up</answer>"], "wanted <think>...</think><answer>...</answer>, with the action"
    )
    reasons["<think></think><answer></answer>"] = "the turn holds no action"
    reasons["<think></think><answer>go</answer>"] = "'go' is no action: write Up, Down, Left or Right"
    for text, reason in reasons.items():
        env = AnswerFormat(gym.make("tsr/Sokoban-v0"))
        env.reset(seed=0)
        info = env.step(text)[4]
        assert not info["action_is_valid"]
        assert info["invalid_reason"].startswith(reason)
        assert env.step(env.format("Up"))[4]["invalid_reason"] == ""
    env = AnswerFormat(gym.make("tsr/Sokoban-v0"), think=False)
    env.reset(seed=0)
    assert env.step("Up")[4]["invalid_reason"] == "wanted <answer>...</answer>, with the action in the answer"


@pytest.mark.parametrize("name", IDS)
def test_arrays_bring_discrete_actions_which_are_numbers_from_0_to_3(name):
    for settings in ({"obs_type": "array"}, {"action_type": "discrete"}):
        env = gym.make(name, **settings).unwrapped
        assert env.settings.obs_type == "array"
        assert env.action_space == gym.spaces.Discrete(4)
        assert env.limits.max_turns is None
        env.reset(seed=1)
        for action in (-1, 4):
            with pytest.raises(InvalidAction, match=f"from 0 to 3 .*got {action}"):
                env.step(action)


@pytest.mark.parametrize("name", IDS)
def test_the_text_form_and_the_discrete_form_are_one_game(name):
    same = {"split": "valid", "max_actions": 30}
    text = gym.make(name, max_turns=None, **same)
    discrete = gym.make(name, action_type="discrete", obs_type="grid", **same)
    rng = np.random.default_rng(1)
    for seed in range(10):
        assert text.reset(seed=seed)[0] == discrete.reset(seed=seed)[0]
        over = False
        while not over:
            action = int(rng.integers(4))
            seen, paid, *ends, info = text.step(text.unwrapped.actions[action])
            also_seen, also_paid, *also_ends, also_info = discrete.step(action)
            assert (seen, paid, ends) == (also_seen, also_paid, also_ends)
            assert all(info[key] == also_info[key] for key in ("success", "action_is_effective", "actions_left"))
            over = any(ends)


@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize("form", [{}, {"obs_type": "rgb"}], ids=str)
def test_pictures_show_the_tiles_of_the_board(name, form):
    shown = gym.make(name, render_mode="rgb_array", **form)
    text = gym.make(name)
    shown.reset(seed=3)
    frame = shown.render()
    rows = text.reset(seed=3)[0].split("\n")
    assert frame.shape == (32 * len(rows), 32 * len(rows[0]), 3)
    assert frame.dtype == np.uint8
    # Equal letters are equal tiles, different letters different ones.
    tiles = {}
    for row, line in enumerate(rows):
        for column, letter in enumerate(line):
            tile = frame[32 * row : 32 * row + 32, 32 * column : 32 * column + 32].tobytes()
            assert tiles.setdefault(letter, tile) == tile
    assert len(set(tiles.values())) == len(tiles) >= 3


@pytest.mark.parametrize("name", IDS)
def test_an_rgb_observation_is_the_picture_in_small(name):
    env = gym.make(name, obs_type="rgb", render_mode="rgb_array")
    observation, _ = env.reset(seed=1)
    assert np.array_equal(observation, env.render()[::4, ::4])
    env = gym.make(name, obs_type="onehot")
    codes = gym.make(name, obs_type="array").reset(seed=1)[0]
    planes = env.reset(seed=1)[0]
    assert np.array_equal(planes.argmax(axis=0), codes)
    assert (planes.sum(axis=0) == 1).all()


@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize("form", [{}, {"obs_type": "array"}], ids=str)
def test_ansi_shows_the_board_as_text(name, form):
    env = gym.make(name, render_mode="ansi", **form)
    env.reset(seed=2)
    assert env.render() == gym.make(name).reset(seed=2)[0]


@pytest.mark.parametrize("name", IDS)
def test_a_person_sees_a_window(name, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    env = gym.make(name, render_mode="human", action_type="discrete")
    env.reset(seed=1)
    before = tsr_gym.snapshot(env)
    env.step(0)
    tsr_gym.restore(env, before)
    env.close()
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(MissingExtra, match=r"pip install 'tsr-gym\[render\]'"):
        gym.make(name, render_mode="human")
