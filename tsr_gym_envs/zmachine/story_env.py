"""StoryEnv: what environments share whose states hold an interpreter's memory."""

from collections.abc import Set
from typing import Any

import numpy as np

from tsr_gym import ConfigError, Limits, SnapshotError, Step, TextEnv
from tsr_gym.snapshots import EnvState
from tsr_gym.state_env import StateT
from tsr_gym.teaching import Teaching
from tsr_gym_envs.reasons import invalid
from tsr_gym_envs.zmachine.child import NoAnswer
from tsr_gym_envs.zmachine.commands import command_of, refusal
from tsr_gym_envs.zmachine.memory import Memory, can_be


class StoryEnv(TextEnv[StateT]):
    """A text environment whose turns are commands to a story.

    Args:
        rules: What the rules depend on.
        max_turns: Turns of an episode; None for any number.
        max_seconds: When the interpreter is ended because it does not answer a command.
        render_mode: ``"ansi"`` or None.
    """

    def __init__(self, rules: Any, *, max_turns: int | None, max_seconds: float, render_mode: str | None) -> None:
        if max_seconds <= 0:
            raise ConfigError(f"wanted max_seconds > 0, got {max_seconds}")
        super().__init__(rules, limits=Limits(max_turns, 1), separator=None, render_mode=render_mode)
        self.max_seconds = max_seconds

    def memory(self, state: StateT) -> Memory:
        """Return the interpreter's memory in a state."""
        raise NotImplementedError

    def words(self, state: StateT) -> Set[str]:
        """Return the words that the story knows."""
        raise NotImplementedError

    def told(self, state: StateT, command: str, rng: np.random.Generator) -> Step:
        """Return what a command that the story may understand makes of it.

        Raises:
            NoAnswer: The interpreter hangs, or ended.
        """
        raise NotImplementedError

    def transition(self, state: StateT, action: str, rng: np.random.Generator) -> Step:
        """Return what a command makes of a story; a command that stops the interpreter means nothing."""
        command = command_of(action)
        reason = refusal(command, self.words(state))
        if reason is not None:
            return Step(state, 0.0, False, invalid(reason))
        try:
            return self.told(state, command, rng)
        except NoAnswer as error:
            return Step(state, 0.0, False, invalid(f"the game did not answer: {error}"))

    def teaching(self) -> Teaching | None:
        """Return None: the texts are not for a very small model."""
        return None

    def set_env_state(self, state: EnvState, *, seed: int | None = None) -> None:
        """Continue from what `env_state` returned.

        Raises:
            SnapshotError: The state belongs to something else, or is damaged; this environment is then unchanged.
        """
        held = state.episode.state if isinstance(state, EnvState) else None
        try:
            holds = held is not None and can_be(self.memory(held))
        # Bytes that somebody else wrote may hold any value in its place.
        except (AttributeError, TypeError):
            holds = False
        if not holds:
            raise SnapshotError(f"wanted a state of {type(self).__name__} with an interpreter's memory: damaged")
        super().set_env_state(state, seed=seed)
