"""Games of TextArena, played in a child process; the one file that imports TextArena.

The games draw from Python's and numpy's global generators, which nothing else uses in that process. They are seeded at
the beginning and before every turn. A state is replayed from the beginning unless the process still stands at it, and
the replay is compared with what came before.
"""

import random
from collections.abc import Callable, Generator
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np


class TextArenaState(NamedTuple):
    """The state of an episode.

    Attributes:
        seed: Of the game's beginning.
        turns: The agent's texts, each with the seed of its dice.
        text: The game's last output.
        mark: Digest of the game's whole output, with which a replay is compared.
        reward: The game's verdict; 0 before its end.
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
        self.conversation = ""

    def begin(self, name: str, seed: int) -> TextArenaState:
        """Return the beginning of a game."""
        import textarena

        self.at = None
        _throw(seed)
        self.game, self.conversation = textarena.make(env_id=name), ""
        self.game.reset(num_players=1)
        return self._stands(name, TextArenaState(seed, (), "", "", 0.0, False), False)

    def step(self, name: str, state: TextArenaState, text: str, dice: int) -> Generator[None, None, TextArenaState]:
        """Return the state after a turn; yield once the game stands before it.

        Raises:
            RuntimeError: The game does not repeat itself, so that there is no way back to the state.
        """
        if self.at != (name, state):
            replayed = self.begin(name, state.seed)
            for answer, seed in state.turns:
                replayed = self._turn(name, replayed, answer, seed)
            if replayed != state:
                self.at = None
                raise RuntimeError(f"{name} does not repeat itself after {len(state.turns)} turns: it has no snapshots")
        yield
        return self._turn(name, state, text, dice)

    def _turn(self, name: str, state: TextArenaState, text: str, dice: int) -> TextArenaState:
        _throw(dice)
        self.at = None
        done, _ = self.game.step(text)
        return self._stands(name, state._replace(turns=(*state.turns, (text, dice))), bool(done))

    def _stands(self, name: str, state: TextArenaState, done: bool) -> TextArenaState:
        if done:
            reasons = [f"{player['reason']}" for player in self.game.state.game_info.values() if player.get("reason")]
            new, reward = "\n".join(reasons), float((self.game.state.rewards or {}).get(0, 0.0))
        else:
            shown = str(self.game.get_observation()[1])
            # TextArena's observation repeats the whole conversation; the state keeps the new part.
            new, reward = shown[len(self.conversation) :] if shown.startswith(self.conversation) else shown, 0.0
            self.conversation = shown
        mark = blake2b((state.mark + new).encode(), digest_size=12).hexdigest()
        after = state._replace(text=new.strip(), mark=mark, reward=reward, ended=done)
        self.at = (name, after)
        return after


def operations() -> dict[str, Callable[..., Any]]:
    """Return the operations of the child process, by name."""
    table = _Table()
    return {"begin": table.begin, "step": table.step}


def _throw(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (what the games draw from)
