"""The TextWorld environment: generated games, their interpreter's memory as a value, and TextWorld's own logic."""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from tsr_gym import ConfigError, Step
from tsr_gym.codec import encode
from tsr_gym.text_env import Guide
from tsr_gym_envs.settings import actions_within
from tsr_gym_envs.textworld.games import child, library_version, numbers, story_of
from tsr_gym_envs.textworld.state import About, Scene, TextWorldSettings, TextWorldState, make_settings
from tsr_gym_envs.zmachine.machine import Memory, StoryEnv

INSTRUCTIONS = (
    "You play a text adventure. Every turn is one short command, such as 'go north', 'open fridge', 'take knife from "
    "table', 'inventory' or 'look'. Reach the goal that the game tells at its beginning; points tell that you come "
    "nearer."
)


class TextWorldEnv(StoryEnv[TextWorldState]):
    """Play a generated text adventure: find a coin or a treasure, cook a meal, or follow instructions.

    ## Description
    The games of TextWorld (arXiv 1806.11532), generated at their first use and played by Jericho's interpreter in a
    child process. A state holds the interpreter's whole memory, as what differs from the game's beginning, and
    the facts of TextWorld's logic. Needs the extra ``textworld``.

    ## Action Space
    Text: one command, as the game reads it. Commands that would reach beyond the game (``save``, ``restore``,
    ``undo``, ``restart``, ``quit``, ``script`` and TextWorld's ``tw-...``) mean nothing, nor do words that the game
    does not know, and commands of more than 198 bytes. All else is answered by the game, also what cannot be done.

    ## Observation Space
    Text, by `observation_mode`: ``feedback`` (what the game printed), ``full`` (then the room and what is carried, so
    that one observation holds all that the player knows of the place), ``commands`` (then the admissible commands).

    ## Starting State
    The beginning of a game, drawn among the `num_games` games of `split`.
    ``reset(options={"game": number})`` begins the game of that number.

    ## Rewards
    The points that a turn brought, as a share of all points of the game, so that an episode earns at most 1. Most games
    have one point, at their end; ``cooking`` has one for every step of the recipe, ``simple`` by its level.

    ## Episode End
    Terminates when the game is won or lost; truncates after `max_turns`.

    ## Information
    As every `TextEnv`; also ``game``, ``points``, ``max_points``, ``progress`` (mean over the quests of the share of
    their conditions that hold), ``won``, ``lost``, and ``admissible_commands``: the commands that would do something,
    in alphabetical order, which no agent is shown unless it is asked for.

    ## Arguments
    | keyword | default |
    |---|---|
    | `game` | ``simple``; ``coin_collector``, ``treasure_hunter`` or ``cooking`` |
    | `level` | 1; up to 3 (``simple``: dense, balanced, sparse points), 150, 30 and 10 (the published difficulties) |
    | `foods` | ``train``: foods of ``cooking``, as TextWorld divides them; ``valid``, ``test`` or ``all`` |
    | `split` | ``all``; ``train``, ``valid`` or ``test``: which games, by their number |
    | `num_games` | 100: how many games of the split |
    | `observation_mode` | ``full`` |
    | `max_turns` | 50; None for any number |
    | `max_seconds` | 10: processor time after which the interpreter is ended; that command then means nothing |
    | `preset` | ``default`` |
    | `render_mode` | None or ``ansi`` |

    ## Version History
    v0: first version.
    """

    draws_noise = False
    guide = Guide("tsr_gym.wrappers:TextWorldScore", {"kind": "points"})

    def __init__(
        self, settings: TextWorldSettings, *, max_seconds: float = 10.0, render_mode: str | None = None
    ) -> None:
        super().__init__(
            (settings, library_version()),
            max_turns=settings.max_turns,
            max_seconds=max_seconds,
            render_mode=render_mode,
        )
        self.settings = settings
        self.instructions = INSTRUCTIONS
        # The settings that decide a game, without those of its presentation.
        self._games = replace(settings, observation_mode="full", max_turns=None)

    @property
    def games(self) -> tuple[int, ...]:
        """The numbers of the games of the split."""
        return numbers(self._games)

    def story(self, game: int) -> Path:
        """Return the file of a game; TextWorld's data on it lie next to it."""
        return story_of(self._games, game)

    def initial(self, rng: np.random.Generator, options: dict[str, Any]) -> TextWorldState:
        """Return the beginning of a game of the split, or of that which the options name.

        Raises:
            ConfigError: An option is unknown, or there is no such game.
        """
        if unknown := sorted(set(options) - {"game"}):
            raise ConfigError(f"unknown options of reset {unknown}; known: ['game']")
        games = self.games
        game = options["game"] if "game" in options else games[int(rng.integers(len(games)))]
        if game not in games:
            raise ConfigError(f"wanted a game of {games[:3]}... ({len(games)} games), got {game!r}")
        return TextWorldState(game, beginning(self.story(game)))

    def memory(self, state: TextWorldState) -> Memory:
        """Return the interpreter's memory in a state."""
        return state.scene.memory

    def words(self, state: TextWorldState) -> frozenset[str]:
        """Return the words that the game knows."""
        return about(self.story(state.game)).words

    def run_command(self, state: TextWorldState, command: str, rng: np.random.Generator) -> Step:
        """Return the effect of a command on a game."""
        story, before = self.story(state.game), state.scene
        scene: Scene = child().ask("step", story, before, command, seconds=self.max_seconds)
        gained = (scene.points - before.points) / max(about(story).max_points, 1)
        after = TextWorldState(state.game, scene)
        return Step(after, gained, bool(scene.ended), {})

    def observe(self, state: TextWorldState) -> str:
        """Return the text that the game printed, followed by the place and the commands, by `observation_mode`."""
        scene, mode = state.scene, self.settings.observation_mode
        objective = about(self.story(state.game)).objective
        # Before the goal stands TextWorld's name in large letters.
        printed = scene.feedback[max(scene.feedback.find(objective), 0) :].strip()
        if mode == "feedback":
            return printed
        place = () if scene.description in printed else (scene.description,)
        parts = [printed, *place, scene.inventory]
        if mode == "commands":
            parts.append(f"Commands: {', '.join(self.legal_actions(state))}")
        return "\n\n".join(filter(None, parts))

    def state_key(self, state: TextWorldState) -> bytes:
        """Return the bytes of the game, its facts and what was completed."""
        scene = state.scene
        return encode((state.game, scene.facts, scene.quests, scene.points, scene.ended))

    def is_success(self, state: TextWorldState) -> bool:
        """Return whether the game is won."""
        return state.scene.ended == "won"

    def legal_actions(self, state: TextWorldState) -> tuple[str, ...]:
        """Return the admissible commands: those that TextWorld's logic knows to be possible."""
        return admissible(self.story(state.game), state.scene.facts)

    def optimal_turn(self, state: TextWorldState, turns_left: int | None, actions_left: int | None) -> str | None:
        """Return the first command of a plan that TextWorld's logic proves to win; None where it knows none."""
        plan = self.plan(state)
        return plan[0] if plan else None

    def plan(self, state: TextWorldState) -> tuple[str, ...] | None:
        """Return commands that win the game from a state, none where it is over; None where none are known.

        At the beginning it is TextWorld's walkthrough without what a player need not do; after other commands it is
        TextWorld's own replanning, tried out in its logic. It need not be the shortest.
        """
        if state.scene.ended:
            return None
        plan: tuple[str, ...] | None = winning(self.story(state.game), state.scene.done)
        return plan

    def best_value(self, state: TextWorldState, turns_left: int | None, actions_left: int | None) -> float | None:
        """Return 1 where a known plan fits into the limits, or the game is won; 0 where it is lost; else None."""
        if state.scene.ended:
            return float(self.is_success(state))
        left, plan = actions_within(turns_left, actions_left, 1), self.plan(state)
        return 1.0 if plan is not None and (left is None or len(plan) <= left) else None

    def _facts(self, state: TextWorldState) -> dict[str, Any]:
        scene = state.scene
        return {
            "success": self.is_success(state),
            "game": state.game,
            "points": scene.points,
            "max_points": about(self.story(state.game)).max_points,
            "progress": scene.progress,
            "won": scene.ended == "won",
            "lost": scene.ended == "lost",
            "admissible_commands": self.legal_actions(state),
        }


@lru_cache(maxsize=1024)
def about(story: Path) -> About:
    """Return the constant facts of a game."""
    facts: About = child().ask("about", story)
    return facts


@lru_cache(maxsize=1024)
def beginning(story: Path) -> Scene:
    """Return the beginning of a game."""
    scene: Scene = child().ask("begin", story)
    return scene


@lru_cache(maxsize=8192)
def admissible(story: Path, facts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the admissible commands where some facts are true."""
    commands: tuple[str, ...] = child().ask("commands", story, facts)
    return commands


@lru_cache(maxsize=4096)
def winning(story: Path, done: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return commands that win a game after others that were done; None where none are known."""
    plan: tuple[str, ...] | None = child().ask("plan", story, done)
    return plan


def make(
    *, preset: str = "default", max_seconds: float = 10.0, render_mode: str | None = None, **settings: Any
) -> TextWorldEnv:
    """Make the environment behind ``gym.make("tsr/TextWorld-v0", ...)``; `TextWorldEnv` documents the keywords.

    Raises:
        ConfigError: A setting is unknown or impossible.
        MissingExtra: TextWorld is not installed.
    """
    return TextWorldEnv(make_settings(preset, settings), max_seconds=max_seconds, render_mode=render_mode)
