"""TextTrial: one text environment under test, and the turns that its rules look at."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import gymnasium as gym
import numpy as np

from tsr_gym.errors import CheckFailed
from tsr_gym.state_env import Episode
from tsr_gym.testing.actions import draw_turn
from tsr_gym.testing.facts import name_of
from tsr_gym.text_env import TextEnv


class TriedTurn(NamedTuple):
    """One turn of the bare environment: where it began, what was done, and what came of it."""

    before: Episode
    action: str
    observation: Any
    reward: Any
    terminated: Any
    truncated: Any
    info: Any
    after: Episode


@dataclass(frozen=True, slots=True)
class TextTrial:
    """What a rule about text environments is given.

    Attributes:
        env: The stack under test.
        base: Its environment, without wrappers.
        seeds: Seeds of the episodes to play.
        steps: Most turns of an episode.
        junk: Texts that mean nothing.
    """

    env: gym.Env[Any, Any]
    base: TextEnv[Any]
    seeds: tuple[int, ...]
    steps: int
    junk: tuple[str, ...]

    @property
    def name(self) -> str:
        """How messages call the environment."""
        return name_of(self.base)

    def fail(self, check: str, message: str) -> NoReturn:
        """Raise CheckFailed in the environment's name."""
        raise CheckFailed(check, f"{self.name}: {message}")

    def turns(self) -> Iterator[TriedTurn]:
        """Play one episode per seed on the bare environment, mostly legal turns, and yield every turn."""
        for seed in self.seeds:
            self.base.reset(seed=seed)
            yield from self.on(seed)

    def on(self, seed: int) -> Iterator[TriedTurn]:
        """Play the bare environment on from where it stands, and yield every turn."""
        rng = np.random.default_rng(seed)
        for _ in range(self.steps):
            episode = self.base.episode
            if episode.terminated or episode.truncated:
                return
            junk = bool(self.junk) and rng.random() < 0.15
            action = self.junk[int(rng.integers(len(self.junk)))] if junk else draw_turn(self.base, rng)
            yield self.step(action)

    def step(self, action: str) -> TriedTurn:
        """Take one turn of the bare environment."""
        before = self.base.episode
        return TriedTurn(before, action, *self.base.step(action), self.base.episode)
