"""Another environment made in the same way, and the same one made anew."""

import gymnasium as gym
import pytest

from tests.tsr_gym.foreign import worlds
from tsr_gym import SnapshotError
from tsr_gym.foreign.objects import can_remake, fresh, remake


def test_a_spec_or_the_arguments_of_the_constructor_make_another_one():
    lake = gym.make("FrozenLake-v1", is_slippery=False).unwrapped
    other = fresh(lake)
    assert type(other) is type(lake)
    assert (other.P, other.spec.kwargs) == (lake.P, lake.spec.kwargs)
    assert other is not lake
    assert fresh(worlds.RemembersItsArguments(bonus=7)).bonus == 7


def test_a_window_is_left_out_where_nobody_shall_see_it():
    env = worlds.RemembersItsArguments(render_mode="rgb_array")
    assert fresh(env).render_mode == "rgb_array"
    assert fresh(env, unseen=True).render_mode is None


def test_a_factory_as_entry_point_is_called_and_its_wrappers_are_left_out():
    def factory(bonus):
        return gym.wrappers.TimeLimit(worlds.RemembersItsArguments(bonus), 3)

    env = gym.make(gym.envs.registration.EnvSpec("Made-v0", entry_point=factory, kwargs={"bonus": 4})).unwrapped
    assert fresh(env).bonus == 4
    assert not can_remake(env)


def test_nobody_knows_how_to_make_it_or_it_cannot_be_made():
    with pytest.raises(SnapshotError, match="nobody knows how this Plain was made"):
        fresh(worlds.Plain())

    class Once(worlds.RemembersItsArguments):
        made = 0

        def __init__(self):
            type(self).made += 1
            if type(self).made > 1:
                raise OSError("the port is taken")
            super().__init__()
            self._ezpickle_args = ()
            self._ezpickle_kwargs = {}

    env = Once()
    env.reset(seed=1)
    with pytest.raises(SnapshotError, match="another Once could not be made: the port is taken"):
        fresh(env)
    held = dict(vars(env))
    with pytest.raises(SnapshotError, match="Once could not be made again"):
        remake(env)
    assert vars(env) == held


def test_an_environment_that_is_made_anew_keeps_generator_spaces_and_arguments():
    env = worlds.RemembersItsArguments(bonus=5)
    env.reset(seed=1)
    env.episode_only = 1
    space, generator = env.action_space, env.np_random
    remake(env)
    assert (env.position, env.bonus) == (0, 5)
    assert "episode_only" not in vars(env)
    assert env.action_space is space
    assert env.np_random is generator
