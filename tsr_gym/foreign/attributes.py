"""Attributes: the state of an ordinary Python environment, read and put back attribute by attribute."""

import copy
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec

from tsr_gym.codec import encode, packages_of
from tsr_gym.errors import SnapshotError, shown
from tsr_gym.foreign import play
from tsr_gym.foreign.freezing import ATOMS, Freezer, Here, Uncopyable
from tsr_gym.foreign.generators import place_generator, replace_keys
from tsr_gym.foreign.objects import (
    CONTAINERS,
    SharedVerdicts,
    Verdicts,
    attributes_of,
    fresh,
    holds_handles,
    is_handle_class,
    is_of_class,
    is_plain,
    module_of,
    names_handle,
    set_attributes,
)
from tsr_gym.foreign.thawing import (
    Thawer,
    frozen,
    imported,
    may_be_set,
    portable,
    portable_attribute,
    same,
    try_to_thaw,
)
from tsr_gym.random_stream import Drawn, is_position, position_of
from tsr_gym.snapshots import Deferred

# Tables that Gymnasium's environments fill when they are made and never change: large, and so no part of the state.
_TABLES: dict[str, frozenset[str]] = {
    "gymnasium.envs.toy_text.frozen_lake:FrozenLakeEnv": frozenset({"P", "desc", "initial_state_distrib"}),
    "gymnasium.envs.toy_text.taxi:TaxiEnv": frozenset({"P", "desc", "initial_state_distrib", "locs", "locs_colors"}),
    "gymnasium.envs.toy_text.cliffwalking:CliffWalkingEnv": frozenset({"P", "_cliff", "initial_state_distrib"}),
}
_PLAIN = (bool, int, float, str, tuple, list, dict, type(None))


class _Known(NamedTuple):
    sources: tuple[Any, ...]
    settings: tuple[str, ...]


_KNOWN: Verdicts[_Known] = Verdicts()


@lru_cache(maxsize=256)
def tables_of(cls: Any) -> frozenset[str]:
    """Return the attributes of a class that are filled when an environment is made and never change."""
    return _TABLES.get(f"{module_of(cls)}:{cls.__qualname__}", frozenset())


def settings_of(env: Any) -> tuple[str, ...]:
    """Return an environment's arguments, spaces and tables, in words."""
    sources = _sources(env)
    known = _KNOWN.of(env, lambda _: _Known((), ()))
    if len(known.sources) != len(sources) or any(
        one is not other for one, other in zip(sources, known.sources, strict=False)
    ):
        known = _Known(sources, _settings(env))
        _KNOWN.remember(env, known)
    return known.settings


def share_settings(env: Any, twin: Any) -> None:
    """Note that a copy has the settings of the original, whose tables need not be read again for it."""
    _KNOWN.remember(twin, _Known(_sources(twin), settings_of(env)))


def _sources(env: Any) -> tuple[Any, ...]:
    held = attributes_of(env)
    tables = [held.get(name) for name in tables_of(_class_of(env))]
    return (env.spec, env.observation_space, env.action_space, *tables)


def _settings(env: Any) -> tuple[str, ...]:
    kwargs = {} if env.spec is None else env.spec.kwargs
    held, cls = attributes_of(env), _class_of(env)
    return (
        *[f"{name}={_word(value)}" for name, value in sorted(kwargs.items()) if name != "render_mode"],
        f"observation_space={env.observation_space!r}",
        f"action_space={env.action_space!r}",
        *[f"{name}: {_fingerprint(held[name])}" for name in sorted(tables_of(cls)) if name in held],
    )


def _class_of(env: Any) -> Any:
    return type(env)


def _word(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"array{value.tolist()}"
    return repr(value) if isinstance(value, _PLAIN) else f"a {type(value).__name__}"


def _fingerprint(value: Any) -> str:
    return blake2b(encode(portable(frozen(value))), digest_size=8).hexdigest()


def compare(env: Any, came: Any) -> None:
    """Raise SnapshotError unless a snapshot's settings are those of an environment."""
    wanted = settings_of(env)
    if came is wanted or came == wanted:
        return
    if not isinstance(came, tuple):
        raise SnapshotError(f"wanted the settings of {type(env).__name__}, got {came!r}: damaged")
    missing, extra = sorted(set(wanted) - set(came)), sorted(set(map(str, came)) - set(wanted))
    raise SnapshotError(
        f"the snapshot was taken under other settings of {type(env).__name__}: wanted {missing}, got {extra}; make the "
        "environment with the same arguments"
    )


_FOUND: SharedVerdicts[frozenset[str]] = SharedVerdicts()


def lasting_names(env: Any) -> frozenset[str]:
    """Return the attributes that another environment made alike has after a reset; none where none can be made."""
    return _FOUND.of(env, _names_of_another)


def _names_of_another(env: Any) -> frozenset[str]:
    # Not a copy, which would also hold what this environment got in the course of its episodes.
    with play.quietly():
        try:
            other = fresh(env, unseen=True)
        except SnapshotError:
            return frozenset()
        came = play.reset(other, 0, None)
    return frozenset() if isinstance(came, play.Raised) else frozenset(attributes_of(other))


_NOT_STATE = frozenset(
    {"action_space", "observation_space", "spec", "metadata", "render_mode", "_ezpickle_args", "_ezpickle_kwargs"}
    | {"_np_random", "reward_range"}
)


@dataclass(frozen=True, eq=False)
class AttributesState(Deferred):
    """The captured attributes of an environment.

    Attributes:
        settings: What must agree between the environment that was captured and one that is restored.
        attributes: The attributes, frozen.
        position: Where Gymnasium's generator of the environment stands, None where it has none yet.
        native: What an adapter adds that is no attribute, as an immutable value.
    """

    settings: tuple[Any, ...]
    attributes: dict[str, Any]
    position: Drawn | None
    native: Any = None

    def same_as(self, other: object) -> bool:
        """Return whether another capture is equal."""
        return isinstance(other, AttributesState) and same(self._parts(), other._parts())

    def _parts(self) -> Any:
        return self.settings, self.attributes, self.position, self.native

    def portable(self) -> Any:
        """Return the captured attributes in a form that has bytes.

        Raises:
            SnapshotError: An attribute has no such form; the message names it.
        """
        attributes = {name: _portable(name, value) for name, value in self.attributes.items()}
        return PortableAttributes(self.settings, attributes, self.position, self.native)


@dataclass(frozen=True)
class PortableAttributes:
    """Captured attributes as they come out of bytes."""

    settings: tuple[Any, ...]
    attributes: dict[str, Any]
    position: Drawn | None
    native: Any


def _portable(name: str, value: Any) -> Any:
    try:
        made = portable_attribute(value)
        encode(made)
    except SnapshotError as error:
        raise SnapshotError(
            f"the attribute {name} has no form as bytes: {error}. The snapshot works in this process; to send it to "
            "another, give the environment env_state() and set_env_state(state)"
        ) from error
    return made


@lru_cache(maxsize=4096)
def _is_state(name: str, kind: Any) -> bool:
    """Return whether an attribute of some name and class belongs to an environment's state, as far as these tell."""
    if name in _NOT_STATE or issubclass(kind, gym.Space | EnvSpec):
        return False
    return not (is_handle_class(kind) or (kind is type(None) and names_handle(name)))


def is_state(name: str, value: Any) -> bool:
    """Return whether an attribute of an environment belongs to its state."""
    kind: Any = type(value)
    return _is_state(name, kind) and not (kind in CONTAINERS and holds_handles(value))


def capture(env: Any, *, without: frozenset[str] = frozenset(), native: Any = None) -> AttributesState:
    """Return the attributes of an environment, frozen.

    Args:
        env: The environment.
        without: Attributes that are left out.
        native: Kept beside them.

    Raises:
        Uncopyable: An attribute cannot be copied exactly; the message names it.
    """
    cls: Any = type(env)
    if not is_plain(cls):
        raise Uncopyable(f"{cls.__name__} is made by an extension, so it is more than its attributes")
    held, without = attributes_of(env), without | tables_of(cls)
    generator = held.get("_np_random")
    freezer = Freezer({id(env): Here.ENV})
    if generator is not None:
        freezer.stand_ins[id(generator)] = Here.NP_RANDOM
    attributes = {}
    # In one order everywhere, because objects are numbered as they are met.
    for name in sorted(held):
        value = held[name]
        kind: Any = type(value)
        if not _is_state(name, kind) or name in without:
            continue
        if kind in ATOMS:
            attributes[name] = value
        elif kind not in CONTAINERS or not holds_handles(value):
            attributes[name] = _frozen(freezer, name, value, cls)
    position = None if generator is None else position_of(generator)
    return AttributesState(settings_of(env), attributes, position, native)


def _frozen(freezer: Freezer, name: str, value: Any, cls: Any) -> Any:
    try:
        return freezer.frozen(value)
    except Uncopyable as error:
        raise Uncopyable(f"the attribute {name} of {cls.__name__}: {error}") from error


def put_back(env: Any, state: AttributesState, seed: int | None, *, without: frozenset[str] = frozenset()) -> None:
    """Give an environment captured attributes; what is not state stays its own."""
    cls: Any = type(env)
    held, without = attributes_of(env), without | tables_of(cls)
    generator = place_generator(env, state.position, seed)
    thawer = Thawer({Here.ENV: env, Here.NP_RANDOM: generator}, seed)
    attributes = {name: thawer.thawed(value) for name, value in state.attributes.items()}
    for name, value in [item for item in held.items() if item[0] not in attributes]:
        if name not in without and is_state(name, value):
            if names_handle(name):
                # Means of rendering that were not made yet are not captured.
                attributes[name] = None
            else:
                object.__delattr__(env, name)
    set_attributes(env, {name: value for name, value in attributes.items() if not _is_window(held.get(name))})
    if seed is not None:
        set_attributes(env, {"_np_random_seed": seed})
        replace_keys(env, seed)


def _is_window(value: Any) -> bool:
    kind: Any = type(value)
    return kind not in ATOMS and (is_handle_class(kind) or (kind in CONTAINERS and holds_handles(value)))


def twin_of(env: Any, *, unseen: bool = False) -> Any:
    """Return another environment of the same class with copied attributes, and spaces and surfaces of its own.

    Args:
        env: The environment.
        unseen: Whether the copy must not open a window.

    Raises:
        Uncopyable: An attribute cannot be copied exactly.
    """
    state = capture(env)
    twin = object.__new__(type(env))
    shared = {}
    cls: Any = type(env)
    tables = tables_of(cls)
    for name, value in attributes_of(env).items():
        if name in tables:
            shared[name] = value if unseen else copy.deepcopy(value)
        elif name != "_np_random" and not is_state(name, value):
            shared[name] = _own(value)
    if unseen and env.render_mode == "human":
        shared["render_mode"] = None
    set_attributes(twin, shared)
    share_settings(env, twin)
    put_back(twin, state, None)
    return twin


def _own(value: Any) -> Any:
    if isinstance(value, gym.Space):
        return copy.deepcopy(value)
    # A surface that is drawn on must not be the other's.
    return value.copy() if type(value).__name__ == "Surface" else value


def checked(env: Any, state: Any, *, without: frozenset[str] = frozenset()) -> AttributesState:
    """Return a layer's state as captured attributes that fit an environment.

    Args:
        env: The environment.
        state: The layer's state.
        without: Attributes that `capture` left out.

    Raises:
        SnapshotError: They belong to other settings, or are damaged.
    """
    if isinstance(state, PortableAttributes):
        packages, held = packages_of(type(env)), attributes_of(env)
        attributes = {}
        if type(state.attributes) is not dict or not (state.position is None or is_position(state.position)):
            raise SnapshotError(f"wanted captured attributes of {type(env).__name__}, got {shown(state)}: damaged")
        for name, value in state.attributes.items():
            if name in _NOT_STATE or not may_be_set(name) or (name not in held and is_of_class(type(env), name)):
                raise SnapshotError(f"the snapshot sets {shown(name)}, which is no state: damaged")
            try:
                attributes[name] = imported(value, packages, held.get(name))
            except SnapshotError as error:
                raise SnapshotError(f"the attribute {name}: {error}") from error
        state = AttributesState(state.settings, attributes, state.position, state.native)
        try_to_thaw(state.attributes)
        _check_names(env, state, without)
    if not isinstance(state, AttributesState):
        raise SnapshotError(f"wanted captured attributes of {type(env).__name__}, got {shown(state)}: damaged")
    compare(env, state.settings)
    return state


def _check_names(env: Any, state: AttributesState, without: frozenset[str]) -> None:
    """Raise SnapshotError where a restore would take an attribute from an environment that its kind always has."""
    cls: Any = type(env)
    held, known = attributes_of(env), state.attributes.keys() | without | tables_of(cls)
    absent = {name: value for name, value in held.items() if name not in known and is_state(name, value)}
    if not state.attributes.keys() - held.keys():
        # What is None here and absent there may be a means of rendering that was made there.
        absent = {name: value for name, value in absent.items() if value is not None}
    # An episode may add attributes, so a difference alone says nothing.
    if absent and (lost := sorted(lasting_names(env) & absent.keys())):
        raise SnapshotError(f"the snapshot lacks {', '.join(lost)}, which every {cls.__name__} has: damaged")
