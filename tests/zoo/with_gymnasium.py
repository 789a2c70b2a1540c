"""Snapshots of Gymnasium's own environments and wrappers, and of ale-py's games: exact, or refused with the reason.

Run by `make test-gym-zoo`: every id alone; every wrapper around a representative of each family; 100 pairs of other ids
with wrappers, drawn with the seed 6; and 200 stacks of three wrappers, drawn with the seeds 0 to 199. With `--full`,
all pairs of ids and wrappers. A refusal must be a clean CheckFailed("unsupported"); an inexact stack or any other
error fails.
"""

import warnings
from collections.abc import Callable
from tempfile import gettempdir
from typing import Any, NamedTuple

import ale_py
import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces, wrappers
from gymnasium.envs.registration import parse_env_id

from tsr_gym import CheckFailed, Snapshot, env_support, replayable, restore, snapshot
from tsr_gym.foreign.mujoco import keep_contexts
from tsr_gym.testing import check_snapshot
from tsr_gym.testing.facts import returned

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
    """A wrapper does not accept an environment; the message states why."""


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
    # Gymnasium, its environments and their libraries may raise any exception.
    except Exception as error:
        raise DoesNotFit(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}") from error


gym.register_envs(ale_py)

FAMILIES = {
    "gymnasium.envs.classic_control": "classic control", "gymnasium.envs.box2d": "Box2D",
    "gymnasium.envs.toy_text": "toy text", "gymnasium.envs.mujoco": "MuJoCo", "gymnasium.envs.phys2d": "JAX",
    "gymnasium.envs.tabular": "JAX", "ale_py.env": "Atari",
}  # fmt: skip
# One or two of each family, with actions and observations of every type.
REPRESENTATIVES = (
    "CartPole-v1", "Pendulum-v1", "LunarLander-v3", "BipedalWalker-v3", "FrozenLake-v1", "Blackjack-v1", "Hopper-v5",
    "phys2d/CartPole-v1", "tabular/CliffWalking-v0", "ALE/Pong-v5",
)  # fmt: skip
# Ids that need a library outside of Gymnasium's extras.
NOT_GYMNASIUMS = ("GymV21Environment-v0", "GymV26Environment-v0")
NUM_PAIRS = 100
NUM_STACKS = 200
NUM_WRAPPERS = 3


# Short checks, for stacks of wrappers and for environments that are slow to make or to step.
SHORTLY = {"steps": 5, "seeds": (0,), "other_processes": False}
SLOW_FAMILIES = ("Atari", "JAX")
SLOW_IDS = ("CarRacing-v3",)


class Case(NamedTuple):
    """A stack of the zoo: wrappers are named from the inside out."""

    env_id: str
    wrappers: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return its name."""
        return " + ".join((self.env_id, *self.wrappers))


def newest_ids() -> list[str]:
    """Return the newest version of every id that Gymnasium and ale-py register."""
    newest: dict[tuple[str | None, str], str] = {}
    for env_id in sorted(gym.registry, key=lambda wrapper: parse_env_id(wrapper)[2] or 0):
        namespace, name, _ = parse_env_id(env_id)
        if namespace != "tsr":
            newest[namespace, name] = env_id
    return sorted(newest.values())


def family(env_id: str) -> str:
    """Return the family of an id."""
    entry = str(gym.registry[env_id].entry_point)
    return next((name for module, name in FAMILIES.items() if entry.startswith(module)), "other")


def is_old_atari(env_id: str) -> bool:
    """Return whether an id is an earlier name of a game that also stands under ALE/."""
    return family(env_id) == "Atari" and not env_id.startswith("ALE/")


def single_wrappers(full: bool) -> list[Case]:
    """Return environments under one wrapper: all pairs, or the representatives' and a sample of the others'."""
    others = {
        name: [Case(env_id, (wrapper,)) for env_id in ids if env_id not in REPRESENTATIVES for wrapper in MAKERS]
        for name, ids in members().items()
    }
    picked = [case for cases in others.values() for case in cases]
    if not full:
        rng = np.random.default_rng(6)
        share = NUM_PAIRS // len(others)
        picked = [
            cases[index]
            for cases in others.values()
            for index in sorted(rng.choice(len(cases), min(share, len(cases)), replace=False).tolist())
        ]
    return [Case(env_id, (wrapper,)) for env_id in REPRESENTATIVES for wrapper in MAKERS] + picked


def members() -> dict[str, list[str]]:
    """Return the ids of every family, without earlier names of the same games."""
    ids = [env_id for env_id in newest_ids() if env_id not in NOT_GYMNASIUMS and not is_old_atari(env_id)]
    return {name: [env_id for env_id in ids if family(env_id) == name] for name in FAMILIES.values()}


def random_stack(seed: int) -> Case:
    """Return a random environment of a random family under three random wrappers that fit."""
    rng = np.random.default_rng(seed)
    families = list(members().values())
    ids = families[int(rng.integers(len(families)))]
    case = Case(ids[int(rng.integers(len(ids)))])
    names = list(MAKERS)
    while len(case.wrappers) < NUM_WRAPPERS:
        longer = case._replace(wrappers=(*case.wrappers, names[int(rng.integers(len(names)))]))
        try:
            expect_fit(*longer)
        except DoesNotFit:
            continue
        case = longer
    return case


pytestmark = pytest.mark.filterwarnings("ignore")


def pytest_generate_tests(metafunc):
    if "case" in metafunc.fixturenames:
        full = metafunc.config.getoption("--full")
        metafunc.parametrize("case", single_wrappers(full), ids=str)


@pytest.mark.parametrize("env_id", newest_ids())
def test_every_id_is_exact_or_refused(env_id, outcome, request):
    full = request.config.getoption("--full")
    group = "earlier Atari ids" if is_old_atari(env_id) else family(env_id)
    try:
        env = gym.make(env_id)
    except (gym.error.Error, ImportError) as error:
        assert env_id in NOT_GYMNASIUMS
        outcome(group, env_id, "not built", str(error))
        return
    if env_id in REPRESENTATIVES or (family(env_id) not in SLOW_FAMILIES and env_id not in SLOW_IDS):
        check(outcome, group, env_id, env)
    elif is_old_atari(env_id) and not full:
        expect_continuation(outcome, group, env_id, env)
    else:
        check(outcome, group, env_id, env, **SHORTLY)


def test_every_wrapper_is_exact_or_refused(case, outcome):
    try:
        expect_fit(*case)
    except DoesNotFit as error:
        outcome("one wrapper", str(case), "does not fit", str(error))
        return
    check_stack(outcome, "one wrapper", case)


@pytest.mark.parametrize("seed", range(NUM_STACKS))
def test_every_random_stack_is_exact_or_refused(seed, outcome):
    check_stack(outcome, "three wrappers", random_stack(seed))


def expect_continuation(outcome, group, env_id, env):
    """Restore a game once: under its earlier names it has other defaults than under ALE/, where it is checked."""
    support = env_support(env)
    env = replayable(env) if support.level == "replay" else env
    env.reset(seed=0)
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(8)]
    for action in actions[:4]:
        env.step(action)
    snap = Snapshot.from_bytes(snapshot(env).to_bytes())
    went_on = [returned(env, env.step(action)) for action in actions[4:]]
    restore(env, snap)
    again = [returned(env, env.step(action)) for action in actions[4:]]
    outcome(group, env_id, support.level if again == went_on else "inexact", support.reason)
    assert again == went_on


def check_stack(outcome, group, case):
    check(outcome, group, str(case), make(*case), factory=lambda: make(*case), **SHORTLY)


def check(outcome, group, name, env, **how):
    """Check a stack and record the outcome."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        env.reset(seed=0)
        support = env_support(env)
        try:
            check_snapshot(env, **how)
        except CheckFailed as error:
            if error.check != "unsupported":
                outcome(group, name, "inexact", str(error))
                raise
            outcome(group, name, "refused", str(error))
            if support.level != "none":
                raise
            return
    outcome(group, name, support.level, support.reason)
