"""Play: compare episodes of two environments step by step, to prove that a copy is exact."""

import copy
import io
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from hashlib import blake2b
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from tsr_gym.foreign.freezing import Opaque, Uncopyable
from tsr_gym.foreign.generators import GlobalDraws, watched_globals
from tsr_gym.foreign.objects import attributes_of, frees
from tsr_gym.foreign.thawing import frozen, same

MAX_EXCERPT = 80
MAX_ELEMENTS = 1_000


class Fact(NamedTuple):
    """One result or attribute of an environment, for comparison.

    Attributes:
        what: Its description in messages, such as ``"the reward of step 2"``.
        value: The value to compare: a frozen value, or the digest of one.
        text: Its representation in messages; "" for that of `value`.
    """

    what: str
    value: Any
    text: str = ""


def difference(wanted: Iterable[Fact], got: Iterable[Fact]) -> str | None:
    """Return a description of the first difference between two series of facts; None if they are equal."""
    wanted, got = tuple(wanted), tuple(got)
    for expected, actual in zip(wanted, got, strict=False):
        if expected.what != actual.what:
            return f"wanted {expected.what}, got {actual.what}"
        if not same(expected.value, actual.value):
            texts = expected.text or text_of(expected.value), actual.text or text_of(actual.value)
            return f"{expected.what} differs: {_excerpts(*texts)}"
    # All common facts are equal, so the longer series has one more.
    if len(wanted) != len(got):
        extra = (wanted if len(wanted) > len(got) else got)[min(len(wanted), len(got))]
        return f"{extra.what} is {'missing' if len(wanted) > len(got) else 'new'}"
    return None


def text_of(value: object) -> str:
    """Return the representation of a value in messages."""
    # The representation of a large numpy array leaves out its middle, so equal texts could hide a difference.
    if isinstance(value, np.ndarray) and value.size > MAX_ELEMENTS:
        digest = blake2b(value.tobytes(), digest_size=4).hexdigest()
        return f"{value.dtype} array of shape {value.shape} with the digest {digest}"
    return repr(value)


def _excerpts(wanted: str, got: str) -> str:
    """Return excerpts of two texts around their first difference."""
    if wanted == got:
        return f"both read {wanted[:MAX_EXCERPT]}, but their types, bits or orders differ"
    same = next(
        (index for index, pair in enumerate(zip(wanted, got, strict=False)) if pair[0] != pair[1]),
        min(len(wanted), len(got)),
    )
    start = max(0, same - MAX_EXCERPT // 2)
    end = start + MAX_EXCERPT
    dots = "..." if start else ""
    return f"wanted {dots}{wanted[start:end]}, got {dots}{got[start:end]}"


NUM_STEPS = 6
NUM_SEQUENCES = 2
# Info keys under which environments report the wall clock, which a restore cannot set back.
CLOCK_NAMES = frozenset(
    {"t", "time", "times", "wall_time", "walltime", "wall_clock", "elapsed", "elapsed_time", "elapsed_seconds", "fps"}
    | {"timestamp", "step_time", "duration", "sps", "time_elapsed"}
)


class Raised(NamedTuple):
    """An exception of `step` or `reset`: its type name and its message."""

    kind: str
    message: str


class Standing(NamedTuple):
    """The state of an environment's generator."""

    generator: Any


PARTS = ("the observation", "the reward", "terminated", "truncated", "the info")


def without_clocks(info: Any) -> Any:
    """Return an info without its readings of the wall clock, at any depth."""
    if not isinstance(info, dict):
        return info
    return {name: without_clocks(item) for name, item in info.items() if name not in CLOCK_NAMES}


def as_fact(result: Any) -> Any:
    """Return the result of `step` or `reset` as a frozen value, without readings of the clock."""
    *parts, info = result
    return tuple([_frozen(_as_numpy(part)) for part in (*parts, without_clocks(info))])


def picture_fact(picture: Any) -> tuple[Any, ...]:
    """Return a result of `render` as a frozen value."""
    return (_frozen(_as_numpy(picture)),)


def _as_numpy(part: Any) -> Any:
    """Return a part of a result with the arrays of other libraries as numpy arrays, which have bytes."""
    cls = type(part)
    if cls is dict:
        return {name: _as_numpy(item) for name, item in part.items()}
    if cls in (list, tuple):
        return cls([_as_numpy(item) for item in part])
    if hasattr(cls, "__array__") and not isinstance(part, np.ndarray | np.generic):
        return np.array(part)
    return part


def _frozen(part: Any) -> Any:
    try:
        return frozen(part)
    except Uncopyable:
        return Opaque(part)


def actions_of(env: Any, seed: int, num_steps: int = NUM_STEPS) -> list[Any]:
    """Return sampled actions, drawn from a copy of the action space so that its generator does not move."""
    space = copy.deepcopy(env.action_space)
    space.seed(seed)
    return [space.sample() for _ in range(num_steps)]


def raised(error: Exception) -> Raised:
    """Return an exception as a fact: a foreign environment that raises must raise again on replay."""
    return Raised(type(error).__name__, str(error))


def step(env: Any, action: Any) -> Any:
    """Take an action and return the result as a fact. The environment may keep or change the action object."""
    try:
        return as_fact(env.step(action))
    except Exception as error:
        return raised(error)


def steps(env: Any, actions: Sequence[Any]) -> list[Any]:
    """Take actions until the episode ends, and return the results as facts."""
    results: list[Any] = []
    for action in actions:
        results.append(step(env, copy.deepcopy(action)))
        if isinstance(results[-1], Raised) or results[-1][2] or results[-1][3]:
            break
    return results


def reset(env: Any, seed: int | None, options: Any) -> Any:
    """Reset an environment and return the result as a fact."""
    try:
        return as_fact(env.reset(seed=seed, options=copy.deepcopy(options)))
    except Exception as error:
        return raised(error)


def facts(results: Sequence[Any]) -> Iterator[Fact]:
    """Yield the results of a play as facts, step by step and part by part."""
    for number, result in enumerate(results):
        if isinstance(result, Raised):
            yield Fact(f"step {number} raising {result.kind}: {result.message}", result)
        elif isinstance(result, Standing):
            yield Fact("the state of its generator afterwards", result.generator)
        else:
            parts = PARTS if len(result) == len(PARTS) else (PARTS[0], PARTS[-1])
            yield from [Fact(f"{name} of step {number}", part) for name, part in zip(parts, result, strict=True)]


def standing(env: Any) -> Standing:
    """Return the state of an environment's generator."""
    return Standing(frozen(attributes_of(env).get("_np_random")))


def positions_of_spaces(env: Any) -> Any:
    """Return the states of the generators of an environment's spaces."""
    waiting, positions = [env.action_space, env.observation_space], []
    while waiting:
        space = waiting.pop()
        positions.append(frozen(attributes_of(space).get("_np_random")))
        if isinstance(space, gym.spaces.Dict | gym.spaces.Tuple):
            waiting += space.spaces.values() if isinstance(space, gym.spaces.Dict) else space.spaces
    return positions


@contextmanager
def quietly() -> Iterator[GlobalDraws]:
    """Suppress what a play prints and warns, and restore the global generators after it."""
    with watched_globals() as drawn, warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield drawn


class Means(NamedTuple):
    """The three functions that read, write and copy environments of one type."""

    read: Callable[[Any], Any]
    write: Callable[[Any, Any], None]
    copy: Callable[[Any], Any]


def flaw_of(env: Any, means: Means) -> str | None:
    """Return the reason why an environment cannot be copied exactly; None if two copies played the same episodes.

    The proof plays sampled actions in two copies from the same state: both must show the same results and end in the
    same state. It must leave the original unchanged, and may not draw from generators outside of the environment.
    """
    name = type(env).__name__
    if frees(type(env)):
        return f"{name} frees a resource when it is deleted (__del__), and so would its copy"
    try:
        start = means.read(env)
        with quietly() as drawn:
            flaw = _flaw_of_copies(env, start, means)
        changed = difference(held(start), held(means.read(env)))
    except Uncopyable as error:
        return str(error)
    if drawn.names:
        return f"{name} draws from the global generator of {' and '.join(drawn.names)}, which is no part of it"
    if changed:
        flaw = f"playing a copy changed the original ({changed}): reset the original before you use it"
    return None if flaw is None else f"copies of {name} play different episodes: {flaw}"


def held(state: Any) -> list[Fact]:
    """Return the attributes of a captured state as facts."""
    return [Fact(f"the attribute {name}", state.attributes[name]) for name in sorted(state.attributes)]


def _flaw_of_copies(env: Any, start: Any, means: Means) -> str | None:
    first, second = means.copy(env), means.copy(env)
    last: Any = None
    moved = False
    # Without a generator the environment was not reset yet, so a play can only begin with a reset.
    seeded = attributes_of(env).get("_np_random") is not None
    for seed in range(NUM_SEQUENCES):
        # If the episode has ended or not begun, no action can be taken and only a reset helps.
        for anew in (False, True) if seeded else (True,):
            origin = _after_reset(first, start, seed, means) if anew else start
            if isinstance(origin, Raised):
                last = origin
                continue
            last, flaw = _compared(first, second, origin, seed, means)
            if flaw is not None:
                return flaw
            if not isinstance(last, Raised):
                moved = True
                break
    return None if moved else f"none of the sampled actions could be taken: {last}"


def _after_reset(twin: Any, start: Any, seed: int, means: Means) -> Any:
    """Return the state of a copy after a seeded reset from `start`, or the exception that the reset raised."""
    means.write(twin, start)
    result = reset(twin, seed, None)
    return result if isinstance(result, Raised) else means.read(twin)


def _compared(first: Any, second: Any, origin: Any, seed: int, means: Means) -> tuple[Any, str | None]:
    """Return the result of the first step, and how the plays of two copies differ; None if they are equal."""
    means.write(first, origin)
    # The same play runs three times: in the first copy, in the second one after another episode, and again in the
    # first.
    spaces = positions_of_spaces(first)
    results = _play(first, origin, seed, means)
    if not same(spaces, positions_of_spaces(first)):
        return results[0], "it draws from the generator of its space, which belongs to the caller that samples actions"
    # Play another episode in the second copy first: a restore must remove everything that it leaves behind.
    reset(second, seed + NUM_SEQUENCES, None)
    steps(second, actions_of(second, seed + NUM_SEQUENCES))
    wanted = [*facts(results)]
    flaw = difference(wanted, facts(_play(second, origin, seed, means)))
    if flaw is None and (changed := difference(held(means.read(first)), held(means.read(second)))):
        flaw = f"afterwards, {changed}"
    return results[0], flaw or difference(wanted, facts(_play(first, origin, seed, means)))


def _play(twin: Any, origin: Any, seed: int, means: Means) -> list[Any]:
    means.write(twin, origin)
    return [*steps(twin, actions_of(twin, seed)), standing(twin)]
