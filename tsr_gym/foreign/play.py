"""Playing environments that nobody else holds, and what they return as facts that compare."""

import copy
import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from tsr_gym.foreign.differences import Fact
from tsr_gym.foreign.frozen import Opaque, Uncopyable
from tsr_gym.foreign.generators import Drawn, watched_globals
from tsr_gym.foreign.objects import attributes_of
from tsr_gym.foreign.thawed import frozen

NUM_STEPS = 6
NUM_SEQUENCES = 2
# Names under which environments report the wall clock, which no restore turns back.
CLOCK_NAMES = frozenset(
    {"t", "time", "times", "wall_time", "walltime", "wall_clock", "elapsed", "elapsed_time", "elapsed_seconds", "fps"}
    | {"timestamp", "step_time", "duration", "sps", "time_elapsed"}
)


class Raised(NamedTuple):
    """A call of `step` or `reset` raised."""

    kind: str
    message: str


class Standing(NamedTuple):
    """Where the generator of an environment stands."""

    generator: Any


PARTS = ("the observation", "the reward", "terminated", "truncated", "the info")


def without_clocks(info: Any) -> Any:
    """Return an info without what it says of the wall clock."""
    if not isinstance(info, dict):
        return info
    return {name: without_clocks(item) for name, item in info.items() if name not in CLOCK_NAMES}


def as_fact(result: Any) -> Any:
    """Return what a call returned as a value that compares and that nobody changes."""
    *parts, info = result
    return tuple([_frozen(_as_numpy(part)) for part in (*parts, without_clocks(info))])


def picture_fact(picture: Any) -> tuple[Any, ...]:
    """Return what `render` returned as a value that compares and that nobody changes."""
    return (_frozen(_as_numpy(picture)),)


def _as_numpy(part: Any) -> Any:
    """Return a part with arrays of other libraries as arrays of numpy, which compare and have bytes."""
    kind = type(part)
    if kind is dict:
        return {name: _as_numpy(item) for name, item in part.items()}
    if kind in (list, tuple):
        return kind([_as_numpy(item) for item in part])
    if hasattr(kind, "__array__") and not isinstance(part, np.ndarray | np.generic):
        return np.array(part)
    return part


def _frozen(part: Any) -> Any:
    try:
        return frozen(part)
    except Uncopyable:
        return Opaque(part)


def actions_of(env: Any, seed: int, num_steps: int = NUM_STEPS) -> list[Any]:
    """Return sampled actions, without drawing from the environment's own space."""
    space = copy.deepcopy(env.action_space)
    space.seed(seed)
    return [space.sample() for _ in range(num_steps)]


def raised(error: Exception) -> Raised:
    """Return an error as a fact: what a foreign environment raises is what it does, and must repeat."""
    return Raised(type(error).__name__, str(error))


def step(env: Any, action: Any) -> Any:
    """Take an action of which the environment may keep what it is given, and return what came as a fact."""
    try:
        return as_fact(env.step(action))
    except Exception as error:
        return raised(error)


def steps(env: Any, actions: Sequence[Any]) -> list[Any]:
    """Take actions until the episode ends, and return what came as facts."""
    came: list[Any] = []
    for action in actions:
        came.append(step(env, copy.deepcopy(action)))
        if isinstance(came[-1], Raised) or came[-1][2] or came[-1][3]:
            break
    return came


def reset(env: Any, seed: int | None, options: Any) -> Any:
    """Reset an environment and return what came as a fact."""
    try:
        return as_fact(env.reset(seed=seed, options=copy.deepcopy(options)))
    except Exception as error:
        return raised(error)


def facts(came: Sequence[Any]) -> Iterator[Fact]:
    """Yield what a play brought, step by step and part by part, as it is compared."""
    for number, result in enumerate(came):
        if isinstance(result, Raised):
            yield Fact(f"step {number} raising {result.kind}: {result.message}", result)
        elif isinstance(result, Standing):
            yield Fact("where its generator stands afterwards", result.generator)
        else:
            parts = PARTS if len(result) == len(PARTS) else (PARTS[0], PARTS[-1])
            yield from [Fact(f"{name} of step {number}", part) for name, part in zip(parts, result, strict=True)]


def standing(env: Any) -> Standing:
    """Return where the generator of an environment stands."""
    return Standing(frozen(attributes_of(env).get("_np_random")))


def positions_of_spaces(env: Any) -> Any:
    """Return where the generators of an environment's spaces stand."""
    waiting, found = [env.action_space, env.observation_space], []
    while waiting:
        space = waiting.pop()
        found.append(frozen(attributes_of(space).get("_np_random")))
        if isinstance(space, gym.spaces.Dict | gym.spaces.Tuple):
            waiting += space.spaces.values() if isinstance(space, gym.spaces.Dict) else space.spaces
    return found


@contextmanager
def quietly() -> Iterator[Drawn]:
    """Keep what a play prints, warns of and draws from the global generators from everybody else."""
    with watched_globals() as drawn, warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield drawn
