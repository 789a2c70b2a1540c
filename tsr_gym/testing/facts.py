"""Facts: the results of an environment in a form that can be compared here and across processes.

Two facts are equal exactly if the canonical bytes of the values that they describe are equal. This file also watches
what a process shares: the global random generators and the clocks. It is the one file that touches the module `random`
and numpy's legacy generator, because it detects environments that use them.
"""

import datetime
import inspect
import itertools
import random
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from functools import lru_cache, partial
from hashlib import blake2b
from operator import attrgetter
from types import BuiltinFunctionType, FrameType, MemberDescriptorType, ModuleType
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from tsr_gym.codec import digest
from tsr_gym.errors import CheckFailed, SnapshotError
from tsr_gym.foreign.play import CLOCK_NAMES, Fact, text_of, without_clocks
from tsr_gym.random_stream import RandomStream, canonical, position_of
from tsr_gym.snapshots import Deferred, EnvState, Layer, Snapshot
from tsr_gym.stack import snapshot
from tsr_gym.state_env import StateEnv

GENERATORS = (np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random)
CLOCKS = ("time", "monotonic", "perf_counter", "process_time")
_EPOCH = 1_700_000_000
_NOT_TO_BLAME = ("random", "numpy", "tsr_gym.testing")


def position_of_any(value: Any) -> Any:
    """Return the state of a generator, of any class in `GENERATORS`."""
    if isinstance(value, np.random.Generator):
        return position_of(value)
    if isinstance(value, np.random.BitGenerator):
        return value.state
    return value.getstate() if isinstance(value, random.Random) else value.get_state()


def global_random_state() -> tuple[Any, ...]:
    """Return the states of the global generators of `random` and `numpy.random`, as a comparable value."""
    name, key, *rest = np.random.get_state()  # noqa: NPY002
    return random.getstate(), name, np.asarray(key).tobytes(), *rest


@contextmanager
def global_seed(seed: int) -> Iterator[None]:
    """Seed the global generators, and restore their states at the end."""
    before, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002
    random.setstate(random.Random(seed).getstate())
    np.random.set_state(np.random.RandomState(seed).get_state())  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(before)
        np.random.set_state(legacy)  # noqa: NPY002


def who_draws(play: Callable[[], object]) -> list[str]:
    """Return the functions that advance a global generator while `play` runs, in order of first use."""
    functions: dict[str, None] = {}
    last = global_random_state()

    def watch(frame: FrameType, event: str, arg: object) -> None:
        nonlocal last
        now = global_random_state()
        if now != last:
            # At a call event the frame is the function that is entered, and its caller ran until then.
            functions[_blamed(frame.f_back if event == "call" else frame)] = None
            last = now

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        play()
    finally:
        sys.setprofile(before)
    return list(functions)


@contextmanager
def shifted_clocks(modules: set[ModuleType], hours: int) -> Iterator[list[str]]:
    """Replace the clocks by clocks that start at a fixed time plus `hours`, and tick at every reading.

    Args:
        modules: Modules that may have imported a clock by name; `time` and `datetime` are always changed.
        hours: The shift, in hours.

    Yields:
        The functions that read a clock, added as they do; Gymnasium's are left out.
    """
    readers: list[str] = []
    start = _EPOCH + 3600 * hours
    fakes: dict[Any, Any] = {datetime.datetime: _late_datetime(start, readers)}
    for name in CLOCKS:
        fakes[vars(time)[name]] = _ticking(float(start), 0.001, readers)
        fakes[vars(time)[f"{name}_ns"]] = _ticking(start * 10**9, 10**6, readers)
    classes = (type, BuiltinFunctionType)
    places = [
        (vars(module), name, value)
        for module in {time, datetime, *modules}
        for name, value in vars(module).items()
        if isinstance(value, classes) and value in fakes
    ]
    for where, name, value in places:
        where[name] = fakes[value]
    try:
        yield readers
    finally:
        for where, name, value in places:
            where[name] = value


def _ticking(start: float, tick: float, readers: list[str]) -> Callable[[], float]:
    now = start

    def clock() -> float:
        nonlocal now
        now += tick
        _note(readers)
        return now

    return clock


def _late_datetime(start: float, readers: list[str]) -> type:
    class LateDatetime(datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            _note(readers)
            return cls.fromtimestamp(start, tz)

    return LateDatetime


def _note(readers: list[str]) -> None:
    frame = sys._getframe(2)
    name = _blamed(frame)
    if name not in readers and not str(frame.f_globals.get("__name__")).startswith("gymnasium."):
        readers.append(name)


def _blamed(frame: FrameType | None) -> str:
    """Return the innermost function outside of the libraries, with its file and line."""
    where = frame
    while where is not None and str(where.f_globals.get("__name__")).startswith(_NOT_TO_BLAME):
        where = where.f_back
    where = where or frame
    if where is None:
        return "an unknown function"
    return f"{where.f_code.co_qualname} ({where.f_code.co_filename}:{where.f_lineno})"


ATOMS = (type(None), bool, int, float, complex, str, bytes, np.generic, Enum)
EVERYTHING = 10**9


def is_code(value: Any) -> bool:
    """Return whether a value is a class, module or function, which episodes do not change."""
    return (
        isinstance(value, type | property | staticmethod | classmethod | partial)
        or (callable(value) and not isinstance(value, GENERATORS))
        or inspect.ismodule(value)
    )


def fingerprint(value: Any, max_visits: int = EVERYTHING, max_items: int = EVERYTHING) -> str:
    """Return a digest of a value and everything inside it, down to numbers and text.

    Equal values have equal digests, here and in other processes. Code counts by its class only.

    Args:
        value: Any value.
        max_visits: Most objects and containers to open; further ones count by their class.
        max_items: Most items of a container to read; of longer ones, the first eight and the last are read.
    """
    walk = _Walk(max_visits, max_items)
    return blake2b(repr(walk.plain(value)).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


class _Walk:
    """A walk through a value that returns plain values; their representation changes if the value does."""

    def __init__(self, visits: int, items: int) -> None:
        self.visits = visits
        self.items = items
        self.seen: dict[int, Any] = {}

    def plain(self, value: Any) -> Any:
        if isinstance(value, ATOMS):
            return value
        if (array := _as_array(value)) is not None:
            return type(value).__qualname__, array.shape, array.dtype.str, blake2b(array.tobytes()).hexdigest()
        if isinstance(value, RandomStream):
            return canonical(value.position) if value.seeded else None
        if isinstance(value, GENERATORS):
            return type(value).__qualname__, self.plain(position_of_any(value))
        if isinstance(value, itertools.count):
            return repr(value)
        self.visits -= 1
        if self.visits < 0 or id(value) in self.seen or isinstance(value, gym.Env | gym.Space) or is_code(value):
            return type(value).__qualname__
        # Kept alive during the walk, because a new object could get the same address.
        self.seen[id(value)] = value
        return type(value).__qualname__, self._parts(value)

    def _parts(self, value: Any) -> Any:
        if isinstance(value, Snapshot):
            value = value.layers
        if isinstance(value, set | frozenset):
            return len(value), sorted(repr(self.plain(item)) for item in value) if len(value) <= self.items else None
        if isinstance(value, dict):
            value = list(value.items())
        if isinstance(value, list | tuple | deque):
            ends = value if len(value) <= self.items else [*itertools.islice(value, 8), value[-1]]
            return len(value), [self.plain(item) for item in ends]
        return [(name, self.plain(item)) for name, item in attributes(value)]


@lru_cache(maxsize=1024)
def _is_array(cls: Any) -> bool:
    """Return whether a class is an array class of any library, such as numpy, jax or torch."""
    return any("__array__" in vars(base) for base in cls.__mro__)


def _as_array(value: Any) -> np.ndarray[Any, Any] | None:
    """Return an array of any library as a numpy array; None for other values and for arrays of objects."""
    cls: Any = type(value)
    if not _is_array(cls):
        return None
    with suppress(TypeError, ValueError, RuntimeError):
        array = np.asarray(value)
        return None if array.dtype.hasobject else array
    return None


def attributes(value: Any) -> list[tuple[str, Any]]:
    """Return the attributes of an object, slots included."""
    pairs = []
    for cls in type(value).__mro__:
        for name in vars(cls).get("__slots__", ()):
            if isinstance(vars(cls).get(name), MemberDescriptorType):
                with suppress(AttributeError):
                    pairs.append((name, vars(cls)[name].__get__(value)))
    with suppress(TypeError):
        pairs += vars(value).items()
    return pairs


# Info fields that count as readings of the wall clock and are never compared: at any depth in infos of foreign
# environments, and in those of a StateEnv only the field that RecordEpisodeStatistics writes.
WALL_CLOCK_FIELDS = tuple(sorted(CLOCK_NAMES))
_STATISTICS_CLOCK = ("t",)
_NUMBERS = ("reward", "terminated", "truncated")


Facts = tuple[Fact, ...]


class Shot(NamedTuple):
    """The facts of an environment after a call.

    Attributes:
        standing: Its state, from its snapshot.
        returned: The result of the last call of `reset` or `step`.
    """

    standing: Facts
    returned: Facts

    @property
    def all(self) -> Facts:
        """All facts, in the order in which differences are searched."""
        return (*self.standing, *self.returned)


def name_of(thing: object) -> str:
    """Return the name of an object in messages: the name of its class."""
    return type(thing).__qualname__


def layers_of(env: gym.Env[Any, Any]) -> list[Any]:
    """Return the layers of a stack, outermost first, the environment last."""
    layers: list[Any] = [env]
    while isinstance(layers[-1], gym.Wrapper):
        layers.append(layers[-1].env)
    return layers


def is_own(env: gym.Env[Any, Any]) -> bool:
    """Return whether the environment under the wrappers is a `StateEnv`, for which more rules apply."""
    return isinstance(env.unwrapped, StateEnv)


def fact(what: str, value: object, plain: bool = True) -> Fact:
    """Return a value as a fact.

    Args:
        what: Its description in messages.
        value: Any value.
        plain: Require plain data.

    Raises:
        CheckFailed: Plain data is required, and the value contains something else.
    """
    try:
        return Fact(what, digest(value), text_of(value))
    except SnapshotError as error:
        if plain:
            raise CheckFailed("plain_data", f"{what} is not plain data: {error}") from error
    return Fact(what, fingerprint(value), text_of(value))


def taken(env: gym.Env[Any, Any]) -> Snapshot:
    """Return a snapshot.

    Raises:
        CheckFailed: A layer cannot be read.
    """
    try:
        return snapshot(env)
    except SnapshotError as error:
        raise CheckFailed("unsupported", str(error)) from error


def standing(env: gym.Env[Any, Any]) -> Facts:
    """Return the facts of an environment's state, counters, random state, and every wrapper's state.

    Raises:
        CheckFailed: A layer cannot be read, or contains something other than plain data where that is required.
    """
    return facts_of(env.unwrapped, taken(env).layers)


def facts_of(base: gym.Env[Any, Any], layers: tuple[Layer, ...]) -> Facts:
    """Return the facts of the layers of a snapshot; `base` is the environment under the wrappers."""
    *outer, inner = layers
    own = isinstance(base, StateEnv)
    facts = _own_facts(base, inner) if isinstance(base, StateEnv) else _foreign_facts(base, inner)
    # Innermost first, so that a difference is reported for the layer in which it arises.
    facts += [fact(f"the state of {layer.kind.rpartition(':')[2]}", layer.state, own) for layer in reversed(outer)]
    return tuple(facts)


def _own_facts(base: StateEnv[Any, Any, Any], inner: Layer) -> list[Fact]:
    name = name_of(base)
    if not isinstance(inner.state, EnvState):
        raise CheckFailed("unsupported", f"{name}.env_state() returned no EnvState: leave snapshots to StateEnv")
    episode = inner.state.episode
    return [
        fact(f"the state of {name}", episode.state),
        fact(f"the counters of {name}", tuple(episode)[1:]),
        fact(f"the random state of {name}", canonical(inner.state.position)),
        fact(f"the result of {name}.observe(state)", base.observe(episode.state)),
    ]


def _foreign_facts(base: gym.Env[Any, Any], inner: Layer) -> list[Fact]:
    """Return the parts of a foreign environment's state, so that a difference names the attribute."""
    name, state = name_of(base), inner.state
    if isinstance(state, Deferred):
        with suppress(SnapshotError):
            state = state.portable()
    names = vars(type(state)).get("_fields") or vars(type(state)).get("__dataclass_fields__")
    if not names:
        return [fact(f"the state of {name}", state, plain=False)]
    parts = {part: attrgetter(part)(state) for part in names}
    held = parts.pop("attributes", {})
    facts = [fact(f"{name}.{attribute}", value, plain=False) for attribute, value in held.items()]
    return facts + [fact(f"the {part} of {name}", value, plain=False) for part, value in parts.items()]


def returned(env: gym.Env[Any, Any], result: tuple[Any, ...]) -> Facts:
    """Return the facts of a result of `reset` or `step`, without readings of the wall clock."""
    observation, *numbers, info = result
    own = is_own(env)
    if not own:
        info = without_clocks(info)
    facts = [fact("the observation", observation, own)]
    facts += [fact(f"`{name}`", value, own) for name, value in zip(_NUMBERS, numbers, strict=False)]
    clocked = {layer._stats_key for layer in layers_of(env) if isinstance(layer, gym.wrappers.RecordEpisodeStatistics)}
    for key in sorted(info, key=repr):
        value = info[key]
        if key in clocked:
            value = {name: item for name, item in value.items() if name not in _STATISTICS_CLOCK}
        facts.append(fact(f"info[{key!r}]", value, own))
    return tuple(facts)


def shown(env: gym.Env[Any, Any], result: tuple[Any, ...]) -> Shot:
    """Return the facts of an environment's state and of a result of `reset` or `step`."""
    return Shot(standing(env), returned(env, result))
