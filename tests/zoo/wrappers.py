"""Gymnasium's wrappers with sensible arguments, and which of them an environment accepts."""

import warnings
from collections.abc import Callable
from tempfile import gettempdir
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces, wrappers

from tsr_gym.foreign.mujoco import keep_contexts

PLAYED = 6
MAX_CELLED = 400
RENDERS = frozenset(
    {"AddRenderObservation", "AddWhiteNoise", "HumanRendering", "ObstructView", "RecordVideo", "RenderCollection"}
)


def _to_jax(env):
    import jax.numpy

    return wrappers.ArrayConversion(env, np, jax.numpy)


def _some_keys(env):
    space = env.observation_space
    if isinstance(space, spaces.Dict):
        return wrappers.FilterObservation(env, list(space)[:-1] or list(space))
    if isinstance(space, spaces.Tuple):
        return wrappers.FilterObservation(env, list(range(len(space) - 1)))
    raise TypeError(f"nothing to filter in {type(space).__name__}")


def _unit_box(env):
    space = env.observation_space
    if not (isinstance(space, spaces.Box) and space.is_bounded()):
        raise TypeError("only bounded observations can be rescaled")
    low = np.zeros(space.shape, space.dtype)
    return wrappers.RescaleObservation(env, low, low + space.dtype.type(1))


def _in_cells(env):
    if int(np.prod(env.observation_space.shape or ())) > MAX_CELLED:
        raise TypeError("the cells of pictures have numbers with thousands of digits")
    return wrappers.DiscretizeObservation(env, 5)


def _with_time(env):
    limited = env.spec is not None and env.spec.max_episode_steps
    return wrappers.TimeAwareObservation(env if limited else wrappers.TimeLimit(env, 20))


def _without_flipped_pictures(env):
    if _is_mujoco(env.unwrapped.spec.id) and env.unwrapped.render_mode is not None:
        raise TypeError("PyTorch aborts the process over MuJoCo's pictures, which have negative strides")
    return env


def _is_mujoco(env_id):
    return "envs.mujoco" in str(gym.registry[env_id].entry_point)


def _at_once(env):
    made = wrappers.HumanRendering(env)
    made.metadata = {**made.metadata, "render_fps": 10**6}
    return made


MAKERS: dict[str, Callable[[gym.Env[Any, Any]], gym.Env[Any, Any]]] = {
    "AddRenderObservation": wrappers.AddRenderObservation,
    "AddWhiteNoise": lambda env: wrappers.AddWhiteNoise(env, 0.3),
    "ArrayConversion": _to_jax,
    "AtariPreprocessing": lambda env: wrappers.AtariPreprocessing(env, noop_max=3),
    "Autoreset": wrappers.Autoreset,
    "ClipAction": wrappers.ClipAction,
    "ClipReward": lambda env: wrappers.ClipReward(env, -0.5, 0.5),
    "DelayObservation": lambda env: wrappers.DelayObservation(env, 2),
    "DiscretizeAction": lambda env: wrappers.DiscretizeAction(env, 3),
    "DiscretizeObservation": _in_cells,
    "DtypeObservation": lambda env: wrappers.DtypeObservation(env, np.float64),
    "FilterObservation": _some_keys,
    "FlattenObservation": wrappers.FlattenObservation,
    "FrameStackObservation": lambda env: wrappers.FrameStackObservation(env, 3),
    "GrayscaleObservation": wrappers.GrayscaleObservation,
    "HumanRendering": _at_once,
    "JaxToNumpy": lambda env: wrappers.JaxToNumpy(env),
    "JaxToTorch": lambda env: wrappers.JaxToTorch(_without_flipped_pictures(env)),
    "MaxAndSkipObservation": lambda env: wrappers.MaxAndSkipObservation(env, 2),
    "NormalizeObservation": wrappers.NormalizeObservation,
    "NormalizeReward": wrappers.NormalizeReward,
    "NumpyToTorch": lambda env: wrappers.NumpyToTorch(_without_flipped_pictures(env)),
    "ObstructView": lambda env: wrappers.ObstructView(env, 0.3, 8),
    "OrderEnforcing": wrappers.OrderEnforcing,
    "PassiveEnvChecker": wrappers.PassiveEnvChecker,
    "RecordEpisodeStatistics": wrappers.RecordEpisodeStatistics,
    "RecordVideo": lambda env: wrappers.RecordVideo(env, gettempdir(), episode_trigger=lambda episode: False),
    "RenderCollection": wrappers.RenderCollection,
    "RepeatAction": lambda env: wrappers.RepeatAction(env, 2),
    "RescaleAction": lambda env: wrappers.RescaleAction(env, np.float32(0), np.float32(1)),
    "RescaleObservation": _unit_box,
    "ReshapeObservation": lambda env: wrappers.ReshapeObservation(env, (int(np.prod(env.observation_space.shape)), 1)),
    "ResizeObservation": lambda env: wrappers.ResizeObservation(env, (24, 32)),
    "StickyAction": lambda env: wrappers.StickyAction(env, 0.4, (1, 3)),
    "TimeAwareObservation": _with_time,
    "TimeLimit": lambda env: wrappers.TimeLimit(env, 5),
    "TransformAction": lambda env: wrappers.TransformAction(env, lambda action: action, None),
    "TransformObservation": lambda env: wrappers.TransformObservation(env, lambda observation: observation, None),
    "TransformReward": lambda env: wrappers.TransformReward(env, lambda reward: 2 * reward - 1),
}


class DoesNotFit(Exception):
    """A wrapper does not accept an environment; the message says why."""


def make(env_id: str, names: tuple[str, ...]) -> gym.Env[Any, Any]:
    """Return an environment under wrappers, the first named innermost."""
    settings: dict[str, Any] = {}
    if RENDERS & set(names):
        settings["render_mode"] = "rgb_array"
        if _is_mujoco(env_id):
            settings |= {"width": 64, "height": 48}
    if "AtariPreprocessing" in names:
        # The wrapper skips frames itself.
        settings["frameskip"] = 1
    env = gym.make(env_id, **settings)
    for name in names:
        env = MAKERS[name](env)
    return env


def expect_fit(env_id: str, names: tuple[str, ...]) -> None:
    """Raise DoesNotFit unless Gymnasium itself can make a stack and play a few steps in it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            env = make(env_id, names)
            keep_contexts(env.unwrapped)
            env.action_space.seed(0)
            env.reset(seed=0)
            for _ in range(PLAYED):
                _, _, terminated, truncated, _ = env.step(env.action_space.sample())
                if terminated or truncated:
                    env.reset()
            env.close()
    # Whatever Gymnasium, its environments and their libraries raise.
    except Exception as error:
        raise DoesNotFit(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}") from error
