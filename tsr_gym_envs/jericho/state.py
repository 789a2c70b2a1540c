"""What is known of a story, and where it stands, as immutable values."""

from typing import NamedTuple

from tsr_gym_envs.zmachine.memory import Memory


class About(NamedTuple):
    """What does not change in a story.

    Attributes:
        supported: Whether Jericho knows where this very file keeps its points and its end.
        max_points: How many points there are; None where it is not supported.
        words: The words that it knows.
    """

    supported: bool
    max_points: int | None
    words: frozenset[str]


class StoryState(NamedTuple):
    """Where a story stands.

    Attributes:
        memory: The interpreter's.
        text: What the story printed last.
        points: Points so far; None where Jericho does not support the file.
        ended: ``"won"``, ``"lost"``, ``"over"`` (it ended, nobody knows how) or "".
    """

    memory: Memory
    text: str
    points: int | None
    ended: str
