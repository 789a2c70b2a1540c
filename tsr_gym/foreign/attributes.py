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
from tsr_gym.foreign.freezing import Freezer, Here, Uncopyable
from tsr_gym.foreign.generators import place_generator, replace_keys
from tsr_gym.foreign.objects import (
    ATOMS,
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

# Tables that Gymnasium's environments fill in their constructor and never change. They are large, so they are compared
# as settings and not saved as state.
_TABLES: dict[str, frozenset[str]] = {
    "gymnasium.envs.toy_text.frozen_lake:FrozenLakeEnv": frozenset({"P", "desc", "initial_state_distrib"}),
    "gymnasium.envs.toy_text.taxi:TaxiEnv": frozenset({"P", "desc", "initial_state_distrib", "locs", "locs_colors"}),
    "gymnasium.envs.toy_text.cliffwalking:CliffWalkingEnv": frozenset({"P", "_cliff", "initial_state_distrib"}),
}
_PLAIN = (bool, int, float, str, tuple, list, dict, type(None))


class _Entry(NamedTuple):
    sources: tuple[Any, ...]
    settings: tuple[str, ...]


_SETTINGS: Verdicts[_Entry] = Verdicts()


@lru_cache(maxsize=256)
def tables_of(cls: Any) -> frozenset[str]:
    """Return the attributes of a class that its constructor fills and nothing changes later."""
    return _TABLES.get(f"{module_of(cls)}:{cls.__qualname__}", frozenset())


def settings_of(env: Any) -> tuple[str, ...]:
    """Return an environment's arguments, spaces and tables as texts, for comparison."""
    # Building the texts is slow, so they are kept for as long as the objects they describe are the same ones.
    sources = _sources(env)
    entry = _SETTINGS.of(env, lambda _: _Entry((), ()))
    if len(entry.sources) != len(sources) or any(
        new is not old for new, old in zip(sources, entry.sources, strict=False)
    ):
        entry = _Entry(sources, _settings(env))
        _SETTINGS.remember(env, entry)
    return entry.settings


def share_settings(env: Any, twin: Any) -> None:
    """Record that a copy has the settings of the original, so that its tables are not read again."""
    _SETTINGS.remember(twin, _Entry(_sources(twin), settings_of(env)))


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


def compare(env: Any, settings: Any) -> None:
    """Raise SnapshotError unless the settings of a snapshot are those of an environment."""
    wanted = settings_of(env)
    if settings is wanted or settings == wanted:
        return
    if not isinstance(settings, tuple):
        raise SnapshotError(f"wanted the settings of {type(env).__name__}, got {settings!r}: damaged")
    missing, extra = sorted(set(wanted) - set(settings)), sorted(set(map(str, settings)) - set(wanted))
    raise SnapshotError(
        f"the snapshot was taken under other settings of {type(env).__name__}: wanted {missing}, got {extra}; make the "
        "environment with the same arguments"
    )


_LASTING: SharedVerdicts[frozenset[str]] = SharedVerdicts()


def lasting_names(env: Any) -> frozenset[str]:
    """Return the attributes that a new, equal environment has after a reset; empty if no other can be made."""
    return _LASTING.of(env, _names_of_another)


def _names_of_another(env: Any) -> frozenset[str]:
    # A copy would not do: it would also have the attributes that this environment got during its episodes.
    with play.quietly():
        try:
            other = fresh(env, unseen=True)
        except SnapshotError:
            return frozenset()
        result = play.reset(other, 0, None)
    return frozenset() if isinstance(result, play.Raised) else frozenset(attributes_of(other))


_NOT_STATE = frozenset(
    {"action_space", "observation_space", "spec", "metadata", "render_mode", "_ezpickle_args", "_ezpickle_kwargs"}
    | {"_np_random", "reward_range"}
)


@dataclass(frozen=True, eq=False)
class AttributesState(Deferred):
    """The captured attributes of an environment.

    Attributes:
        settings: Texts that must be equal in the captured and in the restored environment.
        attributes: The attributes, frozen.
        position: Position of Gymnasium's generator; None where the environment has none yet.
        native: State outside of the attributes that an adapter adds, as an immutable value.
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
        """Return the captured attributes in a form that the codec can write.

        Raises:
            SnapshotError: An attribute has no such form; the message names it.
        """
        attributes = {name: _portable(name, value) for name, value in self.attributes.items()}
        return PortableAttributes(self.settings, attributes, self.position, self.native)


@dataclass(frozen=True)
class PortableAttributes:
    """Captured attributes as they are read from bytes."""

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
            f"the attribute {name} has no byte form: {error}. The snapshot works in this process; to send it to "
            "another one, implement env_state() and set_env_state(state) in the environment"
        ) from error
    return made


@lru_cache(maxsize=4096)
def _is_state(name: str, cls: Any) -> bool:
    """Return whether an attribute of this name and class is state. Containers are not opened."""
    if name in _NOT_STATE or issubclass(cls, gym.Space | EnvSpec):
        return False
    return not (is_handle_class(cls) or (cls is type(None) and names_handle(name)))


def is_state(name: str, value: Any) -> bool:
    """Return whether an attribute of an environment belongs to its state."""
    cls: Any = type(value)
    return _is_state(name, cls) and not (cls in CONTAINERS and holds_handles(value))


def capture(env: Any, *, without: frozenset[str] = frozenset(), native: Any = None) -> AttributesState:
    """Return the attributes of an environment, frozen.

    Args:
        env: The environment.
        without: Attributes to leave out.
        native: Stored with them.

    Raises:
        Uncopyable: An attribute cannot be copied exactly; the message names it.
    """
    cls: Any = type(env)
    if not is_plain(cls):
        raise Uncopyable(f"{cls.__name__} is a class of an extension: it has state outside of its attributes")
    held, without = attributes_of(env), without | tables_of(cls)
    generator = held.get("_np_random")
    freezer = Freezer({id(env): Here.ENV})
    if generator is not None:
        freezer.stand_ins[id(generator)] = Here.NP_RANDOM
    attributes = {}
    # Sorted, because objects are numbered in the order of their first occurrence.
    for name in sorted(held):
        value = held[name]
        value_class: Any = type(value)
        if not _is_state(name, value_class) or name in without:
            continue
        if value_class in ATOMS:
            attributes[name] = value
        elif value_class not in CONTAINERS or not holds_handles(value):
            attributes[name] = _frozen(freezer, name, value, cls)
    position = None if generator is None else position_of(generator)
    return AttributesState(settings_of(env), attributes, position, native)


def _frozen(freezer: Freezer, name: str, value: Any, cls: Any) -> Any:
    try:
        return freezer.frozen(value)
    except Uncopyable as error:
        raise Uncopyable(f"the attribute {name} of {cls.__name__}: {error}") from error


def put_back(env: Any, state: AttributesState, seed: int | None, *, without: frozenset[str] = frozenset()) -> None:
    """Set an environment's attributes to captured ones. Attributes that are not state stay.

    Attributes that the environment got after the capture are deleted.
    """
    cls: Any = type(env)
    held, without = attributes_of(env), without | tables_of(cls)
    generator = place_generator(env, state.position, seed)
    thawer = Thawer({Here.ENV: env, Here.NP_RANDOM: generator}, seed)
    # In the order of the capture, because the thawer counts objects like the freezer did. The generator is placed
    # first, and both the environment and its generator are stand-ins, so attributes that refer to them find the live
    # objects.
    attributes = {name: thawer.thawed(value) for name, value in state.attributes.items()}
    for name, value in [item for item in held.items() if item[0] not in attributes]:
        if name not in without and is_state(name, value):
            if names_handle(name):
                # A handle that did not exist at the capture: None makes the environment create it again.
                attributes[name] = None
            else:
                object.__delattr__(env, name)
    # Windows and surfaces of this environment stay, also if the capture had None in their place.
    set_attributes(env, {name: value for name, value in attributes.items() if not _is_window(held.get(name))})
    if seed is not None:
        set_attributes(env, {"_np_random_seed": seed})
        replace_keys(env, seed)


def _is_window(value: Any) -> bool:
    cls: Any = type(value)
    return cls not in ATOMS and (is_handle_class(cls) or (cls in CONTAINERS and holds_handles(value)))


def twin_of(env: Any, *, unseen: bool = False) -> Any:
    """Return another environment of the same class with copied attributes, spaces and surfaces.

    Args:
        env: The environment.
        unseen: Make a copy that opens no window.

    Raises:
        Uncopyable: An attribute cannot be copied exactly.
    """
    # Made without its constructor, like every thawed object. Tables are shared only with a copy that is used for a
    # proof.
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
    # Environments draw on their surfaces, so the copy needs a separate one.
    return value.copy() if type(value).__name__ == "Surface" else value


def checked(env: Any, state: Any, *, without: frozenset[str] = frozenset()) -> AttributesState:
    """Return the state of a layer as captured attributes, after checks that they fit an environment.

    Args:
        env: The environment.
        state: The layer's state.
        without: Attributes that `capture` left out.

    Raises:
        SnapshotError: They were captured under other settings, or are damaged.
    """
    if isinstance(state, PortableAttributes):
        packages, held = packages_of(type(env)), attributes_of(env)
        attributes = {}
        if type(state.attributes) is not dict or not (state.position is None or is_position(state.position)):
            raise SnapshotError(f"wanted captured attributes of {type(env).__name__}, got {shown(state)}: damaged")
        for name, value in state.attributes.items():
            if name in _NOT_STATE or not may_be_set(name) or (name not in held and is_of_class(type(env), name)):
                raise SnapshotError(f"the snapshot sets {shown(name)}, which is not state: damaged")
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
    """Raise SnapshotError where a restore would delete an attribute that environments of the class always have."""
    cls: Any = type(env)
    held, covered = attributes_of(env), state.attributes.keys() | without | tables_of(cls)
    absent = {name: value for name, value in held.items() if name not in covered and is_state(name, value)}
    if not state.attributes.keys() - held.keys():
        # An attribute that is None here and absent there may be a handle for rendering, which was created there.
        absent = {name: value for name, value in absent.items() if value is not None}
    # An episode may add attributes, so a difference alone proves nothing.
    if absent and (lost := sorted(lasting_names(env) & absent.keys())):
        raise SnapshotError(f"the snapshot lacks {', '.join(lost)}, which every {cls.__name__} has: damaged")
