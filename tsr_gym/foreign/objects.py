"""Foreign objects: their attributes, whether they hold a handle, how another one is made, and what is known of them.

Reflection starts here: `attributes_of` and `set_attributes` are the only access to the attributes of an object.
"""

import copy
import re
import types
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from struct import calcsize
from types import FunctionType
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator

from tsr_gym.codec import digest
from tsr_gym.errors import SnapshotError

Level = Literal["exact", "deepcopy", "replay", "none"]
LEVELS: tuple[Level, ...] = ("exact", "deepcopy", "replay", "none")


class Support(NamedTuple):
    """How well snapshots of a stack are supported.

    Attributes:
        level: ``"exact"``: the state is read and set by what knows it. ``"deepcopy"``: the attributes are copied, and
            copies were seen to play alike. ``"replay"``: a restore resets and takes the recorded actions again; needs
            `tsr_gym.replayable` before `reset`. ``"none"``: snapshots are refused.
        reason: Why, and what would help.
    """

    level: Level
    reason: str


@runtime_checkable
class SnapshotEnv(Protocol):
    """What an environment implements to take part in snapshots exactly.

    Its randomness must come from `self.np_random`, whose position tsr_gym saves, restores and reseeds itself.
    """

    def env_state(self) -> Any:
        """Return everything that decides the episode's future, as an immutable value."""

    def set_env_state(self, state: Any) -> None:
        """Continue from a state that `env_state` returned, here, in an equal environment or in another process."""


# Set for classes that are made when the program runs, and so for all that are written in Python.
_HEAP_TYPE = 1 << 9
_COPIES_ITSELF = frozenset(
    {"__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__deepcopy__"}
    | {"__getnewargs__", "__getnewargs_ex__"}
)


def module_of(kind: Any) -> str:
    """Return the name of the module that a class says it is from; those of extensions need not say."""
    return str(getattr(kind, "__module__", None) or "")


@lru_cache(maxsize=1024)
def _slots_of(cls: Any) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (name, item)
        for base in cls.__mro__
        for name, item in vars(base).items()
        if isinstance(item, types.MemberDescriptorType)
    )


def attributes_of(value: Any) -> dict[str, Any]:
    """Return the attributes that an object holds itself, those in slots included; not to be written to."""
    found: dict[str, Any] = getattr(value, "__dict__", {})
    cls: Any = type(value)
    if slots := _slots_of(cls):
        found = dict(found)
        for name, slot in slots:
            # An empty slot has no value.
            with suppress(AttributeError):
                found[name] = slot.__get__(value)
    return found


def is_of_class(cls: Any, name: str) -> bool:
    """Return whether a name is that of a method or property, which an object must not hide by an attribute."""
    found = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
    return hasattr(type(found), "__get__") and not isinstance(found, types.MemberDescriptorType)


def set_attributes(value: Any, attributes: dict[str, Any]) -> None:
    """Give an object attributes without asking its class."""
    for name, item in attributes.items():
        object.__setattr__(value, name, item)


@lru_cache(maxsize=1024)
def is_plain(cls: Any) -> bool:
    """Return whether objects of a class are nothing but their attributes."""
    if any(base is not object and not base.__flags__ & _HEAP_TYPE for base in cls.__mro__):
        return False
    if _hidden_bytes(cls):
        return False
    if issubclass(cls, gym.Env | gym.utils.EzPickle):
        # They pickle, and so copy, as what they were when they were made.
        return True
    own = {name for base in cls.__mro__[:-1] for name in vars(base)}
    return cls.__new__ is object.__new__ and not own & _COPIES_ITSELF


def frees(cls: Any) -> bool:
    """Return whether something is freed when an object of a class is deleted, which a copy would do too early."""
    return any("__del__" in vars(base) and base.__flags__ & _HEAP_TYPE for base in cls.__mro__)


def _hidden_bytes(cls: Any) -> int:
    """Return how many bytes of an object neither its dictionary nor its slots explain."""
    # Where the interpreter manages dictionary and weak references itself, the offsets are negative and take no room.
    pointers = (cls.__dictoffset__ > 0) + (cls.__weakrefoffset__ > 0) + len(_slots_of(cls))
    hidden: int = cls.__basicsize__ - object.__basicsize__ - pointers * calcsize("P")
    return hidden


_LIBRARIES = ("pyglet", "matplotlib", "tkinter", "glfw", "OpenGL", "moviepy", "imageio", "moderngl", "panda3d", "vtk")
_MODULES = ("gymnasium.envs.mujoco.mujoco_rendering", "gymnasium.utils.play", "mujoco.viewer", "mujoco.renderer")
_PYGAME = ("Surface", "Clock", "Font", "SysFont", "Sound", "Channel", "Window", "Renderer", "Texture", "PixelArray")
# What environments call them; such an attribute that is None is one that was not made yet.
_NAMES = re.compile(r"(^|_)(screen|window|surf|surface|clock|viewer|renderer|font|img|imgs|image|images|sprites?)$")
_MAX_DEPTH = 4
CONTAINERS = frozenset({list, tuple, dict})


@lru_cache(maxsize=512)
def is_handle_class(cls: Any) -> bool:
    """Return whether objects of a class are means of rendering."""
    module = module_of(cls)
    top = module.partition(".")[0]
    if top == "pygame":
        return cls.__name__ in _PYGAME
    return top in _LIBRARIES or module.startswith(_MODULES)


def is_handle(value: Any) -> bool:
    """Return whether an object is a means of rendering."""
    kind: Any = type(value)
    return is_handle_class(kind)


def holds_handles(value: Any, depth: int = 0) -> bool:
    """Return whether a value is a means of rendering, or a container of nothing but such."""
    kind = type(value)
    if kind in CONTAINERS:
        items = list(value.values()) if kind is dict else value
        return bool(items) and depth < _MAX_DEPTH and all(holds_handles(item, depth + 1) for item in items)
    return is_handle(value)


@lru_cache(maxsize=4096)
def names_handle(name: str) -> bool:
    """Return whether an attribute is called as means of rendering are."""
    return _NAMES.search(name) is not None


# What stays with an environment when it is made again in its place.
_KEPT = ("spec", "action_space", "observation_space", "_np_random", "_np_random_seed")


def fresh(env: Any, *, unseen: bool = False) -> Any:
    """Return a new environment, without wrappers, that was made as `env` was.

    Args:
        env: An environment without wrappers.
        unseen: Whether it must not open a window.

    Raises:
        SnapshotError: Nobody remembers how it was made, or it cannot be made again.
    """
    args, kwargs = _arguments(env)
    if unseen and kwargs.get("render_mode"):
        kwargs = kwargs | {"render_mode": None}
    try:
        if env.spec is not None:
            made = _creator(env)(**copy.deepcopy(kwargs)).unwrapped
            made.spec = copy.deepcopy(env.spec)
            return made
        return type(env)(*copy.deepcopy(args), **copy.deepcopy(kwargs))
    # The constructor of a foreign class may raise anything.
    except Exception as error:
        raise SnapshotError(f"another {type(env).__name__} could not be made: {error}") from error


def can_remake(env: Any) -> bool:
    """Return whether `remake` knows how."""
    try:
        _arguments(env)
    except SnapshotError:
        return False
    return env.spec is None or _creator(env) is type(env)


def remake(env: Any) -> None:
    """Make an environment again in its place; it keeps its generator, its spaces and its windows.

    Raises:
        SnapshotError: Its constructor raises; the environment is then as it was.
    """
    args, kwargs = _arguments(env)
    held = vars(env)
    before = dict(held)
    held.clear()
    try:
        type(env).__init__(env, *copy.deepcopy(args), **copy.deepcopy(kwargs))
    except Exception as error:
        held.clear()
        held.update(before)
        raise SnapshotError(f"{type(env).__name__} could not be made again: {error}") from error
    held.update({name: item for name, item in before.items() if name in _KEPT or holds_handles(item)})


def _creator(env: Any) -> Any:
    entry: Any = env.spec.entry_point
    return entry if callable(entry) else load_env_creator(entry)


def _arguments(env: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if env.spec is not None and env.spec.entry_point is not None:
        return (), dict(env.spec.kwargs)
    if isinstance(env, gym.utils.EzPickle):
        held = attributes_of(env)
        return held["_ezpickle_args"], dict(held["_ezpickle_kwargs"])
    raise SnapshotError(
        f"nobody knows how this {type(env).__name__} was made: make it with gymnasium.make, so that another can be"
    )


FoundT = TypeVar("FoundT")


class Verdicts(Generic[FoundT]):
    """One finding per object, by identity, because foreign objects need not be hashable."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[Any, FoundT]] = {}

    def of(self, thing: Any, find: Callable[[Any], FoundT]) -> FoundT:
        """Return the finding about an object, which is only looked for once."""
        known = self._found.get(id(thing))
        if known is None or known[0]() is not thing:
            known = self.remember(thing, find(thing))
        return known[1]

    def remember(self, thing: Any, finding: FoundT) -> tuple[Any, FoundT]:
        """Remember a finding about an object."""
        identity = id(thing)
        reference = weakref.ref(thing, lambda _: self._found.pop(identity, None))
        self._found[identity] = (reference, finding)
        return self._found[identity]


def recipe_of(env: Any) -> tuple[Any, ...] | None:
    """Return what environments of a class have in common if they were made alike, None where nobody can tell.

    Nobody can of an environment without a spec, or of one that was given objects, which may be anything.
    """
    spec = env.spec
    if spec is None or not isinstance(spec.entry_point, str | type | FunctionType):
        return None
    try:
        kwargs = digest({name: item for name, item in spec.kwargs.items() if name != "render_mode"})
    except SnapshotError:
        return None
    return spec.id, spec.entry_point, kwargs


class SharedVerdicts(Generic[FoundT]):
    """One finding for all environments of a class that were made alike, and one for every other."""

    def __init__(self) -> None:
        self._single: Verdicts[FoundT] = Verdicts()
        self._by_class: Verdicts[dict[Any, FoundT]] = Verdicts()

    def of(self, env: Any, find: Callable[[Any], FoundT]) -> FoundT:
        """Return the finding about an environment; only the first of its kind is looked into."""
        return self._single.of(env, lambda env: self.anew(env, find))

    def anew(self, env: Any, find: Callable[[Any], FoundT]) -> FoundT:
        """Return the finding about an environment that may still change: it is remembered of its kind alone."""
        recipe = recipe_of(env)
        if recipe is None:
            return find(env)
        found = self._by_class.of(type(env), lambda _: {})
        if recipe not in found:
            found[recipe] = find(env)
        return found[recipe]
