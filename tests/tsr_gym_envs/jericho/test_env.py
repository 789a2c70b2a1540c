"""A story of the user's under our contract, compared with Jericho's own environment."""

import shutil
import warnings

import gymnasium as gym
import numpy as np
import pytest

import tsr_gym
from tsr_gym import ConfigError, MissingExtra, SnapshotError
from tsr_gym.testing import check_snapshot, check_text_env
from tsr_gym_envs.jericho.env import check_story

WITHOUT = "needs Jericho and TextWorld: make test-textworld"


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """A story that Jericho does not know: a game of TextWorld's under another name."""
    pytest.importorskip("textworld", reason=WITHOUT)
    folder = tmp_path_factory.mktemp("story")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TSR_GYM_CACHE", str(folder))
        made = gym.make("tsr/TextWorld-v0", game="coin_collector", level=3, num_games=1).unwrapped.story(0)
    return shutil.copy(made, folder / "story.z8")


@pytest.fixture(scope="module")
def known(story):
    """The same under a name by which Jericho knows it."""
    return shutil.copy(story, str(story).replace("story.z8", "tw-story.z8"))


def make(story, **settings):
    return gym.make("tsr/Jericho-v0", story=story, disable_env_checker=True, **settings).unwrapped


@pytest.mark.parametrize("dice", ["fresh", "story"])
def test_a_story_keeps_both_contracts_here_and_in_other_processes(story, dice):
    check_text_env(gym.make("tsr/Jericho-v0", story=str(story), dice=dice))
    check_snapshot(gym.make("tsr/Jericho-v0", story=str(story), dice=dice), seeds=(3,))


def test_commands_bring_what_jericho_says_they_bring_and_a_restore_takes_them_back(story):
    import jericho

    env = make(story, dice="story", max_turns=None)
    env.reset(seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = jericho.FrotzEnv(str(story), 1)
    text, _ = theirs.reset()
    assert env.state.text == text
    rng, kept = np.random.default_rng(2), None
    commands = (*env.legal_actions(env.state), "take coin", "examine me", "score")
    for number in range(400):
        if number % 40 == 7:
            kept = (env.snapshot(), theirs.get_state())
        elif kept and number % 40 == 29:
            env.restore(kept[0])
            theirs.set_state(kept[1])
        command = commands[rng.integers(len(commands) - 3)] if number % 5 else commands[-(number % 3) - 1]
        text = theirs.step(command)[0]
        *_, terminated, _, info = env.step(command)
        assert env.state.text == text
        if terminated:
            assert info["won"]
            env.restore(kept[0])
            theirs.set_state(kept[1])


def test_points_are_told_only_where_jericho_knows_the_story(story, known):
    told = {name: make(name).reset(seed=0)[1] for name in (story, known)}
    assert (told[story]["supported"], told[story]["points"], told[story]["max_points"]) == (False, None, None)
    assert (told[known]["supported"], told[known]["points"], told[known]["max_points"]) == (True, 0, 1)


@pytest.mark.parametrize("kind", ["story", "known"])
def test_winning_pays_once_and_ends_the_episode(kind, request):
    env = make(request.getfixturevalue(kind))
    env.reset(seed=0)
    walkthrough = gym.make("tsr/TextWorld-v0", game="coin_collector", level=3, num_games=1).unwrapped
    walkthrough.reset(seed=0)
    rewards = []
    for command in walkthrough.plan(walkthrough.state):
        _, reward, terminated, _, info = env.step(command)
        rewards.append(reward)
    assert rewards == [0.0] * (len(rewards) - 1) + [1.0]
    assert terminated
    assert info["won"]
    assert info["success"]


def test_fresh_dice_differ_by_seed_and_are_the_same_for_the_same(story):
    env = make(story)
    env.reset(seed=0)
    snap = env.snapshot()
    memories = []
    for seed in (1, 2, 1):
        tsr_gym.restore(env, snap, noise="fresh", seed=seed)
        env.step("look")
        memories.append(env.state.memory)
    assert memories[0] == memories[2] != memories[1]


def test_a_snapshot_of_another_story_is_refused(story, tmp_path):
    data = bytearray(story.read_bytes())
    # The story's serial number.
    data[0x12] ^= 1
    (tmp_path / "other.z8").write_bytes(data)
    env, other = make(story), make(tmp_path / "other.z8")
    env.reset(seed=0)
    other.reset(seed=0)
    with pytest.raises(SnapshotError, match="under other rules"):
        env.restore(other.snapshot())


def test_valid_actions_are_none_where_jericho_has_none(known):
    assert make(known, valid_actions=True).reset(seed=0)[1]["valid_actions"] is None


@pytest.mark.parametrize("data", [None, b"", b"no story" * 20, b"\0" * 64], ids=str)
def test_a_file_that_is_no_story_is_refused_before_anything_runs_it(data, tmp_path):
    path = tmp_path / "some.z5"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(ConfigError, match=r"no Z-machine story|wanted story=PATH"):
        check_story(path)


@pytest.mark.parametrize(
    ("name", "settings", "extra"), [("Jericho", {"story": "x.z5"}, "jericho"), ("TextWorld", {}, "textworld")]
)
def test_without_its_library_a_world_names_the_extra(name, settings, extra, monkeypatch):
    monkeypatch.setattr("tsr_gym.optional.find_spec", lambda package: None)
    with pytest.raises(MissingExtra, match=rf"pip install 'tsr-gym\[{extra}\]'"):
        gym.make(f"tsr/{name}-v0", **settings)


def test_the_tutorial_searches_a_story_and_returns_what_its_commands_bring(story):
    from examples.zork import explore

    path = explore(story, turns=3)
    assert len(path) == 3
    env = make(story)
    env.reset(seed=0)
    # Nothing in this story is left to chance, so played is what was imagined.
    assert [env.step(command)[0] for command, _ in path] == [answer for _, answer in path]
