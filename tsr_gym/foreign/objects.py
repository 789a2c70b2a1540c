"""Foreign objects: their attributes, their handles for rendering, how another is made, and what is known about them.

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
        level: ``"exact"``: code that knows the class reads and sets the state. ``"deepcopy"``: the attributes are
            copied, and copies were seen to play the same episodes. ``"replay"``: a restore resets and takes the
            recorded actions again; needs `tsr_gym.replayable` before `reset`. ``"none"``: snapshots are refused.
        reason: Why it has this level, and what would improve it.
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


ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes, range, slice, type(...), type(NotImplemented)})
# CPython sets this flag for classes that are made at run time, which includes every class written in Python.
_HEAP_TYPE = 1 << 9
_COPIES_ITSELF = frozenset(
    {"__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__deepcopy__"}
    | {"__getnewargs__", "__getnewargs_ex__"}
)


def module_of(cls: Any) -> str:
    """Return the name of a class's module; "" where it has none, as classes of extensions may."""
    return str(getattr(cls, "__module__", None) or "")


@lru_cache(maxsize=1024)
def _slots_of(cls: Any) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (name, item)
        for base in cls.__mro__
        for name, item in vars(base).items()
        if isinstance(item, types.MemberDescriptorType)
    )


def attributes_of(value: Any) -> dict[str, Any]:
    """Return the attributes of an object, slots included. Do not write to the dictionary: it may be the object's."""
    attributes: dict[str, Any] = getattr(value, "__dict__", {})
    cls: Any = type(value)
    if slots := _slots_of(cls):
        attributes = dict(attributes)
        for name, slot in slots:
            # Reading an empty slot raises AttributeError.
            with suppress(AttributeError):
                attributes[name] = slot.__get__(value)
    return attributes


def is_of_class(cls: Any, name: str) -> bool:
    """Return whether a class defines a method or property of this name, which an attribute of an object would hide."""
    item = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
    return hasattr(type(item), "__get__") and not isinstance(item, types.MemberDescriptorType)


def set_attributes(value: Any, attributes: dict[str, Any]) -> None:
    """Set attributes of an object without calling `__setattr__` of its class."""
    for name, item in attributes.items():
        object.__setattr__(value, name, item)


@lru_cache(maxsize=1024)
def is_plain(cls: Any) -> bool:
    """Return whether the attributes of a class's objects are all that they hold.

    Only then is a new object with copies of the attributes an exact copy.
    """
    if any(base is not object and not base.__flags__ & _HEAP_TYPE for base in cls.__mro__):
        return False
    if _hidden_bytes(cls):
        return False
    if issubclass(cls, gym.Env | gym.utils.EzPickle):
        # EzPickle reduces an object to the arguments of its constructor, so its own copy protocol forgets the state.
        return True
    own = {name for base in cls.__mro__[:-1] for name in vars(base)}
    return cls.__new__ is object.__new__ and not own & _COPIES_ITSELF


def frees(cls: Any) -> bool:
    """Return whether deleting an object of a class frees a resource; deleting a copy would free it too early."""
    return any("__del__" in vars(base) and base.__flags__ & _HEAP_TYPE for base in cls.__mro__)


def _hidden_bytes(cls: Any) -> int:
    """Return the number of bytes of an object that neither its dictionary nor its slots explain: fields of C code."""
    # A negative offset means that the interpreter stores dictionary or weak references outside of the object.
    pointers = (cls.__dictoffset__ > 0) + (cls.__weakrefoffset__ > 0) + len(_slots_of(cls))
    hidden: int = cls.__basicsize__ - object.__basicsize__ - pointers * calcsize("P")
    return hidden


_LIBRARIES = ("pyglet", "matplotlib", "tkinter", "glfw", "OpenGL", "moviepy", "imageio", "moderngl", "panda3d", "vtk")
_MODULES = ("gymnasium.envs.mujoco.mujoco_rendering", "gymnasium.utils.play", "mujoco.viewer", "mujoco.renderer")
_PYGAME = ("Surface", "Clock", "Font", "SysFont", "Sound", "Channel", "Window", "Renderer", "Texture", "PixelArray")
# Usual attribute names of such objects. An attribute of this name that is None has not been created yet.
_NAMES = re.compile(r"(^|_)(screen|window|surf|surface|clock|viewer|renderer|font|img|imgs|image|images|sprites?)$")
_MAX_DEPTH = 4
CONTAINERS = frozenset({list, tuple, dict})


@lru_cache(maxsize=512)
def is_handle_class(cls: Any) -> bool:
    """Return whether objects of a class are handles for rendering, such as surfaces, windows and clocks."""
    module = module_of(cls)
    top = module.partition(".")[0]
    if top == "pygame":
        return cls.__name__ in _PYGAME
    return top in _LIBRARIES or module.startswith(_MODULES)


def is_handle(value: Any) -> bool:
    """Return whether an object is a handle for rendering."""
    cls: Any = type(value)
    return is_handle_class(cls)


def holds_handles(value: Any, depth: int = 0) -> bool:
    """Return whether a value is a handle for rendering, or a container that holds only handles."""
    cls = type(value)
    if cls in CONTAINERS:
        items = list(value.values()) if cls is dict else value
        return bool(items) and depth < _MAX_DEPTH and all(holds_handles(item, depth + 1) for item in items)
    return is_handle(value)


@lru_cache(maxsize=4096)
def names_handle(name: str) -> bool:
    """Return whether an attribute name is one that environments use for handles."""
    return _NAMES.search(name) is not None


# Attributes that an environment keeps when `remake` makes it again in place.
_KEPT = ("spec", "action_space", "observation_space", "_np_random", "_np_random_seed")


def fresh(env: Any, *, unseen: bool = False) -> Any:
    """Return a new environment, without wrappers, that was made as `env` was.

    Args:
        env: An environment without wrappers.
        unseen: Make it without a render mode, so that it opens no window.

    Raises:
        SnapshotError: The arguments of its constructor are not recorded, or the constructor raises.
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
    """Return whether `remake` can make an environment again in place."""
    try:
        _arguments(env)
    except SnapshotError:
        return False
    return env.spec is None or _creator(env) is type(env)


def remake(env: Any) -> None:
    """Make an environment again in place. It keeps its generator, its spaces and its windows.

    Raises:
        SnapshotError: The constructor raises; the environment is then unchanged.
    """
    args, kwargs = _arguments(env)
    # The object must stay the same, because wrappers hold it. So its dictionary is emptied and its constructor called.
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
        f"the constructor's arguments of this {type(env).__name__} are not recorded: make it with gymnasium.make"
    )


VerdictT = TypeVar("VerdictT")


class Verdicts(Generic[VerdictT]):
    """One verdict per object. Objects count by identity, because foreign objects need not be hashable."""

    def __init__(self) -> None:
        self._verdicts: dict[int, tuple[Any, VerdictT]] = {}

    def of(self, thing: Any, find: Callable[[Any], VerdictT]) -> VerdictT:
        """Return the verdict about an object; `find` is called at most once per object."""
        entry = self._verdicts.get(id(thing))
        # A new object may have the identity of a deleted one, so the weak reference must lead to this object.
        if entry is None or entry[0]() is not thing:
            entry = self.remember(thing, find(thing))
        return entry[1]

    def remember(self, thing: Any, verdict: VerdictT) -> tuple[Any, VerdictT]:
        """Store a verdict about an object, for as long as the object lives."""
        identity = id(thing)
        reference = weakref.ref(thing, lambda _: self._verdicts.pop(identity, None))
        self._verdicts[identity] = (reference, verdict)
        return self._verdicts[identity]


def recipe_of(env: Any) -> tuple[Any, ...] | None:
    """Return a key that environments of a class share if they were made with equal arguments; None if that is unknown.

    It is unknown without a spec, and where an argument is an object that has no byte form.
    """
    spec = env.spec
    if spec is None or not isinstance(spec.entry_point, str | type | FunctionType):
        return None
    try:
        # The render mode does not affect the episode, so environments that differ in it share a verdict.
        kwargs = digest({name: item for name, item in spec.kwargs.items() if name != "render_mode"})
    except SnapshotError:
        return None
    return spec.id, spec.entry_point, kwargs


class SharedVerdicts(Generic[VerdictT]):
    """One verdict for all environments with the same `recipe_of`, and one for each other environment."""

    def __init__(self) -> None:
        self._single: Verdicts[VerdictT] = Verdicts()
        self._by_class: Verdicts[dict[Any, VerdictT]] = Verdicts()

    def of(self, env: Any, find: Callable[[Any], VerdictT]) -> VerdictT:
        """Return the verdict about an environment; only the first with its recipe is examined."""
        return self._single.of(env, lambda env: self.anew(env, find))

    def anew(self, env: Any, find: Callable[[Any], VerdictT]) -> VerdictT:
        """Return the verdict about an environment that may still change: it is stored for its recipe only."""
        recipe = recipe_of(env)
        if recipe is None:
            return find(env)
        verdicts = self._by_class.of(type(env), lambda _: {})
        if recipe not in verdicts:
            verdicts[recipe] = find(env)
        return verdicts[recipe]
