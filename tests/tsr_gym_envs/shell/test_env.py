"""The shell environment under the contracts of all worlds."""

import gymnasium as gym
import numpy as np
import pytest

import tsr_gym

pytest.importorskip("just_bash", reason="needs just-bash: pip install 'tsr-gym[shell]'")

from tests.conftest import deep, seeds
from tsr_gym import ConfigError, Snapshot, restore, snapshot
from tsr_gym.testing import check_snapshot, check_text_env
from tsr_gym.wrappers import ShellScore
from tsr_gym_envs.shell.teaching import shell_teaching

COMPACT = {"style": "words", "observation_mode": "compact", "depth": (1, 2)}
# Words of random command lines.
PIECES = (
    "ls", "cat *", "rm -r *", "mkdir -p x/y", "echo $RANDOM > r", "cd ..", "cd -", "x=$x$x; x=${x:-ab}",
    "sort -u * > s", "for i in 1 2 3; do echo $i >> n; done", "f() { echo f$1; }", "f 1", "mv * /tmp",
    "cp -r . /tmp/c", "chmod 600 *", "sed -i s/a/b/ *", "false", "set -e", "set +e", "ln -s a l",
    "awk '{ print rand() }' *", "seq 1e9", "alias q=ls", "q", "shuf *", "while :; do :; done", "no-such-command",
    "echo '", "exit 2", "find . | xargs wc -l", "grep -rn . | head -3",
)  # fmt: skip


@pytest.mark.parametrize(
    "settings", [COMPACT, *map(deep, [{"depth": (1, 8)}, {"observation_mode": "output"}])], ids=str
)
def test_the_shell_keeps_the_contracts(settings):
    env = gym.make("tsr/Shell-v0", **settings)
    check_text_env(env)
    check_snapshot(env)


@pytest.mark.parametrize("seed", seeds(2, 70))
def test_going_back_after_random_commands_leaves_no_trace(seed):
    rng = np.random.default_rng(seed)
    env, twin = (gym.make("tsr/Shell-v0", max_turns=None, max_steps=20_000, max_commands=50) for _ in range(2))
    env.reset(seed=seed)
    twin.reset(seed=seed)
    snap, trail = snapshot(env), []
    for _ in range(150):
        legal = env.unwrapped.legal_actions(env.unwrapped.state)
        command = str(rng.choice([*legal, *PIECES, *PIECES]))
        before = snapshot(env)
        first = env.step(command)
        # The same command again, from the snapshot's bytes.
        restore(env, Snapshot.from_bytes(before.to_bytes()) if rng.random() < 0.1 else before)
        assert env.step(command) == first
        trail.append((command, first))
        if first[2]:
            break
    # The other environment never went back.
    assert [twin.step(command) for command, _ in trail] == [result for _, result in trail]
    assert snapshot(twin).digest == snapshot(env).digest
    restore(env, snap)
    assert [env.step(command) for command, _ in trail[:9]] == [result for _, result in trail[:9]]


def test_an_episode_shows_the_task_and_ends_with_the_verdict():
    env = gym.make("tsr/Shell-v0", depth=2)
    shown, info = env.reset(seed=1, options={"task": 7})
    task = shown.partition("\n")[0]
    assert info["depth"] == 2
    assert info["task"] == 7
    shown, reward, ended, _, info = env.step("cat nowhere; cd /tmp")
    assert shown.startswith(f"{task}\n\n/tmp $ cat nowhere; cd /tmp\ncat: nowhere: No such file")
    assert (reward, ended, info["folder"]) == (0.0, False, "/tmp")
    state = env.unwrapped.state
    _, _, _, _, info = env.step("while true; do :; done")
    assert env.unwrapped.state is state
    assert (info["action_is_valid"], info["action_is_effective"]) == (False, False)
    assert "stopped" in info["invalid_reason"]
    shown, *_, info = env.step("ls-l")
    assert (info["action_is_valid"], info["invalid_reason"]) == (False, "bash: ls-l: command not found")
    assert "command not found" in shown
    assert env.unwrapped.state.session is state.session
    results = []
    while not results or not results[-1][2]:
        results.append(env.step(env.unwrapped.optimal_turn(env.unwrapped.state, None, None)))
    # The folder first, then the two commands of the plan.
    assert [result[1] for result in results] == [0.0, 0.0, 1.0]
    assert results[-1][4]["success"]


def test_scores_are_the_share_of_the_stated_conditions():
    env = ShellScore(gym.make("tsr/Shell-v0", **COMPACT | {"depth": 2}))
    env.reset(seed=4)
    base = env.unwrapped
    scores = [env.step(base.optimal_turn(base.state, None, None))[4]["score"] for _ in range(2)]
    assert scores == [pytest.approx(2 / 3), 1.0]
    env.reset(seed=4)
    assert env.step("rm -rf *")[4]["score"] < 0.5


def test_every_word_of_the_compact_form_is_in_the_vocabulary():
    teaching = shell_teaching()
    words = set(teaching.words)
    env = gym.make("tsr/Shell-v0", **teaching.env_settings)
    rng = np.random.default_rng(1)
    base = env.unwrapped
    for seed in range(30):
        text, _ = env.reset(seed=seed)
        assert set(text.split()) <= words
        turn = teaching.teacher_turn(base, rng)
        assert set(turn.split()) <= words
        assert len(turn.split()) <= teaching.max_tokens
        assert turn in base.legal_actions(base.state)
        text, _, _, _, info = env.step(teaching.poor_turn(base, rng) if seed % 2 else turn)
        assert info["action_is_valid"]
        assert set(text.split()) <= words, text


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"depth": 9}, "depth from 1 to 8"),
        ({"depth": (3, 2)}, "depth from 1 to 8"),
        ({"style": "x"}, "style of"),
        ({"split": "x"}, "split of"),
        ({"observation_mode": "x"}, "observation_mode of"),
        ({"max_steps": 0}, "max_steps"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        gym.make("tsr/Shell-v0", **settings)


def test_unknown_options_are_refused():
    env = gym.make("tsr/Shell-v0")
    for options in ({"tusk": 1}, {"task": "x"}, {"task": -1}):
        with pytest.raises(ConfigError):
            env.reset(options=options)
    assert tsr_gym.registration.env_class("shell").__name__ == "ShellEnv"
