"""BatchEnv: many environments of one game in arrays, each equal to a single environment with its seed.

Invariant: environment k depends on its own row of every column only, so results do not depend on how many there are.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import gymnasium as gym
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from tsr_gym import ConfigError, EpisodeOver, Limits, Snapshot, SnapshotError
from tsr_gym.snapshots import Layer
from tsr_gym_envs.columns import (
    NO_LIMIT,
    NUM_ACTIONS,
    BatchStep,
    Column,
    Columns,
    Field,
    Fields,
    Indices,
    Seeds,
    as_actions,
    as_mask,
    as_numbers,
    as_seeds,
    as_targets,
    count_all,
)
from tsr_gym_envs.compiled import WORDS, seed_all, set_words, words_of

# The index of all environments.
ALL = slice(None)
# The columns of all games: random streams (all 0 until seeded), actions taken, and whether the episode has ended.
SHARED: Fields = (Field("streams", np.uint64, WORDS), Field("taken", np.int64), Field("over", np.bool_))


class BatchState(NamedTuple):
    """The state in a snapshot of a batch.

    Attributes:
        rules: The settings.
        num_envs: Number of environments.
        buffer: The bytes of their columns.
    """

    rules: Any
    num_envs: int
    buffer: NDArray[np.uint8]


class BatchEnv(VectorEnv[Any, Any, Any]):
    """A vector environment that is exactly as many environments of the discrete form, seed by seed and draw by draw.

    Infos hold an array for every key, and under ``_key`` a mask of the environments that have it, as Gymnasium's own
    vector environments do; no dictionary is built per environment, so that infos are cheap. A key stays present
    even if no environment has it. They have ``actions_left`` only if actions are limited. ``action_mask`` `[N, 4]` is
    that of the single environments. The facts of an action have the values of `first_facts` in an environment that was
    reset. Observations and infos are new arrays at every call.

    A subclass holds the board, its columns, and the rules.

    A search plays in a separate copy (`take`), in which `select` copies environments over others and `advance` steps
    them without automatic resets, observations and infos.

    Args:
        num_envs: How many environments.
        settings: Settings of the game.
        layout: The game's own columns.
        single_observation_space: The space of one observation.
        autoreset_mode: The reset after the end of an episode: ``"NextStep"``, ``"SameStep"`` or ``"Disabled"``.
        render_mode: ``"ansi"``, ``"rgb_array"`` or None; `render` returns a frame per environment.

    Raises:
        ConfigError: A setting is impossible.
    """

    first_facts: Mapping[str, Any] = MappingProxyType({})

    def __init__(
        self,
        num_envs: int,
        settings: Any,
        *,
        layout: Fields,
        single_observation_space: gym.Space[Any],
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
    ) -> None:
        modes = [mode.value for mode in AutoresetMode]
        if autoreset_mode not in (*modes, *AutoresetMode):
            raise ConfigError(f"wanted autoreset_mode of {modes}, got {autoreset_mode!r}")
        if render_mode not in (None, "ansi", "rgb_array"):
            raise ConfigError(f"wanted a render_mode of ['ansi', 'rgb_array'], got {render_mode!r}")
        self.settings = settings
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.render_mode = render_mode
        self.metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4, "autoreset_mode": self.autoreset_mode}
        self.single_observation_space = single_observation_space
        self.single_action_space = gym.spaces.Discrete(NUM_ACTIONS)
        self._kind = f"{type(self).__module__}:{type(self).__qualname__}"
        self._source = np.random.Generator(np.random.PCG64(0))
        self._limit = Limits(max_actions=settings.max_actions).max_actions
        self._is_pooled = False
        self._layout = SHARED + layout
        self._make_columns(num_envs)

    def _make_columns(self, num_envs: int) -> None:
        """Make everything that depends on the number of environments."""
        if num_envs < 1:
            raise ConfigError(f"wanted num_envs >= 1, got {num_envs}")
        self.num_envs = num_envs
        self._all_numbers = np.arange(num_envs)
        self._everyone = np.ones(num_envs, np.bool_)
        self._no_seeds: Sequence[int | None] = [None] * num_envs
        self._is_ready = False
        self._columns = Columns(self._layout, num_envs)
        self._streams, self._taken, self._over = (self._columns.by_name[field.name] for field in SHARED)
        self._bind(self._columns.by_name)

    def __reduce__(self) -> tuple[Any, ...]:
        # The columns are views of one buffer. A generic copy would copy each of them, and they would no longer share
        # it.
        parts = (type(self), self.num_envs, self.settings, self.autoreset_mode, self.render_mode, self.spec)
        return _rebuilt, (*parts, self._columns.buffer.copy())

    @cached_property
    def observation_space(self) -> gym.Space[Any]:  # type: ignore[override]
        """The space of all observations together."""
        return batch_space(self.single_observation_space, self.num_envs)

    @cached_property
    def action_space(self) -> gym.Space[Any]:  # type: ignore[override]
        """The space of all actions together."""
        return batch_space(self.single_action_space, self.num_envs)

    # Methods of a game.

    @property
    def draws_noise(self) -> bool:
        """Whether actions have random outcomes."""
        raise NotImplementedError

    def _bind(self, columns: Mapping[str, Column]) -> None:
        """Store the game's columns after they were made anew."""
        raise NotImplementedError

    def observe(self, envs: Column | slice = ALL) -> Any:
        """Return the current observations of some environments, all by default, as new arrays or texts."""
        raise NotImplementedError

    def _draw(self, envs: Column) -> None:
        """Start episodes in compiled code; called only if the starting positions are a fixed pool."""
        raise NotImplementedError

    def _start(self, env: int, rng: np.random.Generator, seed: int | None, options: dict[str, Any]) -> None:
        """Start an episode as the single environment does in a reset."""
        raise NotImplementedError

    def _play(self, actions: Column, resting: Column) -> BatchStep:
        """Take one action in every environment that is not resting."""
        raise NotImplementedError

    def _success(self) -> Column:
        """Return `[N]`, True for solved tasks."""
        raise NotImplementedError

    def _masks(self) -> Column:
        """Return `[N, 4]` int8, 1 for the actions that can change the position; all 1 where none can."""
        raise NotImplementedError

    def _frame(self, env: int) -> Any:
        """Return the frame of one environment for `render_mode`."""
        raise NotImplementedError

    # Methods shared by all games.

    def reset(self, *, seed: Seeds = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start episodes.

        Args:
            seed: A number s for seeds s, s + 1, ..., a list with a seed or None for each environment, or None to
                continue the streams.
            options: ``"reset_mask"``, booleans `[N]`, selects environments; all other options are those of the single
                environment and apply to every selected one.
        """
        remaining = dict(options or {})
        mask = remaining.pop("reset_mask", None)
        envs = self._all_numbers if mask is None else as_mask(mask, self.num_envs)
        seeds = as_seeds(seed, self.num_envs)
        for env in envs.tolist():
            # A stream of zeros was never seeded; the single environment also draws a seed on its first reset.
            if seeds[env] is not None or not self._streams[env].any():
                self._streams[env] = words_of(seeding.np_random(seeds[env])[0])
        self._begin(envs, seeds, remaining)
        self._is_ready = bool(self._streams.any(axis=1).all())
        selected = np.zeros(self.num_envs, np.bool_)
        selected[envs] = True
        return self.observe(), self._infos(selected, {}, np.zeros_like(selected))

    def step(self, actions: Any) -> tuple[Any, Column, Column, Column, dict[str, Any]]:
        """Take an action in every environment; `autoreset_mode` decides about ended episodes.

        Raises:
            ResetNeeded: An environment was never reset.
            EpisodeOver: An episode has ended, and the mode is ``"Disabled"``.
            InvalidAction: The actions are not `[N]` numbers from 0 to 3.
        """
        actions = self._checked(actions)
        resting = self._over.copy()
        played = None
        if resting.any():
            played = ~resting
            self._restart(resting)
        (rewards, terminated, facts), truncated = self._turn(actions, resting)
        # With the mode same-step, the returned observations belong to the new episodes, and the final ones go into the
        # infos.
        if self.autoreset_mode is AutoresetMode.SAME_STEP and self._over.any():
            infos = self._reset_at_once(facts)
        else:
            infos = self._infos(self._everyone, facts, played)
        return self.observe(), rewards, terminated, truncated, infos

    def snapshot(self, indices: Indices | None = None) -> Snapshot:
        """Return some environments' boards, counters and random streams, all by default."""
        num, taken = self.num_envs, self._columns
        if indices is None:
            buffer = taken.buffer.copy()
        else:
            envs = as_numbers(indices, self.num_envs)
            num, taken = len(envs), Columns(self._layout, len(envs))
            for name, column in taken.by_name.items():
                column[:] = self._columns.by_name[name][envs]
            buffer = taken.buffer
        buffer.setflags(write=False)
        return Snapshot((Layer(self._kind, BatchState(self.settings, num, buffer)),))

    def restore(self, snapshot: Snapshot, indices: Indices | None = None, *, seed: Seeds = None) -> None:
        """Continue some environments from a snapshot, all by default.

        Args:
            snapshot: A result of `snapshot`, from this batch or one of any size with the same settings.
            indices: The environments to restore, one per environment in the snapshot; a snapshot of one fits any
                number.
            seed: None continues on the snapshot's own random numbers; otherwise seeds of fresh ones, as in `reset`.

        Raises:
            SnapshotError: The snapshot belongs to something else or is of another size; nothing was changed.
        """
        envs = self._all_numbers if indices is None else as_numbers(indices, self.num_envs)
        seeds = as_seeds(seed, self.num_envs)
        owner, state = snapshot.layers[0].kind, snapshot.layers[0].state
        if owner != self._kind or not isinstance(state, BatchState):
            raise SnapshotError(f"wanted a snapshot of {self._kind}, got one of {owner}")
        if state.rules is not self.settings and state.rules != self.settings:
            raise SnapshotError(f"the snapshot was taken under other rules: wanted {self.settings}")
        if state.num_envs not in (1, len(envs)):
            raise SnapshotError(f"wanted a snapshot of {len(envs)} environments or of one, got {state.num_envs}")
        if indices is None and state.num_envs == self.num_envs and state.buffer.shape == self._columns.buffer.shape:
            self._columns.buffer[:] = state.buffer
        else:
            self._put(state, envs)
        if seed is not None:
            for env in envs.tolist():
                if seeds[env] is not None:
                    self._streams[env] = words_of(seeding.np_random(seeds[env])[0])
        self._is_ready = self._is_ready or bool(self._streams.any(axis=1).all())

    def fork(self, index: int, targets: int | Indices) -> NDArray[np.int64]:
        """Copy one environment into others, random stream included, and return their numbers.

        Args:
            index: The environment to copy.
            targets: The environments to overwrite; a number n stands for the next n, continuing at 0 after the last.
        """
        envs = as_targets(index, targets, self.num_envs)
        self.select(np.full(envs.size, index), into=envs)
        return envs

    def take(self, rows: Indices) -> Self:
        """Return a batch of copies of some environments, random streams included: its environment j is `rows[j]`."""
        numbers = as_numbers(rows, self.num_envs)
        # The constructor would make all levels of the pool again; the copy shares everything except the columns.
        batch = object.__new__(type(self))
        vars(batch).update(vars(self))
        batch._source = np.random.Generator(np.random.PCG64(0))
        # Spaces are made on first use, because making them takes longer than copying the environments.
        vars(batch).pop("observation_space", None)
        vars(batch).pop("action_space", None)
        batch._make_columns(len(numbers))
        batch.select(numbers, source=self)
        return batch

    def select(
        self,
        rows: Indices,
        *,
        source: "BatchEnv | None" = None,
        into: Indices | None = None,
        seeds: Column | None = None,
    ) -> None:
        """Make environments copies of others, all at once: environment `into[j]` of environment `rows[j]`.

        Args:
            rows: The environments to copy, with repetitions.
            source: The batch to copy from, with the same settings; None for this one.
            into: The environments to overwrite; None for all of them, in order.
            seeds: `[len(rows)]` seeds of fresh random numbers, as in `restore`; None copies the random streams.

        Raises:
            ConfigError: There are not as many rows as environments to fill, or the settings differ.
        """
        origin = self if source is None else source
        numbers = as_numbers(rows, origin.num_envs)
        filled = self._all_numbers if into is None else as_numbers(into, self.num_envs)
        if len(numbers) != len(filled) or (seeds is not None and len(seeds) != len(filled)):
            raise ConfigError(f"wanted a row, and a seed if any, for each of {len(filled)} environments")
        if origin.settings is not self.settings and (origin._kind, origin.settings) != (self._kind, self.settings):
            raise ConfigError("wanted a source with the same settings: copy from a batch that take() made")
        self._columns.copy_rows(numbers, origin._columns, filled)
        if seeds is not None:
            seed_all(self._streams, filled, np.asarray(seeds, np.uint64))
        # Checked only if it can have changed, because the check takes as long as the copy.
        self._is_ready = (self._is_ready and origin._is_ready) or bool(self._streams.any(axis=1).all())

    @property
    def over(self) -> Column:
        """`[N]`, True for ended episodes."""
        return self._over.copy()

    def advance(self, actions: Any) -> tuple[Column, Column, Column]:
        """Step the environments whose episode continues; rest the others, without resets and observations.

        Returns:
            Rewards, terminated and truncated, `[N]` each; 0 and False where an environment rested.
        """
        outcome, truncated = self._turn(self._checked(actions), self._over.copy())
        return outcome.rewards, outcome.terminated, truncated

    def render(self) -> tuple[Any, ...] | None:
        """Return a frame per environment."""
        return None if self.render_mode is None else tuple(self._frame(env) for env in range(self.num_envs))

    def _put(self, state: BatchState, envs: Column) -> None:
        try:
            columns = Columns(self._layout, state.num_envs, state.buffer)
        except ValueError as error:
            raise SnapshotError(f"the snapshot is damaged: {error}") from error
        for name, column in columns.by_name.items():
            self._columns.by_name[name][envs] = column

    def _begin(self, envs: Column, seeds: Sequence[int | None], options: dict[str, Any]) -> None:
        """Start episodes, each from its own stream."""
        if self._is_pooled and not options:
            self._draw(envs)
        else:
            for env in envs.tolist():
                # One Generator serves all environments: it is moved to the environment's position and read back
                # afterwards.
                set_words(self._source, self._streams[env])
                self._start(env, self._source, seeds[env], options)
                self._streams[env] = words_of(self._source)
        self._taken[envs] = 0
        self._over[envs] = False

    def _turn(self, actions: Column, resting: Column) -> tuple[BatchStep, Column]:
        """Step the environments that do not rest; return the outcome, and which episodes the limit ended."""
        outcome = self._play(actions, resting)
        truncated = np.zeros(self.num_envs, np.bool_)
        limit = NO_LIMIT if self._limit is None else self._limit
        count_all(resting, outcome.terminated, limit, self._taken, self._over, truncated)
        return outcome, truncated

    def _restart(self, ended: Column) -> None:
        """Start new episodes where they have ended, one step ago."""
        if self.autoreset_mode is AutoresetMode.DISABLED:
            raise EpisodeOver(
                f"the episodes of environments {np.flatnonzero(ended).tolist()} have ended: call "
                "reset(options={'reset_mask': mask}) or restore a snapshot"
            )
        self._begin(np.flatnonzero(ended), self._no_seeds, {})

    def _reset_at_once(self, facts: dict[str, Column]) -> dict[str, Any]:
        """Start new episodes where they have ended; return infos with the old episodes' final ones."""
        over = self._over.copy()
        ended = np.flatnonzero(over)
        last = np.full(self.num_envs, None, object)
        for env, observation in zip(ended.tolist(), self.observe(ended), strict=True):
            last[env] = observation
        final = self._infos(over, {name: fact * over for name, fact in facts.items()})
        self._begin(ended, self._no_seeds, {})
        infos = self._infos(self._everyone, facts, ~over)
        return {**infos, "final_obs": last, "_final_obs": over, "final_info": final, "_final_info": over.copy()}

    def _infos(self, selected: Column, facts: dict[str, Column], played: Column | None = None) -> dict[str, Any]:
        """Return infos of selected environments, 0 and False for all others.

        Args:
            selected: `[N]`, the environments.
            facts: Facts of the actions, `[N]` each.
            played: `[N]`, those that took an action; the others were reset. None for all.
        """
        columns = {"success": self._success(), "action_mask": self._masks()}
        if self._limit is not None:
            columns["actions_left"] = self._limit - self._taken
        for name, first in self.first_facts.items():
            columns[name] = facts[name] if played is None else np.where(played, facts.get(name, first), first)
        infos: dict[str, Any] = {}
        for name, column in columns.items():
            # Transposed, so that a row of several numbers is one environment's, too.
            infos[name] = column if selected is self._everyone else (column.T * selected).T
            infos[f"_{name}"] = selected.copy()
        return infos

    def _checked(self, actions: Any) -> Column:
        if not self._is_ready:
            raise ResetNeeded(f"{type(self).__name__} has environments without an episode: call reset() first")
        return as_actions(actions, self.num_envs)


def _rebuilt(
    cls: Any, num_envs: int, settings: Any, autoreset_mode: Any, render_mode: Any, spec: Any, buffer: Column
) -> BatchEnv:
    """Return the batch that a copy or a pickle describes."""
    env: BatchEnv = cls(num_envs, settings, autoreset_mode=autoreset_mode, render_mode=render_mode)
    env.spec = spec
    env.restore(Snapshot((Layer(env._kind, BatchState(settings, num_envs, buffer)),)))
    return env
