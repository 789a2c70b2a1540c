"""Trial: one environment under test, how an equal one is made here and in other processes, and its recordings."""

import base64
import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import FunctionType
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from tsr_gym.codec import encode
from tsr_gym.errors import CheckFailed
from tsr_gym.foreign.adapters import adapter_of
from tsr_gym.foreign.mujoco import MujocoAdapter, keep_contexts
from tsr_gym.foreign.play import Fact, difference
from tsr_gym.optional import load
from tsr_gym.stack import env_support, replayable
from tsr_gym.testing.facts import is_own, layers_of, name_of
from tsr_gym.testing.recording import Recording, has_bytes

Factory = Callable[[], gym.Env[Any, Any]]


class Recipe(NamedTuple):
    """How to make an environment again.

    Attributes:
        build: Makes one in this process.
        order: The job for another process: ``{"factory": "module:name"}`` or ``{"spec": JSON}``, and
            ``"replayable": True`` if it needs a recorder; None if another process cannot make it.
    """

    build: Factory
    order: dict[str, Any] | None


def build(order: dict[str, Any]) -> gym.Env[Any, Any]:
    """Make the environment of an order."""
    if "factory" in order:
        factory: Any = load(order["factory"])
        made: gym.Env[Any, Any] = factory()
    else:
        made = gym.make(EnvSpec.from_json(order["spec"]))
    return replayable(made) if order.get("replayable") else made


def supported(env: gym.Env[Any, Any], recipe: Recipe, seed: int) -> tuple[gym.Env[Any, Any], Recipe]:
    """Return an environment and its recipe, with a recorder if snapshots need one. The environment is reset.

    Raises:
        CheckFailed: It has no exact snapshots; the message states why.
    """
    # Some attributes of environments exist only after a reset.
    env.reset(seed=seed)
    support = env_support(env)
    if support.level == "none":
        raise CheckFailed("unsupported", f"{name_of(env.unwrapped)} has no exact snapshots: {support.reason}")
    if support.level != "replay":
        return env, recipe
    order = recipe.order and {**recipe.order, "replayable": True}
    return replayable(env), Recipe(lambda: replayable(recipe.build()), order)


def recipe_of(env: gym.Env[Any, Any], factory: Factory | str | None) -> Recipe:
    """Return how to make an environment again.

    Args:
        env: The environment.
        factory: The function that makes it: a function of a module, or its name as ``"module:name"``; None uses
            ``env.spec``.

    Raises:
        CheckFailed: There is neither a spec nor a factory, or what they make is not the same stack.
    """
    made = _from_spec(env) if factory is None else _from_factory(factory)
    recipe = made._replace(build=lambda: _kept_apart(made.build()))
    wanted, got = _names(env), _names(recipe.build())
    if wanted != got:
        raise CheckFailed(
            "rebuild",
            f"wanted {' < '.join(wanted)} again, got {' < '.join(got)}: pass factory=, a function that makes it",
        )
    return recipe


def _kept_apart(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    keep_contexts(env.unwrapped)
    return env


def _names(env: gym.Env[Any, Any]) -> list[str]:
    return [name_of(layer) for layer in layers_of(env)]


def _from_factory(factory: Factory | str) -> Recipe:
    if isinstance(factory, str):
        order = {"factory": factory}
        return Recipe(lambda: build(order), order)
    path = _path_of(factory)
    return Recipe(factory, None if path is None else {"factory": path})


def _path_of(factory: Any) -> str | None:
    """Return the name under which another process can import a function or class; None if it cannot."""
    if not isinstance(factory, FunctionType | type) or factory.__module__ == "__main__":
        return None
    module = sys.modules.get(factory.__module__)
    is_importable = module is not None and vars(module).get(factory.__qualname__) is factory
    return f"{factory.__module__}:{factory.__qualname__}" if is_importable else None


def _from_spec(env: gym.Env[Any, Any]) -> Recipe:
    if env.spec is None:
        raise CheckFailed(
            "rebuild",
            f"{name_of(env)} has no spec, so it cannot be made again: make it with gym.make, or pass factory=, a "
            "function of a module that makes it",
        )
    spec = env.spec

    def again() -> gym.Env[Any, Any]:
        try:
            made: gym.Env[Any, Any] = gym.make(spec)
        except (ValueError, TypeError, gym.error.Error) as error:
            raise CheckFailed("rebuild", f"gym.make(env.spec) failed ({error}): pass factory=") from error
        return made

    try:
        return Recipe(again, {"spec": _named(spec).to_json()})
    except (ValueError, TypeError):
        return Recipe(again, None)


def _named(spec: EnvSpec) -> EnvSpec:
    """Return a spec with the name of its entry point in place of the class or function, if it is importable."""
    path = _path_of(spec.entry_point)
    if path is None:
        return spec
    named = copy.deepcopy(spec)
    named.entry_point = path
    return named


# Gymnasium's wrappers that keep state of earlier episodes across a reset.
_REMEMBER = (gym.wrappers.MaxAndSkipObservation, gym.wrappers.NormalizeObservation, gym.wrappers.NormalizeReward)


@dataclass(frozen=True, slots=True)
class Trial:
    """The argument of a rule about snapshots.

    Attributes:
        env: The stack under test.
        recipe: How to make it again.
        recordings: One episode per seed.
        steps: Most turns of an episode.
    """

    env: gym.Env[Any, Any]
    recipe: Recipe
    recordings: tuple[Recording, ...]
    steps: int

    @property
    def name(self) -> str:
        """The name of the environment in messages."""
        return name_of(self.env.unwrapped)

    @property
    def own(self) -> bool:
        """Whether the environment is a `StateEnv`, for which more rules apply."""
        return is_own(self.env)

    @property
    def has_bytes(self) -> bool:
        """Whether all recorded snapshots have a byte form."""
        return all(has_bytes(snap) for recording in self.recordings for snap in recording.snapshots)

    @property
    def starts_afresh(self) -> bool:
        """Whether a reset removes all state of earlier episodes; otherwise only restores are compared."""
        layers = layers_of(self.env)
        if any(isinstance(layer, _REMEMBER) for layer in layers):
            return False
        # MuJoCo's camera stays where the very first picture was taken.
        pictured = any(isinstance(layer, gym.wrappers.AddRenderObservation) for layer in layers)
        return not (pictured and isinstance(adapter_of(layers[-1]), MujocoAdapter))


HASH_SEEDS = ("1", "2")
TIMEOUT = 120


def other_processes_replay(trial: Trial) -> None:
    """Two processes with other hash seeds restore the bytes and play from the seed as recorded."""
    if trial.recipe.order is None:
        raise CheckFailed(
            "other_process",
            f"another process cannot make {trial.name} again: pass factory= as a function of a module or its name "
            "'module:name', or switch this part off with other_processes=False",
        )
    work = [(recording, turn) for recording in trial.recordings[:2] for turn in recording.points]
    job = json.dumps({"order": trial.recipe.order, "episodes": [_order(trial, *item) for item in work]})
    with ThreadPoolExecutor(len(HASH_SEEDS)) as pool:
        answers = list(pool.map(lambda hash_seed: _answer(hash_seed, job, trial), HASH_SEEDS))
    own = is_own(trial.env)
    for hash_seed, answer in zip(HASH_SEEDS, answers, strict=True):
        story = f"{trial.name} in another process (PYTHONHASHSEED={hash_seed})"
        for (recording, turn), episode in zip(work, answer, strict=True):
            _expect_same(recording, turn, episode["restored"], f"{story}, restored to turn {turn}")
            # After a reset, a foreign environment may keep unused data of earlier episodes.
            _expect_same(recording, 0, episode["reset"], f"{story}, after reset(seed={recording.seed})", standing=own)


def _order(trial: Trial, recording: Recording, turn: int) -> dict[str, Any]:
    snap = recording.snapshots[turn]
    return {
        "seed": recording.seed,
        "turn": turn,
        "snapshot": base64.b64encode(snap.to_bytes()).decode() if has_bytes(snap) else None,
        "reset": turn == 0 and trial.starts_afresh,
        "actions": base64.b64encode(encode(recording.actions)).decode(),
    }


def _answer(hash_seed: str, job: str, trial: Trial) -> list[dict[str, Any]]:
    # The child must find the same modules, also those of the current folder, which sys.path may hold as "".
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
    try:
        child = subprocess.run(
            [sys.executable, "-m", "tsr_gym.testing.replay_child"],
            input=job,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": paths},
        )
    except subprocess.TimeoutExpired as error:
        raise CheckFailed("other_process", f"{trial.name} took over {TIMEOUT} s in another process") from error
    if child.returncode:
        tail = "\n".join(child.stderr.strip().splitlines()[-3:])
        raise CheckFailed("other_process", f"{trial.name} cannot be replayed in another process: {tail}")
    answer: list[dict[str, Any]] = json.loads(child.stdout)
    return answer


def _expect_same(
    recording: Recording, turn: int, shots: list[list[list[list[str]]]], story: str, *, standing: bool = True
) -> None:
    for number, shot in enumerate(shots, start=turn):
        stands, returned = (tuple(Fact(*fields) for fields in facts) for facts in shot)
        wanted = recording.shots[number]
        text = difference(wanted.standing, stands) if standing else None
        # The first shot after a restore has no results, because neither reset() nor step() was called.
        if returned and not text:
            text = difference(wanted.returned, returned)
        if text:
            raise CheckFailed(
                "other_process",
                f"{story}, turn {number}: {text}. Likely the order of a set, or hash(): sort before use",
            )
