"""StateEnv: an environment as a thin shell around an immutable state.

The author writes `initial`, `transition` and `observe`. Everything else of an episode (random stream, counters, limits,
its end) is in this class, so snapshots are right by construction.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

import gymnasium as gym
import numpy as np
from gymnasium.core import RenderFrame
from gymnasium.error import ResetNeeded
from gymnasium.utils import seeding

from tsr_gym.codec import encode, mutable_part
from tsr_gym.errors import ConfigError, EpisodeOver, SnapshotError, TsrGymError, shown
from tsr_gym.random_stream import RandomStream, Seeded, check_seed, is_position
from tsr_gym.ranges import check_limits
from tsr_gym.snapshots import EnvState, Layer, Snapshot

StateT = TypeVar("StateT")
ObsT = TypeVar("ObsT")
ActT = TypeVar("ActT")


class Step(NamedTuple):
    """The result of one transition.

    `state` is the new immutable state, `terminated` whether the task itself ended, `info` facts about this transition.
    With two facts the action does not count towards the limit: ``info["action_is_valid"] = False`` (it has no meaning)
    and ``info["action_is_executed"] = False`` (it was understood and not executed). The reward always counts.
    """

    state: Any
    reward: float
    terminated: bool
    info: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits at which an episode is truncated; None means no limit.

    Attributes:
        max_turns: Calls of `step` in an episode.
        max_actions_per_turn: Actions of one turn that are executed; further ones are dropped.
        max_actions: Actions in an episode.
    """

    max_turns: int | None = None
    max_actions_per_turn: int | None = None
    max_actions: int | None = None

    def __post_init__(self) -> None:
        check_limits(
            max_turns=self.max_turns, max_actions_per_turn=self.max_actions_per_turn, max_actions=self.max_actions
        )


class Episode(NamedTuple):
    """The state of an episode: the author's state and the counters of the base class."""

    state: Any
    turns: int = 0
    actions: int = 0
    terminated: bool = False
    truncated: bool = False


class _NoNoise:
    """Replaces the generator of an environment that promises to draw nothing; any use of it is an error."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise TsrGymError(
            f"transition() used rng.{name}, but the environment declares draws_noise = False: change one of the two"
        )


NO_NOISE: Any = _NoNoise()
_BOOL = (bool, np.bool_)
# Makes a NamedTuple like its constructor, in half the time.
new_tuple = tuple.__new__


class StateEnv(gym.Env[ObsT, ActT], Generic[StateT, ObsT, ActT]):
    """A Gymnasium environment whose whole episode is one immutable value.

    A subclass sets `observation_space` and `action_space` and writes three pure functions:

    - ``initial(rng, options) -> state``: the start of an episode; all randomness comes from `rng`.
    - ``transition(state, action, rng) -> Step``: the rules; never changes attributes of `self`. Rules that depend
      on the number of the turn keep that number in the state.
    - ``observe(state) -> observation``: a new observation.

    States are NamedTuples or frozen dataclasses of numbers, text, tuples and read-only arrays.

    Args:
        rules: Immutable configuration that the rules depend on; part of every snapshot.
        limits: When an episode is truncated.
        render_mode: One of ``metadata["render_modes"]`` or None.

    Attributes:
        first_facts: What `reset` reports for the facts of `transition`, so that all infos have the same keys: clients
            store them in tables.
        draws_noise: Whether `transition` may draw random numbers. Environments that never do set it to False, and
            then a restore never touches the generator.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012 (Gymnasium's own form)
    first_facts: Mapping[str, Any] = MappingProxyType({})
    draws_noise: bool = True

    def __init__(self, rules: Any = None, *, limits: Limits | None = None, render_mode: str | None = None) -> None:
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ConfigError(f"wanted a render_mode of {self.metadata['render_modes']}, got {render_mode!r}")
        self.limits = limits or Limits()
        self.render_mode = render_mode
        self._rules = (rules, self.limits)
        self._kind = f"{type(self).__module__}:{type(self).__qualname__}"
        self._stream = RandomStream()
        self._episode: Episode | None = None
        # Looking at a whole state takes longer than a snapshot. So it is done for the first snapshot of an episode, and
        # for the first one after a turn that is later than all inspected ones.
        self._is_new, self._inspected = True, 0
        # The last state that `env_state` returned, and the last one that was checked.
        self._taken: EnvState | None = None
        self._checked: EnvState | None = None

    # What the author writes.

    def initial(self, rng: np.random.Generator, options: dict[str, Any]) -> StateT:
        """Return the state at the start of an episode."""
        raise NotImplementedError

    def transition(self, state: StateT, action: ActT, rng: np.random.Generator) -> Step:
        """Return the result of one action in a state."""
        raise NotImplementedError

    def observe(self, state: StateT) -> ObsT:
        """Return a new observation of a state."""
        raise NotImplementedError

    def state_key(self, state: StateT) -> bytes:
        """Return bytes that are equal only where two states have the same future under the rules.

        By default those of the whole state. Leave out history and what is only shown, so that more states are equal.
        For transpositions, anchor groups and duplicate instances.
        """
        return encode(state)

    # What the base provides.

    # Gymnasium keeps its generator in this attribute. Code that reads it may keep it and draw from it, so `expose`
    # makes the stream read the position from the generator from now on.
    @property
    def _np_random(self) -> np.random.Generator | None:
        return self._stream.expose()

    @_np_random.setter
    def _np_random(self, generator: np.random.Generator | None) -> None:
        # Code that sets the generator may keep it, too.
        self._stream = RandomStream(generator)
        self._stream.expose()

    @property
    def rules(self) -> Any:
        """The configuration that the rules depend on."""
        return self._rules[0]

    @property
    def state(self) -> StateT:
        """The author's state of the running episode.

        Raises:
            ResetNeeded: `reset` was not called yet.
        """
        state: StateT = self._current().state
        return state

    @property
    def episode(self) -> Episode:
        """State and counters of the running episode."""
        return self._current()

    @property
    def drew_noise(self) -> bool:
        """Whether random numbers may have been drawn since the last `restore` or `snapshot`."""
        return not self._stream.untouched

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[ObsT, dict[str, Any]]:
        """Start an episode.

        Args:
            seed: Seed of the episode; None continues the random stream of the earlier episodes.
            options: Passed to `initial`. ``"snapshot"`` starts in the middle of an episode instead: in the state and
                with the counters of a snapshot of this environment, with or without wrappers, and with new random
                numbers.

        Raises:
            SnapshotError: The snapshot is of another environment, or its episode has ended; nothing was changed.
        """
        given = dict(options or {})
        start = None if (snap := given.pop("snapshot", None)) is None else self._start_of(snap)
        if seed is not None or not self._stream.seeded:
            # As in Env.reset, except that the generator stays private until `np_random` is read.
            generator, self._np_random_seed = seeding.np_random(seed)
            self._stream = RandomStream(generator)
        self._episode, self._is_new = start or Episode(self.initial(self._stream.draw(), given)), True
        state, turns, actions, *_ = self._episode
        return self.observe(state), {**self.first_facts, **self._left(turns, actions), **self._facts(state)}

    def _left(self, turns: int, actions: int) -> dict[str, Any]:
        """Return the turns and actions that are left, as far as they are limited."""
        limits = (("turns_left", self.limits.max_turns, turns), ("actions_left", self.limits.max_actions, actions))
        return {name: limit - used for name, limit, used in limits if limit is not None}

    def _start_of(self, snap: Snapshot) -> Episode:
        state = self._state_in(snap)
        self._check(state)
        episode: Episode = state.episode
        if episode.terminated or episode.truncated:
            raise SnapshotError("wanted a snapshot of a running episode, got one after its end")
        return episode

    def step(self, action: ActT) -> tuple[ObsT, float, bool, bool, dict[str, Any]]:
        """Take one turn.

        Raises:
            ResetNeeded: `reset` was not called yet.
            EpisodeOver: The episode has ended.
        """
        if self._episode is None:
            self._refuse()
        start, turns, actions, terminated, truncated = self._episode
        if terminated or truncated:
            self._refuse()
        rng = self._stream.draw() if self.draws_noise else NO_NOISE
        state, reward, terminated, facts = self.transition(start, action, rng)
        turns, actions = turns + 1, actions + 1
        left = self._left(turns, actions)
        truncated = not terminated and 0 in left.values()
        info = {**facts, **left, **self._facts(state)}
        observation = self.observe(state)
        self._is_new = self._is_new or turns > self._inspected
        # Assigned last, so that an exception in the author's functions leaves the episode unchanged.
        self._episode = new_tuple(Episode, (state, turns, actions, terminated, truncated))
        return observation, reward, terminated, truncated, info

    def _facts(self, state: StateT) -> dict[str, Any]:
        """Return the entries that every info of this environment has in a state, in new containers."""
        return {}

    def snapshot(self) -> Snapshot:
        """Return this environment's state, random state and counters; wrappers are not included.

        Use `tsr_gym.snapshot(env)` for a whole stack.

        Raises:
            SnapshotError: `reset` was not called yet, or the state can be changed in place.
        """
        return Snapshot((new_tuple(Layer, (self._kind, self.env_state())),))

    def restore(self, snapshot: Snapshot, *, seed: int | None = None) -> None:
        """Continue from a snapshot of an environment with the same class and rules.

        Args:
            snapshot: A result of `snapshot`, from this environment, a clone or another process.
            seed: None continues with the snapshot's random numbers (exact replay); a number draws new ones.

        Raises:
            SnapshotError: The snapshot is of another environment; this environment is then unchanged.
            ValueError: The seed is no whole number >= 0; this environment is then unchanged.
        """
        if seed is not None:
            check_seed(seed)
        if (num := len(snapshot.kinds)) != 1:
            raise SnapshotError(
                f"wanted a snapshot of a bare {type(self).__name__}, got one of a stack of {num} "
                "layers: use tsr_gym.restore(env, snapshot)"
            )
        self.set_env_state(self._state_in(snapshot), seed=seed)

    def env_state(self) -> EnvState:
        """Return rules, state, counters and random state of the episode as one immutable value.

        Raises:
            SnapshotError: `reset` was not called yet, or the state can be changed in place.
        """
        if self._is_new:
            self._inspect()
        self._taken = new_tuple(EnvState, (self._rules, self._episode, self._stream.position))
        return self._taken

    def _inspect(self) -> None:
        """Raise SnapshotError unless there is a state that no later turn can change in place."""
        if self._episode is None:
            raise SnapshotError(f"{type(self).__name__} has no state yet: call reset() before snapshot()")
        state, turns, *_ = self._episode
        if part := mutable_part(state):
            where, what = part
            raise SnapshotError(
                f"wanted an immutable state of {type(self).__name__}, got {what} in {type(state).__name__}{where}: "
                "a later turn may change it in this snapshot, too; use a tuple, a frozenset, a frozen dataclass, or an "
                "array with flags.writeable = False"
            )
        self._is_new, self._inspected = False, max(turns, self._inspected)

    def set_env_state(self, state: EnvState, *, seed: int | None = None) -> None:
        """Continue from a result of `env_state`, in an environment with the same rules.

        Args:
            state: The result of `env_state`.
            seed: As in `restore`.

        Raises:
            SnapshotError: The state is of another environment; this environment is then unchanged.
        """
        self._check(state)
        self._episode = state.episode
        self._stream.position = state.position if seed is None else Seeded(seed)
        # Gymnasium uses -1 for an unknown seed. With None, reading `np_random_seed` would replace the generator.
        self._np_random_seed = -1 if seed is None else seed

    def clone(self) -> "StateEnv[StateT, ObsT, ActT]":
        """Return an independent environment in the same state; wrappers are not included."""
        if self._is_new and self._episode is not None:
            self._inspect()
        twin = copy.copy(self)
        # The state is immutable, so a shallow copy is enough. Only the generator is mutable and must be separate.
        twin._stream = RandomStream(position=self._stream.position if self._stream.seeded else None)
        return twin

    def render(self) -> RenderFrame | list[RenderFrame] | None:
        """Return the frame for `render_mode`; ``"ansi"`` is the observation as text."""
        return str(self.observe(self.state)) if self.render_mode == "ansi" else None

    def _state_in(self, snap: Snapshot) -> EnvState:
        """Return the state in the innermost layer of a snapshot, which must be of this class."""
        class_name = snap.kinds[-1]
        if class_name != self._kind:
            raise SnapshotError(f"wanted a snapshot of {self._kind}, got one of {class_name}")
        state: EnvState = snap.layers[-1][1]
        return state

    def _check(self, state: EnvState) -> None:
        """Raise SnapshotError unless an episode can continue from a state."""
        # A search restores the same snapshot for each child of a node.
        if state is self._taken or state is self._checked:
            return
        if not isinstance(state, EnvState):
            raise SnapshotError(f"wanted the state of a {self._kind}, got {shown(state)}: damaged")
        if state.rules is not self._rules and not _equal(state.rules, self._rules):
            raise SnapshotError(
                f"the snapshot was taken under other rules: wanted {self._rules}, got {shown(state.rules)}; make the "
                "environment with the same settings"
            )
        if not (_can_be_played(state.episode, self.limits) and is_position(state.position)):
            raise SnapshotError(f"wanted the state of an episode of {self._kind}, got {shown(state)}: damaged")
        self._checked = state

    def _current(self) -> Episode:
        if self._episode is None:
            self._refuse()
        return self._episode

    def _refuse(self) -> NoReturn:
        if self._episode is None:
            raise ResetNeeded(f"{type(self).__name__} has no episode: call reset() first")
        raise EpisodeOver(f"the episode of {type(self).__name__} has ended: call reset() or restore a snapshot")


def _equal(left: Any, right: Any) -> bool:
    try:
        return bool(left == right)
    # Rules that were read from bytes may hold any value, such as an array, whose comparison has no truth value.
    except Exception:
        return False


def _can_be_played(episode: Any, limits: Limits) -> bool:
    """Return whether play under these limits can lead to the counters of an episode."""
    if type(episode) is not Episode:
        return False
    _, turns, actions, terminated, truncated = episode
    if not (type(turns) is type(actions) is int and isinstance(terminated, _BOOL) and isinstance(truncated, _BOOL)):
        return False
    # A running episode has at least one turn and one action left.
    spare = 0 if terminated or truncated else 1
    max_turns, max_actions = limits.max_turns, limits.max_actions
    return (
        turns >= 0
        and actions >= 0
        and (max_turns is None or turns + spare <= max_turns)
        and (max_actions is None or actions + spare <= max_actions)
    )


def unbegun(env: StateEnv[StateT, ObsT, ActT]) -> StateEnv[StateT, ObsT, ActT]:
    """Return an independent environment with the same settings, in the state before its first `reset`."""
    twin = copy.copy(env)
    twin._stream, twin._episode, twin._is_new = RandomStream(), None, True
    return twin


def left(env: StateEnv[Any, Any, Any]) -> tuple[int | None, int | None]:
    """Return the turns and the actions that the limits of an environment still allow in the running episode."""
    limits, episode = env.limits, env.episode
    return (
        None if limits.max_turns is None else limits.max_turns - episode.turns,
        None if limits.max_actions is None else limits.max_actions - episode.actions,
    )


def episode_of(snap: Snapshot | None) -> Episode:
    """Return the state and the counters of the environment in a snapshot, without restoring it.

    Raises:
        TsrGymError: There is no snapshot, or it is not of a `StateEnv`.
    """
    inner = None if snap is None else snap.layers[-1].state
    if not isinstance(inner, EnvState):
        raise TsrGymError(f"wanted the snapshot of a StateEnv, got {type(inner).__name__}")
    episode: Episode = inner.episode
    return episode
