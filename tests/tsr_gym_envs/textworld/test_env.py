"""TextWorld's games under our contract, compared with TextWorld's own environment."""

import gymnasium as gym
import numpy as np
import pytest

import tsr_gym
from tests.tsr_gym_envs.textworld.beside import compare
from tsr_gym import ConfigError, Snapshot
from tsr_gym.wrappers import TextWorldScore
from tsr_gym_envs.textworld.env import about
from tsr_gym_envs.textworld.games import child
from tsr_gym_envs.zmachine.child import Child, NoAnswer
from tsr_gym_envs.zmachine.machine import Machine

pytest.importorskip("textworld", reason="needs TextWorld: pip install 'tsr-gym[textworld]', or make test-textworld")

COOKING = {"game": "cooking", "level": 3, "num_games": 2}


def make(**settings):
    return gym.make("tsr/TextWorld-v0", disable_env_checker=True, **{**COOKING, **settings}).unwrapped


def test_random_commands_bring_what_textworld_says_they_bring(tmp_path, monkeypatch):
    # TextWorld's own interpreter writes transcripts where it stands.
    monkeypatch.chdir(tmp_path)
    assert compare(COOKING, 150, seed=1) == 150


def test_the_plan_wins_with_every_point_in_as_many_turns_as_it_says():
    env = make()
    env.reset(seed=0)
    plan, total = env.plan(env.state), 0.0
    for number, command in enumerate(plan):
        assert env.best_value(env.state, len(plan) - number, None) == 1.0
        assert env.best_value(env.state, len(plan) - number - 1, None) is None
        assert env.optimal_turn(env.state, None, None) in env.legal_actions(env.state)
        assert not env.is_success(env.state)
        *_, reward, terminated, _, info = env.step(command)
        total += reward
    assert terminated
    assert info["won"]
    assert info["success"]
    assert (info["points"], total) == (info["max_points"], pytest.approx(1.0))
    assert (info["progress"], env.best_value(env.state, 0, None), env.plan(env.state)) == (1.0, 1.0, None)


def test_away_from_the_walkthrough_there_is_a_plan_that_wins():
    env, rng = make(), np.random.default_rng(3)
    for seed in range(4):
        env.reset(seed=seed)
        for _ in range(6):
            legal = [name for name in env.legal_actions(env.state) if not name.startswith("eat")]
            env.step(legal[rng.integers(len(legal))])
        plan = env.plan(env.state)
        for command in plan or ():
            *_, info = env.step(command)
        assert plan
        assert info["won"]


def test_eating_an_ingredient_loses_the_game():
    env = make(level=1)
    env.reset(options={"game": 0}, seed=0)
    for _ in range(40):
        eaten = [name for name in env.legal_actions(env.state) if name.startswith("eat ")]
        command = eaten[0] if eaten else env.optimal_turn(env.state, None, None)
        _, reward, terminated, _, info = env.step(command)
        if terminated:
            break
    assert (info["lost"], info["won"], reward) == (True, False, 0.0)
    assert env.best_value(env.state, 9, None) == 0.0
    assert TextWorldScore(env).score(env.state, "", env.state, 0.0) == -1.0


def test_a_snapshot_takes_the_whole_game_back_as_bytes_too():
    env = make()
    env.reset(seed=5)
    rng = np.random.default_rng(1)
    for _ in range(5):
        legal = env.legal_actions(env.state)
        env.step(legal[rng.integers(len(legal))])
    snap = tsr_gym.snapshot(env)
    first = [env.step(command) for command in ("look", "inventory", "examine cookbook", "look")]
    tsr_gym.restore(env, Snapshot.from_bytes(snap.to_bytes()))
    assert [env.step(command) for command in ("look", "inventory", "examine cookbook", "look")] == first
    assert len(snap.to_bytes()) < 40_000


def test_games_are_made_once_and_alike_whatever_the_hashes_of_python(tmp_path):
    env = make()
    story = env.story(0)
    assert env.story(0) == story
    for number, seed in enumerate(("1", "77")):
        child = Child("tsr_gym_envs.textworld.games:operations")
        folder = tmp_path / str(number)
        folder.mkdir()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONHASHSEED", seed)
            options = {"recipe": 1, "take": 1, "cut": True, "go": 1, "open": True, "cook": False, "drop": False}
            child.ask("generate", folder, "cooking", {**options, "split": "train"}, 0)
        child.stop()
        assert about(folder / story.name) == about(story)
        assert Machine(folder / story.name).start.text == Machine(story).start.text


def test_observations_show_what_they_are_asked_for():
    texts = {mode: make(observation_mode=mode).reset(options={"game": 1}, seed=0)[0] for mode in ("feedback", "full")}
    assert texts["feedback"].startswith("You are hungry!")
    assert texts["full"] == f"{texts['feedback']}\n\nYou are carrying nothing."
    env = make(observation_mode="commands")
    shown = env.reset(options={"game": 1}, seed=0)[0]
    assert shown == f"{texts['full']}\n\nCommands: {', '.join(env.legal_actions(env.state))}"


def test_a_command_that_hangs_means_nothing_and_leaves_the_game_where_it_was(monkeypatch):
    env = make()
    env.reset(seed=0)
    before = env.state

    def hang(*asked, seconds):
        raise NoAnswer(f"step took more than {seconds:g} s")

    with monkeypatch.context() as patch:
        patch.setattr(child(), "ask", hang)
        *_, info = env.step("look")
    assert not info["action_is_valid"]
    assert info["invalid_reason"] == "the game cannot answer: step took more than 10 s"
    assert env.state == before
    assert env.step("look")[-1]["action_is_valid"]


def test_a_killed_interpreter_loads_the_game_anew_outside_of_the_time_of_the_command():
    env = make(max_seconds=0.1)
    env.reset(seed=0)
    for _ in range(3):
        child().stop()
        assert env.step("look")[-1]["action_is_valid"]


@pytest.mark.parametrize(
    ("options", "message"), [({"game": -1}, "wanted a game of"), ({"gmae": 1}, r"unknown options of reset \['gmae'\]")]
)
def test_a_game_that_is_not_there_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        make().reset(options=options)
