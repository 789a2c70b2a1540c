"""MiniGrid's environments, as they are and in words: snapshots by copies, after a proof. Not collected by itself;
`make test-gym-zoo` runs it.
"""

import gymnasium as gym
import pytest

from tsr_gym import env_support
from tsr_gym.testing import check_snapshot
from tsr_gym.wrappers import MiniGridText

gym.register_envs(pytest.importorskip("minigrid", reason="needs MiniGrid: make test-gym-zoo"))
NAMES = sorted(name for name, spec in gym.registry.items() if "minigrid.envs" in str(spec.entry_point))
# WFC generates by wave function collapse, and needs packages of its own.
NAMES = [name for name in NAMES if "WFC" not in name]
# One of each kind; the others differ in size.
KINDS = sorted({name.split("-")[1]: name for name in NAMES if name.startswith("MiniGrid-")}.values())


@pytest.mark.parametrize("name", NAMES)
def test_an_environment_is_proven_to_be_its_copies(name):
    env = gym.make(name)
    env.reset(seed=0)
    support = env_support(env)
    assert support.level == "deepcopy", support


@pytest.mark.parametrize("name", KINDS)
def test_snapshots_of_an_environment_in_words_are_exact(name):
    env = MiniGridText(gym.make(name))
    env.reset(seed=0)
    assert env_support(env).level == "deepcopy"
    check_snapshot(env, other_processes=False, seeds=(1,))


def test_the_words_are_those_of_the_view_of_a_known_room():
    env = MiniGridText(gym.make("MiniGrid-Empty-5x5-v0"))
    text, _ = env.reset(seed=0)
    assert text.split("\n")[0] == "Mission: get to the green goal square."
    walked = [env.step(word) for word in ("forward", "forward", "right", "forward", "forward")]
    assert walked[-2][0].split("\n")[2] == "You look south. In front of you: a green goal."
    assert walked[-1][2]
    assert walked[-1][1] > 0.9
