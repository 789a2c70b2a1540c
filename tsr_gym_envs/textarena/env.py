"""The TextArena environment: its games for one player, with snapshots that are replays, proven as they are used."""

from functools import lru_cache
from importlib.metadata import version
from typing import Any

import numpy as np

from tsr_gym import ConfigError, Limits, Step, TextEnv
from tsr_gym.codec import encode
from tsr_gym.optional import require
from tsr_gym.ranges import check_range
from tsr_gym.teaching import Teaching
from tsr_gym_envs.reasons import invalid
from tsr_gym_envs.textarena.games import TextArenaState
from tsr_gym_envs.zmachine.child import MAX_SECONDS, Child, InterpreterFailed, NoAnswer, shared_child

OPERATIONS = "tsr_gym_envs.textarena.games:operations"
INSTRUCTIONS = "You play a game. Read its rules, and write your move in the form that it asks for, such as [up]."
# numpy's generator takes no larger seeds.
_SEEDS = 1 << 31


class TextArenaEnv(TextEnv[TextArenaState]):
    """Play a game of TextArena that has one player, such as TowerOfHanoi, 2048 or Minesweeper.

    ## Description
    TextArena's games draw from the global generators of their process, so they are played in a child process,
    whose generators are seeded before every turn. A state is the list of texts so far; a snapshot is a replay: going
    back costs as many turns as were taken. A replay that differs from the original is an error, and such a game has no
    snapshots. Needs the extra ``textarena``; some games load data from a network at their beginning.

    ## Action Space
    Text, as the game reads it. Text without any sign that can be read means nothing.

    ## Observation Space
    Text: the game's output since the last turn.

    ## Starting State
    A beginning drawn from the seed of `reset`.

    ## Rewards
    The game's verdict, in the turn that ends it; 0 before.

    ## Episode End
    Terminates when the game is over; truncates after `max_turns`.

    ## Information
    As every `TextEnv`; ``success`` is a verdict of 1.

    ## Arguments
    | keyword | default |
    |---|---|
    | `game` | TextArena's id, such as ``TowerOfHanoi-v0`` |
    | `max_turns` | 50; None for any number |
    | `max_seconds` | 60: processor time after which a turn is given up; it then means nothing |
    | `render_mode` | None or ``ansi`` |

    ## Version History
    v0: first version.
    """

    def __init__(
        self, game: str, *, max_turns: int | None = 50, max_seconds: float = 60.0, render_mode: str | None = None
    ) -> None:
        check_range(max_seconds=max_seconds, above=0, most=MAX_SECONDS)
        rules = (game, version("textarena"))
        super().__init__(rules, limits=Limits(max_turns, 1), separator=None, render_mode=render_mode)
        self.game = game
        self.max_seconds = max_seconds
        self.instructions = INSTRUCTIONS

    def initial(self, rng: np.random.Generator, options: dict[str, Any]) -> TextArenaState:
        """Return the beginning of a game."""
        if options:
            raise ConfigError(f"unknown options of reset {sorted(options)}; known: none")
        return _beginning(self.game, int(rng.integers(_SEEDS)))

    def transition(self, state: TextArenaState, action: str, rng: np.random.Generator) -> Step:
        """Return the effect of a turn on a game.

        Raises:
            InterpreterFailed: The game does not repeat itself, or failed.
        """
        dice = int(rng.integers(_SEEDS))
        text = "".join(sign for sign in action if sign.isprintable() or sign == "\n").strip()
        if not text or len(text) > 10_000:
            return Step(state, 0.0, False, invalid("the turn holds nothing that can be read, or too much"))
        try:
            after: TextArenaState = _child().ask("step", self.game, state, text, dice, seconds=self.max_seconds)
        except NoAnswer as error:
            return Step(state, 0.0, False, invalid(f"the game cannot answer: {error}"))
        return Step(after, after.reward, after.ended, {})

    def observe(self, state: TextArenaState) -> str:
        """Return the game's last output."""
        return state.text

    def state_key(self, state: TextArenaState) -> bytes:
        """Return the bytes of all texts and dice, because equality of two games cannot be decided otherwise."""
        return encode((state.seed, state.turns))

    def is_success(self, state: TextArenaState) -> bool:
        """Return whether the game's verdict is 1."""
        return state.ended and state.reward >= 1.0

    def teaching(self) -> Teaching | None:
        """Return None: there is no oracle."""
        return None


def _child() -> Child:
    return shared_child(OPERATIONS)


@lru_cache(maxsize=256)
def _beginning(game: str, seed: int) -> TextArenaState:
    state: TextArenaState = _child().ask("begin", game, seed)
    return state


def make(
    game: str, *, max_turns: int | None = 50, max_seconds: float = 60.0, render_mode: str | None = None
) -> TextArenaEnv:
    """Make the environment behind ``gym.make("tsr/TextArena-v0", game=...)``; `TextArenaEnv` documents the keywords.

    Raises:
        ConfigError: There is no such game for one player, or its data are not at hand.
        MissingExtra: TextArena is not installed.
    """
    require("textarena", "textarena")
    try:
        _beginning(game, 0)
    except InterpreterFailed as error:
        raise ConfigError(f"the game {game!r} of TextArena does not begin for one player: {error}") from error
    return TextArenaEnv(game, max_turns=max_turns, max_seconds=max_seconds, render_mode=render_mode)
