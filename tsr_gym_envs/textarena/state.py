"""TextArenaState: an episode as what was said in it, from which its game is played again."""

from typing import NamedTuple


class TextArenaState(NamedTuple):
    """Where an episode stands.

    Attributes:
        seed: Of the game's beginning.
        turns: What was said, each with the seed of the dice that were thrown for it.
        text: What the game said last.
        mark: Digest of all that the game said, by which a replay is held against what was.
        reward: The game's verdict; 0 as long as it goes on.
        ended: Whether the game is over.
    """

    seed: int
    turns: tuple[tuple[str, int], ...]
    text: str
    mark: str
    reward: float
    ended: bool
