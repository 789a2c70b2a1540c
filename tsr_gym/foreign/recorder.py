"""The record of an episode: how it began, and everything since that may have changed the environment.

Recording never makes a call fail: what cannot be put on record leaves a gap, which snapshots are refused for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from tsr_gym.codec import encode
from tsr_gym.errors import SnapshotError
from tsr_gym.foreign import generators, play
from tsr_gym.foreign.actions import kept
from tsr_gym.foreign.fresh import remake
from tsr_gym.foreign.noise import Dice, dice_of
from tsr_gym.foreign.portable import portable
from tsr_gym.foreign.repetition import repetition_of
from tsr_gym.foreign.thawed import same
from tsr_gym.random_stream import Drawn, position_of
from tsr_gym.snapshots import Deferred


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
