"""Replay: record the actions of an episode; a restore resets the environment and takes them again."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from tsr_gym.codec import encode, packages_of
from tsr_gym.errors import ReplayDiverged, SnapshotError, shown
from tsr_gym.foreign import generators, play
from tsr_gym.foreign.addresses import unordered_in
from tsr_gym.foreign.attributes import compare, settings_of, twin_of
from tsr_gym.foreign.freezing import kept
from tsr_gym.foreign.generators import Dice, dice_of, place_dice, place_generator, replace_keys
from tsr_gym.foreign.objects import SharedVerdicts, Support, can_remake, frees, fresh, module_of, remake
from tsr_gym.foreign.play import Fact, difference
from tsr_gym.foreign.thawing import Thawer, imported, portable, same, try_to_thaw
from tsr_gym.random_stream import Drawn, position_of
from tsr_gym.snapshots import Deferred

# These depend on earlier episodes, because a reset keeps their physics engine. It shows too rarely for a short play.
_DEPENDS_ON_EARLIER = frozenset({"gymnasium.envs.box2d.bipedal_walker:BipedalWalker"})
_NUM_STEPS = 16


class Repetition(NamedTuple):
    """Whether an environment plays the same episode again from the same seed and actions.

    Attributes:
        flaw: Why it does not; None if no difference was seen.
        remade: It does only if it is made again before every reset.
    """

    flaw: str | None
    remade: bool = False


_REPETITIONS: SharedVerdicts[Repetition] = SharedVerdicts()


def repetition_of(env: Any) -> Repetition:
    """Return whether an environment without wrappers repeats itself; equal environments are tested once."""
    return _REPETITIONS.of(env, _tested)


def _tested(env: Any) -> Repetition:
    first, second = _another(env), _another(env)
    if first is None or second is None:
        # There is no other instance, and this one belongs to the user. Every restore compares its results anyway.
        return Repetition(None)
    with play.quietly() as drawn:
        try:
            repetition = _compared(env, first, second)
        finally:
            first.close()
            second.close()
    if drawn.names:
        who = " and ".join(drawn.names)
        return Repetition(f"{type(env).__name__} draws from the global generator of {who}, which no seed controls")
    return repetition


def _another(env: Any) -> Any:
    """Return another environment for the test: made with the same arguments, copied, or at least of the same class."""
    with suppress(SnapshotError):
        return fresh(env, unseen=True)
    if not frees(type(env)):
        with suppress(SnapshotError):
            return twin_of(env, unseen=True)
    # The constructor may need arguments or raise for other reasons.
    with suppress(Exception):
        return type(env)()
    return None


def _compared(env: Any, first: Any, second: Any) -> Repetition:
    # The first instance plays another episode before the compared one, so that traces of it show.
    wanted = _play(second, 1)
    _play(first, 0)
    if unordered := unordered_in(first) or unordered_in(second):
        return Repetition(unordered)
    flaw = difference(wanted, _play(first, 1)) or difference(wanted, _play(first, 1))
    depends_on_earlier = {f"{module_of(cls)}:{cls.__qualname__}" for cls in type(env).__mro__} & _DEPENDS_ON_EARLIER
    # If episodes leave traces, making the environment again before every reset may remove them.
    if (flaw is None and not depends_on_earlier) or not can_remake(env):
        return Repetition(None if flaw is None else f"{type(env).__name__} does not repeat itself: {flaw}")
    remake(first)
    still = difference(wanted, _play(first, 1))
    if still is not None:
        return Repetition(f"{type(env).__name__} does not repeat itself, even if it is made again: {still}")
    return Repetition(None, remade=True)


def _play(env: Any, seed: int) -> list[Fact]:
    actions = play.actions_of(env, seed, _NUM_STEPS)
    return [*play.facts([play.reset(env, seed, None), *play.steps(env, actions)])]


class Start(NamedTuple):
    """How an episode began.

    Attributes:
        remade: The environment was made again before the reset.
        seed: Seed of the reset.
        dice: States of all generators before a reset without a seed.
        options: Options of the reset, frozen.
        result: Fingerprint of the result and of the generator's position after it.
    """

    remade: bool
    seed: int | None
    dice: Dice | None
    options: Any
    result: bytes


class Move(NamedTuple):
    """An action that was taken.

    Attributes:
        action: The action, frozen.
        result: Fingerprint of the result and of the generator's position after it.
        position: The generator's position before the step, if a wrapper had drawn from it since the last event; None
            otherwise.
    """

    action: Any
    result: bytes
    position: Drawn | None = None


class Rendering(NamedTuple):
    """A call of `render`, which may change later pictures and even the environment's state.

    Attributes:
        mode: The render mode.
        result: Fingerprint of the picture and of the generator's position after it.
        position: As in `Move`.
    """

    mode: str | None
    result: bytes
    position: Drawn | None = None


class Reseeding(NamedTuple):
    """The generators were reseeded at this point."""

    seed: int


@dataclass(frozen=True, eq=False)
class ReplayState(Deferred):
    """The record of an episode up to an event. The list is shared and may grow; `num_events` limits it."""

    settings: tuple[str, ...]
    start: Start
    events: list[Any]
    num_events: int
    position: Drawn | None

    def same_as(self, other: object) -> bool:
        """Return whether another record is equal."""
        return isinstance(other, ReplayState) and same(self._parts(), other._parts())

    def _parts(self) -> Any:
        return self.settings, self.start, self.events[: self.num_events], self.position

    def portable(self) -> Any:
        """Return the record as plain values."""
        events = tuple([portable(event) for event in self.events[: self.num_events]])
        return PortableReplay(self.settings, portable(self.start), events, self.position)


@dataclass(frozen=True)
class PortableReplay:
    """The record of an episode as it is read from bytes."""

    settings: tuple[str, ...]
    start: Any
    events: tuple[Any, ...]
    position: Drawn | None


class ReplayRecorder(gym.Wrapper[Any, Any, Any, Any]):
    """Records the start of an episode and every later call. It wraps the environment directly, below all wrappers.

    Attributes:
        start: The start of the episode; None if nothing is recorded.
        events: The later events. Snapshots share the list.
        num_events: How many of them belong to this episode.
        stands: The generator's position after the last event.
        gap: The part of the episode that could not be recorded; None if nothing is missing.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.start: Start | None = None
        self.events: list[Any] = []
        self.num_events = 0
        self.stands: Drawn | None = None
        self.gap: str | None = None

    @property
    def spec(self) -> EnvSpec | None:
        """The spec of the environment; an environment made from it has no recorder."""
        return self.env.spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        self.env.spec = spec

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode and its record."""
        self.start, self.gap = None, None
        remade = repetition_of(self.env).remade
        if remade:
            remake(self.env)
        dice = dice_of(self.env) if seed is None else None
        if dice is not None and not any(dice):
            # Without a generator Gymnasium draws a seed from the system. Drawing it here makes it known.
            seed, dice = generators.entropy(), None
        # Frozen before the call, because the environment may change the options that it is given.
        options_kept = self._kept("the options", options)
        result = self.env.reset(seed=seed, options=options)
        seen = self._seen(lambda: play.as_fact(result))
        self.start = Start(remade, seed, dice, options_kept, seen)
        self.events, self.num_events = [], 0
        return result

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take an action and record it."""
        action_kept, moved = self._kept("the action", action), self._moved()
        try:
            result = self.env.step(action)
        # A step that raises may have changed the environment, so the replay takes it again.
        except Exception as error:
            failure = play.raised(error)
            self.record(Move(action_kept, self._seen(lambda: failure), moved))
            raise
        self.record(Move(action_kept, self._seen(lambda: play.as_fact(result)), moved))
        return result

    def render(self) -> Any:
        """Return the picture and record the call."""
        moved = self._moved()
        picture = self.env.render()
        if self.start is not None:
            self.record(Rendering(self.env.render_mode, self._seen(lambda: play.picture_fact(picture)), moved))
        return picture

    def record(self, event: Any) -> None:
        """Add an event. After a restore the list is cut and copied first, because snapshots share the old one."""
        if self.num_events < len(self.events):
            self.events = self.events[: self.num_events]
        self.events.append(event)
        self.num_events += 1

    def _moved(self) -> Drawn | None:
        """Return the generator's position if a wrapper drew from it since the last event, else None."""
        position = position_in(self.env)
        return None if position == self.stands else position

    def _kept(self, what: str, value: Any) -> Any:
        try:
            return kept(value)
        except SnapshotError as error:
            self.gap = self.gap or f"{what} of {type(self.env).__name__} cannot be recorded: {error}"
            return None

    def _seen(self, fact: Callable[[], Any]) -> bytes:
        """Return the fingerprint of a result, and store the generator's position after the call."""
        self.stands = position_in(self.env)
        try:
            return fingerprint((*fact(), self.stands))
        # Results are foreign objects, which may raise any exception when they are read.
        except Exception as error:
            self.gap = self.gap or f"the results of {type(self.env).__name__} cannot be recorded: {error}"
            return b""


def position_in(env: Any) -> Drawn | None:
    """Return the position of an environment's generator; None where it has none."""
    generator = vars(env).get("_np_random")
    return None if generator is None else position_of(generator)


def fingerprint(fact: Any) -> bytes:
    """Return a digest of 12 bytes of a fact."""
    return blake2b(b"".join(map(_bytes, fact)), digest_size=12).digest()


def _bytes(part: Any) -> bytes:
    try:
        return encode(portable(part))
    except SnapshotError:
        # A value without a byte form cannot be compared; its type can.
        return type(part).__qualname__.encode()


_HOW = "a restore resets, takes the recorded actions again and compares every result with the recorded one"


class ReplayAdapter:
    """Reads environments under a `ReplayRecorder`."""

    def support(self, env: Any) -> Support:
        """Return ``"replay"`` unless equal environments did not repeat themselves."""
        if isinstance(env, ReplayRecorder) and env.gap is not None:
            return Support("none", env.gap)
        repetition = repetition_of(env.env if isinstance(env, ReplayRecorder) else env)
        if repetition.flaw is not None:
            return Support("none", repetition.flaw)
        if flaw := unordered_in(env.unwrapped):
            return Support("none", flaw)
        how = _HOW
        if repetition.remade:
            how += "; the environment is made again before every reset, because episodes leave traces"
        return Support("replay", how)

    def read(self, env: ReplayRecorder) -> ReplayState:
        """Return the record so far."""
        support = self.support(env)
        if support.level != "replay":
            raise SnapshotError(support.reason)
        if env.start is None:
            raise SnapshotError(
                f"nothing of {type(env.env).__name__} is recorded: call tsr_gym.replayable(env), then reset()"
            )
        return ReplayState(settings_of(env.env), env.start, env.events, env.num_events, position_in(env.env))

    def check(self, env: ReplayRecorder, state: Any, seed: int | None) -> ReplayState:
        """Return the record if it fits the environment."""
        if isinstance(state, PortableReplay):
            state = _imported(env.env, state)
        if not isinstance(state, ReplayState):
            raise SnapshotError(f"wanted a record of {type(env.env).__name__}, got {shown(state)}: damaged")
        compare(env.env, state.settings)
        return state

    def write(self, env: ReplayRecorder, state: ReplayState, seed: int | None) -> None:
        """Reset and replay.

        Raises:
            SnapshotError: A result differs from the recorded one; the environment must be reset.
        """
        # Until the replay has succeeded there is nothing to take a snapshot of.
        env.start = None
        try:
            stands = _replay(env.env, state, state.start.remade)
        except ReplayDiverged:
            if state.start.remade or not can_remake(env.env):
                raise
            # The record may have begun in a new environment, so try once more with one that is made again.
            stands = _replay(env.env, state, True)
        env.start, env.events, env.num_events = state.start, state.events, state.num_events
        env.stands, env.gap = stands, None
        if seed is not None:
            _reseed(env.env, seed)
            env.record(Reseeding(seed))
            env.stands = position_in(env.env)

    def copy(self, env: ReplayRecorder) -> Any:
        """Return another environment of the same settings under a recorder."""
        return ReplayRecorder(fresh(env.env))


def _imported(base: Any, state: PortableReplay) -> ReplayState:
    packages = packages_of(type(base))
    start, events = imported(state.start, packages), [imported(event, packages) for event in state.events]
    if not isinstance(start, Start) or not all(isinstance(event, Move | Rendering | Reseeding) for event in events):
        raise SnapshotError(f"wanted a record of {type(base).__name__}, got something else: damaged")
    actions = {f"action {number}": event.action for number, event in enumerate(events) if isinstance(event, Move)}
    try_to_thaw({"options": start.options, **actions})
    return ReplayState(state.settings, start, events, len(events), state.position)


def _replay(base: Any, state: ReplayState, remade: bool) -> Drawn | None:
    """Repeat an episode and return the generator's position after its last event."""
    # The order is that of the recording: make again, place generators, reset, then every event.
    start = state.start
    if remade:
        remake(base)
    if start.dice is not None:
        if len(dice_of(base).others) != len(start.dice.others):
            # Some environments create generators in their first reset.
            play.reset(base, 0, None)
        place_dice(base, start.dice)
    _compare(base, "reset()", start.result, play.reset(base, start.seed, Thawer({}).thawed(start.options)))
    num_steps = 0
    for event in state.events[: state.num_events]:
        if isinstance(event, Reseeding):
            _reseed(base, event.seed)
            continue
        num_steps += isinstance(event, Move)
        if event.position is not None:
            place_generator(base, event.position, None)
        if isinstance(event, Move):
            result = play.step(base, Thawer({}).thawed(event.action))
            _compare(base, f"step {num_steps}", event.result, result)
        else:
            _render(base, event, num_steps)
    stands = position_in(base)
    if stands != state.position:
        # A wrapper drew from the generator after the last event.
        place_generator(base, state.position, None)
    return stands


def _render(base: Any, event: Rendering, num_steps: int) -> None:
    """Repeat a call of `render`. Pictures are compared only under the same render mode."""
    if base.render_mode is None:
        return
    picture = base.render()
    if base.render_mode == event.mode:
        _compare(base, f"the picture after step {num_steps}", event.result, play.picture_fact(picture))


def _reseed(base: Any, seed: int) -> None:
    """Reseed the generators that an environment holds."""
    own = vars(base).get("_np_random")
    if own is not None:
        place_generator(base, position_of(own), seed)
    for number, other in enumerate(generators.held_by(base)):
        if other is not own:
            generators.reseed(other, seed, number)
    replace_keys(base, seed)


def _compare(base: Any, what: str, wanted: bytes, result: Any) -> None:
    if fingerprint((*result, position_in(base))) != wanted:
        raise ReplayDiverged(_message(base, what))


def _message(base: Any, what: str) -> str:
    return (
        f"{type(base).__name__} did not repeat itself: {what} differs from the record, so it depends on more than the "
        "seed and the actions. Reset it before you continue"
    )
