"""Snapshots through a whole stack of wrappers around any environment.

Every layer must be known: our environments and wrappers declare their episode state, Gymnasium's wrappers are listed,
and other environments are read by the adapter of their type (`tsr_gym.foreign`). Anything else is refused by name,
because a snapshot that silently leaves out state would be wrong.
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
from tsr_gym.random_stream import check_seed
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
    """Return the wrappers, outermost first, and their base: an environment, or the recorder around one."""
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
            f"wanted a gymnasium.Env, got a {type(env).__name__}: a vector environment has single ones, use those"
        )
    return wrappers, env


class Stack:
    """A stack whose adapters are looked up once, for many snapshots and restores.

    It is valid as long as the same wrappers wrap the same environment.

    Args:
        env: An environment, bare or under wrappers.

    Attributes:
        env: The same.
        base: The innermost layer: an environment, or the recorder around one.

    Raises:
        SnapshotError: A layer is unknown.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        # Looking up the adapters takes longer than reading the states, so it is done once per stack.
        wrappers, base = _unstack(env)
        self.env = env
        self.base = base
        self._ours = isinstance(base, StateEnv)
        self._parts = [(wrapper_adapter_of(wrapper), wrapper) for wrapper in wrappers]
        # Innermost first, because a wrapper may read the environment that it wraps while its state is set.
        self._inside_out = range(len(wrappers) - 1, -1, -1)
        self._kinds = [adapter.kind for adapter, _ in self._parts]
        self._kinds.append(kind_of(base))

    def snapshot(self) -> Snapshot:
        """Return a snapshot, as `tsr_gym.snapshot` does."""
        state = self.base.env_state() if self._ours else self._foreign_state()
        inner = new_tuple(Layer, (self._kinds[-1], state))
        return Snapshot((*[adapter.read(wrapper) for adapter, wrapper in self._parts], inner))

    def _foreign_state(self) -> Any:
        base = self.base
        if any(isinstance(wrapper, OrderEnforcing) and not wrapper.has_reset for _, wrapper in self._parts):
            raise SnapshotError(f"{type(base.unwrapped).__name__} has no state yet: call reset() before snapshot()")
        return adapter_of(base).read(base)

    def restore(self, snap: Snapshot, seed: int | None = None) -> None:
        """Restore a snapshot, as `tsr_gym.restore` does, with its random numbers or, given a seed, with new ones."""
        if (kinds := snap.kinds) != self._kinds:
            raise SnapshotError(f"wanted a snapshot of {' < '.join(self._kinds)}, got {' < '.join(kinds)}")
        if snap.came_as_bytes:
            self._put_or_undo(snap.layers, seed)
        else:
            self._put(snap.layers, seed)

    def _put_or_undo(self, layers: tuple[Layer, ...], seed: int | None) -> None:
        """Restore layers from bytes, which may come from anywhere; if that fails, return to the state before."""
        before = self._standing()
        try:
            self._put(layers, seed)
        # Foreign wrappers and environments get their state here and may raise any exception.
        except Exception as error:
            if before is not None:
                self._put(before, None)
            if isinstance(error, SnapshotError):
                raise
            raise SnapshotError(f"the snapshot cannot be restored ({error}): damaged") from error

    def _standing(self) -> tuple[Layer, ...] | None:
        """Return the present layers; None where no episode has begun, or where only a replay could restore them."""
        base = self.base
        if isinstance(base, ReplayRecorder) or not (self._ours or position_in(base)):
            return None
        # A foreign environment may raise any exception before its first reset.
        with suppress(Exception):
            return self.snapshot().layers
        return None

    def _put(self, layers: tuple[Layer, ...], seed: int | None) -> None:
        # All layers are checked before any is written, so that a refused snapshot changes nothing.
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
    """Return a snapshot of everything that decides an environment's future, its wrappers included.

    Args:
        env: An environment, bare or under any stack of Gymnasium's wrappers, ours, and others that implement
            `SnapshotWrapper`. `env_support` reports how it is read.

    Raises:
        SnapshotError: `reset` was not called yet, a layer is unknown and may have hidden state, or the environment
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

    The environment may be another object, also in another process, and need not have been reset. Settings of wrappers,
    such as a limit of steps, are not part of a snapshot: make both stacks with the same settings.

    Args:
        env: A stack of the same wrappers over an environment with the same rules.
        snap: A result of `snapshot`.
        noise: ``"same"`` continues with the snapshot's random numbers, an exact replay; a search that uses it knows
            the future's random numbers. ``"fresh"`` and ``"common"`` draw new ones from `seed`: one seed per child, or
            one that siblings share.
        seed: Required for ``"fresh"`` and ``"common"``, refused for ``"same"``.

    Raises:
        SnapshotError: The snapshot belongs to another stack, other rules, or is damaged; nothing was changed. Or a
            replay differs from its record; the environment must then be reset.
        ValueError: `noise` is unknown, or does not fit `seed`, or that is no seed; nothing was changed.
    """
    if noise not in NOISES:
        raise ValueError(f"wanted noise of {NOISES}, got {noise!r}")
    if (noise == "same") != (seed is None):
        raise ValueError(f"noise={noise!r} {'takes no' if noise == 'same' else 'needs a'} seed, got seed={seed!r}")
    if seed is not None:
        check_seed(seed)
    Stack(env).restore(snap, seed)


def clone(env: EnvT) -> EnvT:
    """Return an independent copy of a stack in the same state.

    Raises:
        SnapshotError: `reset` was not called yet, a layer is unknown, or no other such environment can be made.
    """
    snap = snapshot(env)
    wrappers, base = _unstack(env)
    twin: Any = base.clone() if isinstance(base, StateEnv) else adapter_of(base).copy(base)
    # The copy of the base may be in any state: the restore at the end sets every layer.
    for wrapper in reversed(wrappers):
        twin = copied(wrapper, twin)
    restore(twin, snap)
    return twin  # type: ignore[no-any-return]


def env_support(env: gym.Env[Any, Any]) -> Support:
    """Return how snapshots of a stack are taken, and why; the weakest layer decides.

    The environment does not change. Copies of it, or equal environments, may be played for a few steps.

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
    # The state cannot be read, but an environment that repeats itself can still be replayed from its seed.
    last = REPLAY.support(base)
    if last.level == "none":
        return Support("none", f"{support.reason}; and {last.reason}")
    return Support(
        "replay",
        f"{support.reason}. Call tsr_gym.replayable(env) before reset(), and a restore will replay the episode",
    )


def replayable(env: EnvT) -> EnvT:
    """Return the same stack with a recorder directly around the environment, so that a restore can replay it.

    Call it before `reset`. It is for environments that cannot be copied (`env_support`); a restore then costs as many
    steps as the episode has so far. A stack is changed in place; a bare environment is wrapped.

    >>> import gymnasium as gym
    >>> env = replayable(gym.make("CartPole-v1"))
    >>> env_support(env).level
    'replay'
    """
    wrappers, base = _unstack(env)
    if isinstance(base, StateEnv | ReplayRecorder):
        return env
    # Directly around the environment, so that it records the actions as the environment gets them.
    recorder: Any = ReplayRecorder(base)
    if not wrappers:
        return recorder  # type: ignore[no-any-return]
    wrappers[-1].env = recorder
    return env
