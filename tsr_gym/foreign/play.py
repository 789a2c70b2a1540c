"""Play: episodes of two environments compared step by step, which proves a copy exact."""

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
    """One thing that an environment showed, or that it holds.

    Attributes:
        what: What it is, and whose.
        value: What it is compared by: a frozen value, or the digest of one.
        text: Its representation; that of the value where there is none.
    """

    what: str
    value: Any
    text: str = ""


def difference(wanted: Iterable[Fact], came: Iterable[Fact]) -> str | None:
    """Return the first difference between facts in words, None where there is none."""
    wanted, came = tuple(wanted), tuple(came)
    for one, other in zip(wanted, came, strict=False):
        if one.what != other.what:
            return f"wanted {one.what}, got {other.what}"
        if not same(one.value, other.value):
            texts = one.text or text_of(one.value), other.text or text_of(other.value)
            return f"{one.what} differs: {_excerpts(*texts)}"
    if len(wanted) != len(came):
        extra = (wanted if len(wanted) > len(came) else came)[min(len(wanted), len(came))]
        return f"{extra.what} is {'missing' if len(wanted) > len(came) else 'new'}"
    return None


def text_of(value: object) -> str:
    """Return how messages show a value."""
    # Numpy leaves out the middle of a large array, and prints all of a small one.
    if isinstance(value, np.ndarray) and value.size > MAX_ELEMENTS:
        digest = blake2b(value.tobytes(), digest_size=4).hexdigest()
        return f"{value.dtype} array of shape {value.shape} with the digest {digest}"
    return repr(value)


def _excerpts(wanted: str, came: str) -> str:
    """Return two texts cut to where they begin to differ."""
    if wanted == came:
        return f"both read {wanted[:MAX_EXCERPT]}, but their types, bits or orders differ"
    same = next(
        (index for index, pair in enumerate(zip(wanted, came, strict=False)) if pair[0] != pair[1]),
        min(len(wanted), len(came)),
    )
    start = max(0, same - MAX_EXCERPT // 2)
    end = start + MAX_EXCERPT
    dots = "..." if start else ""
    return f"wanted {dots}{wanted[start:end]}, got {dots}{came[start:end]}"


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
def quietly() -> Iterator[GlobalDraws]:
    """Keep what a play prints, warns of and draws from the global generators from everybody else."""
    with watched_globals() as drawn, warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield drawn


class Means(NamedTuple):
    """How environments of a kind are read, put back and copied."""

    read: Callable[[Any], Any]
    write: Callable[[Any, Any], None]
    copy: Callable[[Any], Any]


def flaw_of(env: Any, means: Means) -> str | None:
    """Return why an environment cannot be copied exactly, None where copies were seen to play alike."""
    name = type(env).__name__
    if frees(type(env)):
        return f"{name} frees something when it is deleted (__del__), so a copy of it would too"
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
        flaw = f"what a copy did changed the original ({changed}), which should be reset before it goes on"
    return None if flaw is None else f"copies of {name} do not play alike: {flaw}"


def held(state: Any) -> list[Fact]:
    """Return the attributes of a capture as facts."""
    return [Fact(f"the attribute {name}", state.attributes[name]) for name in sorted(state.attributes)]


def _flaw_of_copies(env: Any, start: Any, means: Means) -> str | None:
    one, other = means.copy(env), means.copy(env)
    last: Any = None
    moved = False
    seeded = attributes_of(env).get("_np_random") is not None
    for seed in range(NUM_SEQUENCES):
        # Where the episode has ended, or may not have begun, only a reset leads on.
        for anew in (False, True) if seeded else (True,):
            origin = _after_reset(one, start, seed, means) if anew else start
            if isinstance(origin, Raised):
                last = origin
                continue
            last, flaw = _compared(one, other, origin, seed, means)
            if flaw is not None:
                return flaw
            if not isinstance(last, Raised):
                moved = True
                break
    return None if moved else f"none of the sampled actions could be taken: {last}"


def _after_reset(twin: Any, start: Any, seed: int, means: Means) -> Any:
    """Return where a copy stands after a reset, so that the proof is the same one before and after it."""
    means.write(twin, start)
    result = reset(twin, seed, None)
    return result if isinstance(result, Raised) else means.read(twin)


def _compared(one: Any, other: Any, origin: Any, seed: int, means: Means) -> tuple[Any, str | None]:
    """Return what the first step of a play brought, and how plays of two copies differ, None where they do not."""
    means.write(one, origin)
    spaces = positions_of_spaces(one)
    came = _play(one, origin, seed, means)
    if not same(spaces, positions_of_spaces(one)):
        return came[0], "it draws from the generator of its own space, which belongs to whoever samples actions"
    # What another episode leaves behind must not be seen in this one.
    reset(other, seed + NUM_SEQUENCES, None)
    steps(other, actions_of(other, seed + NUM_SEQUENCES))
    wanted = [*facts(came)]
    flaw = difference(wanted, facts(_play(other, origin, seed, means)))
    if flaw is None and (changed := difference(held(means.read(one)), held(means.read(other)))):
        flaw = f"afterwards, {changed}"
    return came[0], flaw or difference(wanted, facts(_play(one, origin, seed, means)))


def _play(twin: Any, origin: Any, seed: int, means: Means) -> list[Any]:
    means.write(twin, origin)
    return [*steps(twin, actions_of(twin, seed)), standing(twin)]
