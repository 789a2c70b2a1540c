"""What two environments must have in common for a snapshot of one to fit the other."""

from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from tsr_gym.codec import encode
from tsr_gym.errors import SnapshotError
from tsr_gym.foreign.objects import attributes_of, module_of
from tsr_gym.foreign.portable import portable
from tsr_gym.foreign.thawed import frozen
from tsr_gym.foreign.verdicts import Verdicts

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
