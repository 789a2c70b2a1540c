"""Replay: record the actions of an episode; a restore resets the environment and takes them again."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from tsr_gym.codec import encode, packages_of
from tsr_gym.errors import SnapshotError, shown
from tsr_gym.foreign import generators, play
from tsr_gym.foreign.attributes import compare, settings_of, twin_of
from tsr_gym.foreign.freezing import kept
from tsr_gym.foreign.generators import Dice, dice_of, place_dice, place_generator, replace_keys
from tsr_gym.foreign.objects import SharedVerdicts, Support, can_remake, frees, fresh, module_of, remake
from tsr_gym.foreign.play import Fact, difference
from tsr_gym.foreign.thawing import Thawer, imported, portable, same, try_to_thaw
from tsr_gym.random_stream import Drawn, position_of
from tsr_gym.snapshots import Deferred

# Known to depend on their earlier episodes, too rarely to be seen in a short play: their physics is not made anew.
_DEPENDS_ON_EARLIER = frozenset({"gymnasium.envs.box2d.bipedal_walker:BipedalWalker"})
_NUM_STEPS = 16


class Repetition(NamedTuple):
    """Whether an environment repeats itself.

    Attributes:
        flaw: Why it does not, None where nothing speaks against it.
        remade: Whether it does only when it is made again before every reset.
    """

    flaw: str | None
    remade: bool = False


_FOUND: SharedVerdicts[Repetition] = SharedVerdicts()


def repetition_of(env: Any) -> Repetition:
    """Return whether an environment without wrappers repeats itself; others of its kind are played, once."""
    return _FOUND.of(env, _found)


def _found(env: Any) -> Repetition:
    one, other = _another(env), _another(env)
    if one is None or other is None:
        # Only this one is there, and it is not ours to play with; every restore is compared anyway.
        return Repetition(None)
    with play.quietly() as drawn:
        try:
            found = _compared(env, one, other)
        finally:
            one.close()
            other.close()
    if drawn.names:
        who = " and ".join(drawn.names)
        return Repetition(f"{type(env).__name__} draws from the global generator of {who}, which no seed decides")
    return found


def _another(env: Any) -> Any:
    """Return another environment to play with: made in the same way, copied, or at least of the same class."""
    with suppress(SnapshotError):
        return fresh(env, unseen=True)
    if not frees(type(env)):
        with suppress(SnapshotError):
            return twin_of(env, unseen=True)
    # A constructor that needs arguments, or has other reasons to refuse.
    with suppress(Exception):
        return type(env)()
    return None


def _compared(env: Any, one: Any, other: Any) -> Repetition:
    wanted = _play(other, 1)
    _play(one, 0)
    flaw = difference(wanted, _play(one, 1)) or difference(wanted, _play(one, 1))
    known = {f"{module_of(cls)}:{cls.__qualname__}" for cls in type(env).__mro__} & _DEPENDS_ON_EARLIER
    if (flaw is None and not known) or not can_remake(env):
        return Repetition(None if flaw is None else f"{type(env).__name__} does not repeat itself: {flaw}")
    remake(one)
    still = difference(wanted, _play(one, 1))
    if still is not None:
        return Repetition(f"{type(env).__name__} does not repeat itself, even if it is made anew: {still}")
    return Repetition(None, remade=True)


def _play(env: Any, seed: int) -> list[Fact]:
    actions = play.actions_of(env, seed, _NUM_STEPS)
    return [*play.facts([play.reset(env, seed, None), *play.steps(env, actions)])]


class Start(NamedTuple):
    """How an episode began.

    Attributes:
        remade: Whether the environment was made again before.
        seed: Seed of the reset.
        dice: Where all randomness stood before a reset without seed.
        options: Options of the reset, frozen.
        result: Fingerprint of what the reset returned, and of where the generator stood then.
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
        result: Fingerprint of what came, and of where the generator stood then.
        position: Where the generator stood before, because somebody else drew from it; None where the event before
            had left it.
    """

    action: Any
    result: bytes
    position: Drawn | None = None


class Rendering(NamedTuple):
    """A call of `render`, which may change what is shown later, and even the world.

    Attributes:
        mode: The render mode.
        result: Fingerprint of the picture, and of where the generator stood then.
        position: As of a move.
    """

    mode: str | None
    result: bytes
    position: Drawn | None = None


class Reseeding(NamedTuple):
    """The generators were reseeded here."""

    seed: int


@dataclass(frozen=True, eq=False)
class ReplayState(Deferred):
    """An episode's record up to some event; the list may have grown since, which does not matter."""

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
    """An episode's record as it comes out of bytes."""

    settings: tuple[str, ...]
    start: Any
    events: tuple[Any, ...]
    position: Drawn | None


class ReplayRecorder(gym.Wrapper[Any, Any, Any, Any]):
    """Records how an episode began and every call since; stands right above the environment.

    Attributes:
        start: How the episode began, None where nothing is on record.
        events: What happened since; snapshots hold the part so far.
        num_events: How many of them belong to this episode.
        stands: Where the last event left the generator.
        gap: What of the episode could not be put on record, None where nothing is missing.
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
        """The spec of the environment: what is made from it records nothing by itself."""
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
            # Gymnasium draws a seed here too; this way it is known afterwards.
            seed, dice = generators.entropy(), None
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
        # A step that raises may have changed the environment, and will again.
        except Exception as error:
            failure = play.raised(error)
            self.record(Move(action_kept, self._seen(lambda: failure), moved))
            raise
        self.record(Move(action_kept, self._seen(lambda: play.as_fact(result)), moved))
        return result

    def render(self) -> Any:
        """Return the picture and record that it was drawn."""
        moved = self._moved()
        picture = self.env.render()
        if self.start is not None:
            self.record(Rendering(self.env.render_mode, self._seen(lambda: play.picture_fact(picture)), moved))
        return picture

    def record(self, event: Any) -> None:
        """Add an event to the record, of which others may hold the part so far."""
        if self.num_events < len(self.events):
            self.events = self.events[: self.num_events]
        self.events.append(event)
        self.num_events += 1

    def _moved(self) -> Drawn | None:
        """Return where the generator stands if it was moved since the last event, by a wrapper that draws from it."""
        position = position_in(self.env)
        return None if position == self.stands else position

    def _kept(self, what: str, value: Any) -> Any:
        try:
            return kept(value)
        except SnapshotError as error:
            self.gap = self.gap or f"{what} of {type(self.env).__name__} cannot be put on record: {error}"
            return None

    def _seen(self, fact: Callable[[], Any]) -> bytes:
        """Return the fingerprint of a call's result, and note where the call left the generator."""
        self.stands = position_in(self.env)
        try:
            return fingerprint((*fact(), self.stands))
        # Results are objects of others, which may raise anything when they are looked at.
        except Exception as error:
            self.gap = self.gap or f"what {type(self.env).__name__} returns cannot be put on record: {error}"
            return b""


def position_in(env: Any) -> Drawn | None:
    """Return where the generator of an environment stands, None where it has none."""
    generator = vars(env).get("_np_random")
    return None if generator is None else position_of(generator)


def fingerprint(fact: Any) -> bytes:
    """Return a fact in a few bytes."""
    return blake2b(b"".join(map(_bytes, fact)), digest_size=12).digest()


def _bytes(part: Any) -> bytes:
    try:
        return encode(portable(part))
    except SnapshotError:
        # What has no bytes cannot be compared.
        return type(part).__qualname__.encode()


_HOW = "a restore resets and takes the recorded actions again, and compares every result with the one on record"


class _Diverged(SnapshotError):
    """A replay went another way than the record."""


class ReplayAdapter:
    """Reads environments under a `ReplayRecorder`."""

    def support(self, env: Any) -> Support:
        """Return replay unless others of the kind did not repeat themselves."""
        if isinstance(env, ReplayRecorder) and env.gap is not None:
            return Support("none", env.gap)
        found = repetition_of(env.env if isinstance(env, ReplayRecorder) else env)
        if found.flaw is not None:
            return Support("none", found.flaw)
        how = f"{_HOW}; it is made anew before every reset, because episodes leave traces" if found.remade else _HOW
        return Support("replay", how)

    def read(self, env: ReplayRecorder) -> ReplayState:
        """Return the record so far."""
        support = self.support(env)
        if support.level != "replay":
            raise SnapshotError(support.reason)
        if env.start is None:
            raise SnapshotError(
                f"nothing is on record of {type(env.env).__name__}: call tsr_gym.replayable(env) first and reset() then"
            )
        return ReplayState(settings_of(env.env), env.start, env.events, env.num_events, position_in(env.env))

    def check(self, env: ReplayRecorder, state: Any, seed: int | None) -> ReplayState:
        """Return the record if it fits."""
        if isinstance(state, PortableReplay):
            state = _imported(env.env, state)
        if not isinstance(state, ReplayState):
            raise SnapshotError(f"wanted a record of {type(env.env).__name__}, got {shown(state)}: damaged")
        compare(env.env, state.settings)
        return state

    def write(self, env: ReplayRecorder, state: ReplayState, seed: int | None) -> None:
        """Reset and replay.

        Raises:
            SnapshotError: A result was not the one on record; the environment must be reset then.
        """
        env.start = None
        try:
            stands = _replay(env.env, state, state.start.remade)
        except _Diverged:
            if state.start.remade or not can_remake(env.env):
                raise
            # The record may have begun in an environment that was new.
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
    """Repeat an episode, and return where its last event left the generator."""
    start = state.start
    if remade:
        remake(base)
    if start.dice is not None:
        if len(dice_of(base).others) != len(start.dice.others):
            # Some generators are there only after a reset.
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
            came = play.step(base, Thawer({}).thawed(event.action))
            _compare(base, f"step {num_steps}", event.result, came)
        else:
            _render(base, event, num_steps)
    stands = position_in(base)
    if stands != state.position:
        # A wrapper drew after the last event.
        place_generator(base, state.position, None)
    return stands


def _render(base: Any, event: Rendering, num_steps: int) -> None:
    """Render as on record; under another mode the pictures are not to be compared, and without one there are none."""
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


def _compare(base: Any, what: str, wanted: bytes, came: Any) -> None:
    if fingerprint((*came, position_in(base))) != wanted:
        raise _Diverged(_message(base, what))


def _message(base: Any, what: str) -> str:
    return (
        f"{type(base).__name__} did not repeat itself: {what} differs from the record, so something else than the seed "
        "and the actions decides. Reset it before you go on"
    )
