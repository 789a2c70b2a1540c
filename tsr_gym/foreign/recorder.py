"""The record of an episode: how it began, and every action since."""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from tsr_gym.codec import encode
from tsr_gym.errors import SnapshotError
from tsr_gym.foreign import generators, play
from tsr_gym.foreign.fresh import remake
from tsr_gym.foreign.portable import portable
from tsr_gym.foreign.repetition import repetition_of
from tsr_gym.foreign.thawed import frozen
from tsr_gym.random_stream import Drawn, position_of
from tsr_gym.snapshots import Deferred


class Start(NamedTuple):
    """How an episode began.

    Attributes:
        remade: Whether the environment was made again before.
        seed: Seed of the reset.
        position: Where the generator stood before a reset without seed.
        options: Options of the reset, frozen.
        result: Fingerprint of what the reset returned.
    """

    remade: bool
    seed: int | None
    position: Drawn | None
    options: Any
    result: bytes


class Move(NamedTuple):
    """An action that was taken, frozen, and the fingerprint of what came."""

    action: Any
    result: bytes


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

    def parts(self) -> Any:
        """Return what two records are compared by."""
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
    """Records how an episode began and every action since; stands right above the environment."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.start: Start | None = None
        self.events: list[Any] = []
        self.num_events = 0

    @property
    def spec(self) -> EnvSpec | None:
        """The spec of the environment: what is made from it records nothing by itself."""
        return self.env.spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        self.env.spec = spec

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode and its record."""
        self.start = None
        remade = repetition_of(self.env).remade
        if remade:
            remake(self.env)
        generator = vars(self.env).get("_np_random")
        if seed is None and generator is None:
            # Gymnasium draws a seed here too; this way it is known afterwards.
            seed = generators.entropy()
        position = None if generator is None or seed is not None else position_of(generator)
        kept = frozen(options)
        result = self.env.reset(seed=seed, options=options)
        self.start = Start(remade, seed, position, kept, fingerprint(play.as_fact(result)))
        self.events, self.num_events = [], 0
        return result

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take an action and record it."""
        kept = frozen(action)
        try:
            result = self.env.step(action)
        # A step that raises may have changed the environment, and will again.
        except Exception as error:
            self.record(Move(kept, fingerprint(play.raised(error))))
            raise
        self.record(Move(kept, fingerprint(play.as_fact(result))))
        return result

    def record(self, event: Any) -> None:
        """Add an event to the record, of which others may hold the part so far."""
        if self.num_events < len(self.events):
            self.events = self.events[: self.num_events]
        self.events.append(event)
        self.num_events += 1


def fingerprint(fact: Any) -> bytes:
    """Return a fact in a few bytes."""
    return blake2b(b"".join(map(_bytes, fact)), digest_size=12).digest()


def _bytes(part: Any) -> bytes:
    try:
        return encode(portable(part))
    except SnapshotError:
        # What has no bytes cannot be compared.
        return type(part).__qualname__.encode()
