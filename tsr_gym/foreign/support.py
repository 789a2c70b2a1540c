"""What tsr_gym can do for an environment, in one word and one sentence; and what an author can promise."""

from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

Level = Literal["exact", "deepcopy", "replay", "none"]
LEVELS: tuple[Level, ...] = ("exact", "deepcopy", "replay", "none")


class Support(NamedTuple):
    """How well snapshots of a stack are supported.

    Attributes:
        level: ``"exact"``: the state is read and set by what knows it. ``"deepcopy"``: the attributes are copied, and
            copies were seen to play alike. ``"replay"``: a restore resets and takes the recorded actions again; needs
            `tsr_gym.replayable` before `reset`. ``"none"``: snapshots are refused.
        reason: Why, and what would help.
    """

    level: Level
    reason: str


@runtime_checkable
class SnapshotEnv(Protocol):
    """What an environment implements to take part in snapshots exactly.

    Its randomness must come from `self.np_random`, whose position tsr_gym saves, restores and reseeds itself.
    """

    def env_state(self) -> Any:
        """Return everything that decides the episode's future, as an immutable value."""

    def set_env_state(self, state: Any) -> None:
        """Continue from a state that `env_state` returned, here, in an equal environment or in another process."""
