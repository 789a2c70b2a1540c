"""What an environment shows, as facts that can be compared here and across processes.

Invariant: two facts are equal exactly where their canonical bytes are; the text is only for messages.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import gymnasium as gym

from tsr_gym.codec import digest
from tsr_gym.errors import CheckFailed, SnapshotError
from tsr_gym.random_stream import canonical
from tsr_gym.snapshots import EnvState
from tsr_gym.stack import snapshot
from tsr_gym.state_env import StateEnv

MAX_EXCERPT = 80


class Fact(NamedTuple):
    """One thing that an environment showed.

    Attributes:
        what: What it is, and whose.
        digest: Fingerprint of its canonical bytes.
        text: Its representation.
    """

    what: str
    digest: str
    text: str


Shot = tuple[Fact, ...]


def name_of(thing: object) -> str:
    """Return how messages call an object: the name of its class."""
    return type(thing).__qualname__


def layers_of(env: gym.Env[Any, Any]) -> list[Any]:
    """Return the layers of a stack, outermost first, the environment last."""
    layers: list[Any] = [env]
    while isinstance(layers[-1], gym.Wrapper):
        layers.append(layers[-1].env)
    return layers


def state_env_of(env: gym.Env[Any, Any]) -> StateEnv[Any, Any, Any]:
    """Return the environment under the wrappers.

    Raises:
        CheckFailed: It is not a `StateEnv`.
    """
    base = env.unwrapped
    if not isinstance(base, StateEnv):
        raise CheckFailed(
            "known_layers",
            f"{name_of(base)} is not a tsr_gym.StateEnv: write it as one, so that its state is an immutable value",
        )
    return base


def fact(what: str, value: object) -> Fact:
    """Return a value as a fact.

    Raises:
        CheckFailed: The value holds something that is not plain data.
    """
    try:
        return Fact(what, digest(value), repr(value))
    except SnapshotError as error:
        raise CheckFailed("plain_data", f"{what} is not plain data: {error}") from error


def standing(env: gym.Env[Any, Any]) -> Shot:
    """Return where an environment stands: state, counters, random state, observation, and every wrapper's state.

    Raises:
        CheckFailed: A layer is not known, or holds something that is not plain data.
    """
    base = state_env_of(env)
    try:
        *outer, inner = snapshot(env).layers
    except SnapshotError as error:
        raise CheckFailed("known_layers", str(error)) from error
    if not isinstance(inner.state, EnvState):
        raise CheckFailed("known_layers", f"{name_of(base)}._layer() gave no EnvState: leave snapshots to StateEnv")
    name, episode = name_of(base), inner.state.episode
    facts = [
        fact(f"the state of {name}", episode.state),
        fact(f"the counters of {name}", tuple(episode)[1:]),
        fact(f"the random state of {name}", canonical(inner.state.position)),
        fact(f"what {name}.observe(state) returns", base.observe(episode.state)),
    ]
    # Innermost first: a difference is blamed on the layer in which it arises.
    facts += [fact(f"the state of {layer.kind.rpartition(':')[2]}", layer.state) for layer in reversed(outer)]
    return tuple(facts)


def returned(env: gym.Env[Any, Any], result: tuple[Any, ...]) -> Shot:
    """Return what a call of `reset` or `step` returned."""
    observation, *numbers, info = result
    names = ("reward", "terminated", "truncated")
    clocked = {layer._stats_key for layer in layers_of(env) if isinstance(layer, gym.wrappers.RecordEpisodeStatistics)}
    facts = [fact("the observation", observation)]
    facts += [fact(f"`{name}`", value) for name, value in zip(names, numbers, strict=False)]
    for key in sorted(info, key=repr):
        value = info[key]
        if key in clocked:
            # Gymnasium writes the elapsed seconds of the wall clock here.
            value = {name: number for name, number in value.items() if name != "t"}
        facts.append(fact(f"info[{key!r}]", value))
    return tuple(facts)


def shown(env: gym.Env[Any, Any], result: tuple[Any, ...]) -> Shot:
    """Return where an environment stands, and what a call of `reset` or `step` returned."""
    return (*standing(env), *returned(env, result))


def difference(wanted: Iterable[Fact], came: Iterable[Fact]) -> str | None:
    """Return the first difference between two shots in words, None where there is none."""
    wanted, came = tuple(wanted), tuple(came)
    for one, other in zip(wanted, came, strict=False):
        if one.what != other.what:
            return f"wanted {one.what}, got {other.what}"
        if one.digest != other.digest:
            return f"{one.what} differs: {_excerpts(one.text, other.text)}"
    if len(wanted) != len(came):
        extra = (wanted if len(wanted) > len(came) else came)[min(len(wanted), len(came))]
        return f"{extra.what} is {'missing' if len(wanted) > len(came) else 'new'}"
    return None


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
