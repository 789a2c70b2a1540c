"""Games of TextArena, played in a child process; the one file that imports TextArena.

The games draw from Python's and numpy's global generators, which nothing else uses in that process. They are seeded at
the beginning and before every turn. A state is replayed from the beginning unless the process still stands at it, and
the replay is compared with what came before.
"""

import random
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np


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


class _Table:
    """The game that this process stands at; it is one, so that nothing is copied that cannot be."""

    def __init__(self) -> None:
        self.at: tuple[str, TextArenaState] | None = None
        self.game: Any = None
        self.said = ""

    def begin(self, name: str, seed: int) -> TextArenaState:
        """Return the beginning of a game."""
        import textarena

        self.at = None
        _throw(seed)
        self.game, self.said = textarena.make(env_id=name), ""
        self.game.reset(num_players=1)
        return self._stands(name, TextArenaState(seed, (), "", "", 0.0, False), False)

    def step(self, name: str, state: TextArenaState, text: str, dice: int) -> TextArenaState:
        """Return what a turn makes of a game.

        Raises:
            RuntimeError: The game does not repeat itself, so that there is no way back to the state.
        """
        if self.at != (name, state):
            found = self.begin(name, state.seed)
            for said, thrown in state.turns:
                found = self._turn(name, found, said, thrown)
            if found != state:
                self.at = None
                raise RuntimeError(f"{name} does not repeat itself after {len(state.turns)} turns: it has no snapshots")
        return self._turn(name, state, text, dice)

    def _turn(self, name: str, state: TextArenaState, text: str, dice: int) -> TextArenaState:
        _throw(dice)
        self.at = None
        done, _ = self.game.step(text)
        return self._stands(name, state._replace(turns=(*state.turns, (text, dice))), bool(done))

    def _stands(self, name: str, state: TextArenaState, done: bool) -> TextArenaState:
        if done:
            told = [f"{one['reason']}" for one in self.game.state.game_info.values() if one.get("reason")]
            new, reward = "\n".join(told), float((self.game.state.rewards or {}).get(0, 0.0))
        else:
            said = str(self.game.get_observation()[1])
            # TextArena repeats everything that was said.
            new, reward = said[len(self.said) :] if said.startswith(self.said) else said, 0.0
            self.said = said
        mark = blake2b((state.mark + new).encode(), digest_size=12).hexdigest()
        found = state._replace(text=new.strip(), mark=mark, reward=reward, ended=done)
        self.at = (name, found)
        return found


def operations() -> dict[str, Callable[..., Any]]:
    """Return what can be asked of the process, by name."""
    table = _Table()
    return {"begin": table.begin, "step": table.step}


def _throw(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (what the games draw from)
