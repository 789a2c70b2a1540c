"""What an environment shows, as facts that can be compared here and across processes.

Invariant: two of these facts are equal exactly where the canonical bytes of what they show are.
"""

from contextlib import suppress
from operator import attrgetter
from typing import Any, NamedTuple

import gymnasium as gym

from tsr_gym.codec import digest
from tsr_gym.errors import CheckFailed, SnapshotError
from tsr_gym.foreign.differences import Fact, text_of
from tsr_gym.foreign.play import CLOCK_NAMES, without_clocks
from tsr_gym.random_stream import canonical
from tsr_gym.snapshots import Deferred, EnvState, Layer, Snapshot
from tsr_gym.stack import snapshot
from tsr_gym.state_env import StateEnv
from tsr_gym.testing.fingerprints import fingerprint

# Fields of infos that are taken for readings of the wall clock, and never compared: in infos of foreign environments
# wherever they stand, in those of a StateEnv only what RecordEpisodeStatistics writes.
WALL_CLOCK_FIELDS = tuple(sorted(CLOCK_NAMES))
_STATISTICS_CLOCK = ("t",)
_NUMBERS = ("reward", "terminated", "truncated")


Facts = tuple[Fact, ...]


class Shot(NamedTuple):
    """What an environment shows at one moment.

    Attributes:
        standing: Where it stands, by its snapshot.
        returned: What the last call of `reset` or `step` returned.
    """

    standing: Facts
    returned: Facts

    @property
    def all(self) -> Facts:
        """All of it, in the order in which differences are looked for."""
        return (*self.standing, *self.returned)


def name_of(thing: object) -> str:
    """Return how messages call an object: the name of its class."""
    return type(thing).__qualname__


def layers_of(env: gym.Env[Any, Any]) -> list[Any]:
    """Return the layers of a stack, outermost first, the environment last."""
    layers: list[Any] = [env]
    while isinstance(layers[-1], gym.Wrapper):
        layers.append(layers[-1].env)
    return layers


def is_own(env: gym.Env[Any, Any]) -> bool:
    """Return whether the environment under the wrappers is a `StateEnv`, of which more is asked."""
    return isinstance(env.unwrapped, StateEnv)


def fact(what: str, value: object, plain: bool = True) -> Fact:
    """Return a value as a fact.

    Args:
        what: What it is, and whose.
        value: Anything.
        plain: Whether it has to be plain data.

    Raises:
        CheckFailed: The value holds something that is not plain data, but has to.
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
    """Return where an environment stands: its state, counters, random state, and every wrapper's state.

    Raises:
        CheckFailed: A layer cannot be read, or holds something that is not plain data but has to be.
    """
    return facts_of(env.unwrapped, taken(env).layers)


def facts_of(base: gym.Env[Any, Any], layers: tuple[Layer, ...]) -> Facts:
    """Return what the layers of a snapshot hold; `base` is the environment under the wrappers."""
    *outer, inner = layers
    own = isinstance(base, StateEnv)
    facts = _own_facts(base, inner) if isinstance(base, StateEnv) else _foreign_facts(base, inner)
    # Innermost first: a difference is blamed on the layer in which it arises.
    facts += [fact(f"the state of {layer.kind.rpartition(':')[2]}", layer.state, own) for layer in reversed(outer)]
    return tuple(facts)


def _own_facts(base: StateEnv[Any, Any, Any], inner: Layer) -> list[Fact]:
    name = name_of(base)
    if not isinstance(inner.state, EnvState):
        raise CheckFailed("unsupported", f"{name}.env_state() gave no EnvState: leave snapshots to StateEnv")
    episode = inner.state.episode
    return [
        fact(f"the state of {name}", episode.state),
        fact(f"the counters of {name}", tuple(episode)[1:]),
        fact(f"the random state of {name}", canonical(inner.state.position)),
        fact(f"what {name}.observe(state) returns", base.observe(episode.state)),
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
    """Return what a call of `reset` or `step` returned, without what infos say of the wall clock."""
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
    """Return where an environment stands, and what a call of `reset` or `step` returned."""
    return Shot(standing(env), returned(env, result))
