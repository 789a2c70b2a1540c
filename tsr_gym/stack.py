"""Snapshots through a whole stack of wrappers around any environment.

Every layer must be known: our environments and wrappers say what their episode state is, Gymnasium's wrappers are
listed, environments of others are read by what fits their kind (`tsr_gym.foreign`), and anything else is refused by
name, because a silent gap would be a wrong snapshot.
"""

from contextlib import suppress
from typing import Any, Literal, TypeVar

import gymnasium as gym
from gymnasium.wrappers import OrderEnforcing

from tsr_gym.errors import SnapshotError
from tsr_gym.foreign.adapters import REPLAY, adapter_of, kind_of
from tsr_gym.foreign.gymnasium_wrappers import SnapshotWrapper, Wrapper, copied, wrapper_adapter_of
from tsr_gym.foreign.objects import SnapshotEnv, Support
from tsr_gym.foreign.recorder import ReplayRecorder, position_in
from tsr_gym.snapshots import Layer, Snapshot
from tsr_gym.state_env import StateEnv, new_tuple

__all__ = [
    "NOISES",
    "Noise",
    "SnapshotEnv",
    "SnapshotWrapper",
    "Stack",
    "Support",
    "clone",
    "env_support",
    "replayable",
    "restore",
    "snapshot",
]

Noise = Literal["same", "fresh", "common"]
NOISES: tuple[Noise, ...] = ("same", "fresh", "common")
EnvT = TypeVar("EnvT", bound=gym.Env[Any, Any])


def _unstack(env: gym.Env[Any, Any]) -> tuple[list[Wrapper], Any]:
    """Return the wrappers, outermost first, and what they stand on: an environment, or the recorder above one."""
    wrappers: list[Any] = []
    while isinstance(env, gym.Wrapper):
        wrappers.append(env)
        env = env.env
    if isinstance(env, StateEnv):
        return wrappers, env
    if wrappers and isinstance(wrappers[-1], ReplayRecorder):
        return wrappers[:-1], wrappers[-1]
    if not isinstance(env, gym.Env):
        raise SnapshotError(
            f"wanted a gymnasium.Env, got a {type(env).__name__}: of a vector environment, take its single ones"
        )
    return wrappers, env


class Stack:
    """A stack whose layers were looked up once, for many snapshots and restores.

    It holds for as long as the same wrappers stand around the same environment.

    Args:
        env: An environment, bare or under wrappers.

    Attributes:
        env: The same.
        base: What the wrappers stand on: an environment, or the recorder above one.

    Raises:
        SnapshotError: A layer is not known.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        wrappers, base = _unstack(env)
        self.env = env
        self.base = base
        self._ours = isinstance(base, StateEnv)
        self._parts = [(wrapper_adapter_of(wrapper), wrapper) for wrapper in wrappers]
        # Innermost first, so that a wrapper that is put back may look at what it wraps.
        self._inside_out = range(len(wrappers) - 1, -1, -1)
        self._kinds = [adapter.kind for adapter, _ in self._parts]
        self._kinds.append(kind_of(base))

    def snapshot(self) -> Snapshot:
        """Return what `tsr_gym.snapshot` says."""
        state = self.base.env_state() if self._ours else self._foreign_state()
        inner = new_tuple(Layer, (self._kinds[-1], state))
        return Snapshot((*[adapter.read(wrapper) for adapter, wrapper in self._parts], inner))

    def _foreign_state(self) -> Any:
        base = self.base
        if any(isinstance(wrapper, OrderEnforcing) and not wrapper.has_reset for _, wrapper in self._parts):
            raise SnapshotError(f"{type(base.unwrapped).__name__} has no state yet: call reset() before snapshot()")
        return adapter_of(base).read(base)

    def restore(self, snap: Snapshot, seed: int | None = None) -> None:
        """Do what `tsr_gym.restore` does, on the snapshot's own random numbers or on those of a seed."""
        if (kinds := snap.kinds) != self._kinds:
            raise SnapshotError(f"wanted a snapshot of {' < '.join(self._kinds)}, got {' < '.join(kinds)}")
        if snap.came_as_bytes:
            self._put_or_undo(snap.layers, seed)
        else:
            self._put(snap.layers, seed)

    def _put_or_undo(self, layers: tuple[Layer, ...], seed: int | None) -> None:
        """Go on from layers that anybody may have written; where that fails, stand as before."""
        before = self._standing()
        try:
            self._put(layers, seed)
        # Wrappers and environments of others are handed their state here, and may raise anything.
        except Exception as error:
            if before is not None:
                self._put(before, None)
            if isinstance(error, SnapshotError):
                raise
            raise SnapshotError(f"the snapshot cannot be put back ({error}): damaged") from error

    def _standing(self) -> tuple[Layer, ...] | None:
        """Return the layers to go back to; None where no episode has begun, or where only a replay would lead back."""
        base = self.base
        if isinstance(base, ReplayRecorder) or not (self._ours or position_in(base)):
            return None
        # An environment of others may raise anything before its first reset.
        with suppress(Exception):
            return self.snapshot().layers
        return None

    def _put(self, layers: tuple[Layer, ...], seed: int | None) -> None:
        parts, base = self._parts, self.base
        for number in self._inside_out:
            adapter, wrapper = parts[number]
            adapter.check(wrapper, layers[number])
        if self._ours:
            base.set_env_state(layers[-1].state, seed=seed)
        else:
            reader = adapter_of(base)
            reader.write(base, reader.check(base, layers[-1].state, seed), seed)
        for number in self._inside_out:
            adapter, wrapper = parts[number]
            adapter.write(wrapper, layers[number])


def snapshot(env: gym.Env[Any, Any]) -> Snapshot:
    """Return everything that decides an environment's future, its wrappers included.

    Args:
        env: An environment, bare or under any stack of Gymnasium's wrappers, ours, and others that implement
            `SnapshotWrapper`. What `env_support` says of it decides how it is read.

    Raises:
        SnapshotError: `reset` was not called yet, a layer is not known and may hold hidden state, or the environment
            cannot be read exactly.

    >>> import gymnasium as gym, tsr_gym
    >>> env = gym.make("CartPole-v1")
    >>> _ = env.reset(seed=1)
    >>> before = tsr_gym.snapshot(env)
    >>> first = env.step(0)[0]
    >>> tsr_gym.restore(env, before)
    >>> bool((env.step(0)[0] == first).all())
    True
    """
    return Stack(env).snapshot()


def restore(env: gym.Env[Any, Any], snap: Snapshot, *, noise: Noise = "same", seed: int | None = None) -> None:
    """Continue from a snapshot of an equal stack, in place.

    The environment may be another object, also in another process, and need not have been reset. The settings of
    wrappers, such as a limit of steps, are not part of a snapshot: make the stacks alike.

    Args:
        env: A stack of the same wrappers over an environment with the same rules.
        snap: What `snapshot` returned.
        noise: ``"same"`` continues on the snapshot's own random numbers, an exact replay; a search that does so
            sees the future's dice. ``"fresh"`` and ``"common"`` draw new ones from `seed`: one seed per child, or one
            that siblings share.
        seed: Needed for fresh and common noise, refused for the same.

    Raises:
        SnapshotError: The snapshot belongs to another stack, other rules, or is damaged; nothing was changed. Or a
            replay went another way than the record; the environment must then be reset.
        ValueError: Noise and seed contradict each other.
    """
    if noise not in NOISES:
        raise ValueError(f"wanted noise of {NOISES}, got {noise!r}")
    if (noise == "same") != (seed is None):
        raise ValueError(f"noise={noise!r} {'takes no' if noise == 'same' else 'needs a'} seed, got seed={seed!r}")
    Stack(env).restore(snap, seed)


def clone(env: EnvT) -> EnvT:
    """Return an independent copy of a stack in the same state.

    Raises:
        SnapshotError: `reset` was not called yet, a layer is not known, or another such environment cannot be made.
    """
    snap = snapshot(env)
    wrappers, base = _unstack(env)
    twin: Any = base.clone() if isinstance(base, StateEnv) else adapter_of(base).copy(base)
    for wrapper in reversed(wrappers):
        twin = copied(wrapper, twin)
    restore(twin, snap)
    return twin  # type: ignore[no-any-return]


def env_support(env: gym.Env[Any, Any]) -> Support:
    """Return what snapshots of a stack rest on, and why; the weakest layer decides.

    The environment is not disturbed. Copies of it, or another one of its kind, may be played for a few steps.

    >>> import gymnasium as gym
    >>> env_support(gym.make("CartPole-v1")).level
    'deepcopy'
    """
    try:
        wrappers, base = _unstack(env)
        for wrapper in wrappers:
            wrapper_adapter_of(wrapper)
    except SnapshotError as error:
        return Support("none", str(error))
    if isinstance(base, StateEnv):
        return Support("exact", f"the state of {type(base).__name__} is an immutable value")
    adapter = adapter_of(base)
    support = adapter.support(base)
    if support.level != "none" or adapter is REPLAY:
        return support
    last = REPLAY.support(base)
    if last.level == "none":
        return Support("none", f"{support.reason}; and {last.reason}")
    return Support(
        "replay", f"{support.reason}; so call tsr_gym.replayable(env) before reset(), and a restore will replay"
    )


def replayable(env: EnvT) -> EnvT:
    """Return the same stack with a recorder right above the environment, so that a restore can replay it.

    Call it before `reset`. It is for environments that cannot be copied (`env_support`); a restore then costs as many
    steps as the episode has taken. A stack is changed in place; a bare environment is wrapped.

    >>> import gymnasium as gym
    >>> env = replayable(gym.make("CartPole-v1"))
    >>> env_support(env).level
    'replay'
    """
    wrappers, base = _unstack(env)
    if isinstance(base, StateEnv | ReplayRecorder):
        return env
    recorder: Any = ReplayRecorder(base)
    if not wrappers:
        return recorder  # type: ignore[no-any-return]
    wrappers[-1].env = recorder
    return env
