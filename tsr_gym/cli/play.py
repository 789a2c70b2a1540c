"""`tsr play`: an environment in the terminal, with undo, hints and a warning where nothing can be solved any more."""

import sys
import textwrap
from cmd import Cmd
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import gymnasium as gym
import tyro

from tsr_gym.cli.arguments import read_arguments
from tsr_gym.errors import ConfigError, MissingExtra
from tsr_gym.keywords import parse_settings
from tsr_gym.registration import env_id
from tsr_gym.snapshots import Snapshot
from tsr_gym.stack import restore, snapshot
from tsr_gym.text_env import TextEnv

COMMANDS = ("undo", "restart", "next", "hint", "quit", "help")
WIDTH = 100
UNLIMITED = {"max_turns": None, "max_actions_per_turn": None, "max_actions": None}
MAX_HINT = 5


@dataclass(frozen=True, slots=True)
class PlayArgs:
    """Play an environment in the terminal."""

    env: Annotated[str, tyro.conf.Positional]
    """Gymnasium id, or a short name such as sokoban."""
    seed: int = 0
    """Which instance to begin with; with --levels the number of the level, from 0."""
    levels: Path | None = None
    """File of levels, played in their order and without limits."""
    env_set: tuple[str, ...] = ()
    """Settings of the environment as KEY=VALUE, the value in JSON, such as num_boxes=2."""


def main(args: list[str]) -> int:
    """Play until the player quits or the input ends."""
    chosen = read_arguments(PlayArgs, args, prog="tsr play")
    settings = parse_settings(chosen.env_set)
    if chosen.levels is not None:
        settings = {**UNLIMITED, "levels": str(chosen.levels), **settings}
    try:
        env = gym.make(env_id(chosen.env), **settings)
    except (gym.error.Error, ModuleNotFoundError, TypeError) as error:
        raise ConfigError(f"{chosen.env} cannot be made: {error}") from error
    base = env.unwrapped
    if not isinstance(base, TextEnv):
        raise ConfigError(f"wanted an environment of text, {chosen.env} is a {type(base).__name__}")
    game = Game(env, base, chosen.seed, numbered=chosen.levels is not None)
    game.do_help("")
    game.show()
    game.cmdloop()
    return 0


class Game(Cmd):
    """A player before an environment.

    Args:
        env: The environment.
        base: The same without its wrappers.
        number: The instance to begin with.
        numbered: Whether numbers are those of the environment's levels, and not seeds.
    """

    prompt = "> "

    def __init__(self, env: gym.Env[Any, Any], base: TextEnv[Any], number: int, *, numbered: bool) -> None:
        super().__init__()
        self.use_rawinput = sys.stdin.isatty()
        self._env, self._base, self._numbered = env, base, numbered
        self._begin(number)

    def _begin(self, number: int) -> None:
        options = {"number": number} if self._numbered else None
        observation, info = self._env.reset(seed=number, options=options)
        self._number, self._now = number, (observation, info, 0.0)
        self._past: list[tuple[Snapshot, tuple[str, dict[str, Any], float]]] = []

    def precmd(self, line: str) -> str:
        """Take commands in any case and by their first letter; what is not one is a turn."""
        word = line.strip().lower().replace("?", "help")
        return next((name for name in COMMANDS if word and word in (name, name[0])), line)

    def onecmd(self, line: str) -> bool:
        """Carry out a command, or play a turn."""
        if line == "EOF" or line == "quit":
            print()
            return True
        if line in COMMANDS:
            super().onecmd(line)
        else:
            self._play(line.strip())
        return False

    def _play(self, turn: str) -> None:
        episode = self._base.episode
        if episode.terminated or episode.truncated:
            print("the episode is over: undo, restart, next or quit")
            return
        before = snapshot(self._env)
        observation, reward, _, _, info = self._env.step(turn)
        if info.get("action_is_valid") is False:
            restore(self._env, before)
            print(f"not understood: {info['invalid_reason']}; nothing was done")
            return
        self._past.append((before, self._now))
        self._now = (observation, info, self._now[-1] + float(reward))
        self.show()

    def do_help(self, _: str) -> None:
        """Show the rules, the actions and the commands."""
        rules = self._base.instructions
        if not self._base.reads_tags:
            rules = rules.replace("<answer>", "").replace("</answer>", "")
        words = f": {', '.join(self._base.actions)}" if self._base.actions else ""
        several = f", several joined by {self._base.separator}" if self._base.separator else ""
        print(f"{textwrap.fill(rules, WIDTH)}\n" if rules else "")
        print(f"actions{words}{several}; or: {', '.join(COMMANDS)}")

    def do_undo(self, _: str) -> None:
        """Take the last turn back."""
        if not self._past:
            print("nothing to undo")
            return
        snap, self._now = self._past.pop()
        restore(self._env, snap)
        self.show()

    def do_restart(self, _: str) -> None:
        """Begin the same instance again."""
        self._begin(self._number)
        self.show()

    def do_next(self, _: str) -> None:
        """Begin the next instance."""
        try:
            self._begin(self._number + 1)
        except ConfigError as error:
            print(f"there is no next one: {error}")
        else:
            self.show()

    def do_hint(self, _: str) -> None:
        """Show a best next turn, or the beginning of a long one."""
        info = self._now[1]
        try:
            turn = self._base.optimal_turn(self._base.state, info["turns_left"], info["actions_left"])
        except MissingExtra as error:
            print(error)
            return
        separator = self._base.separator
        if turn is None or separator is None:
            print(turn or "no hint for this position")
            return
        actions = turn.split(separator)
        more = f" and {len(actions) - MAX_HINT} more actions" if len(actions) > MAX_HINT else ""
        print(separator.join(actions[:MAX_HINT]).strip() + more)

    def show(self) -> None:
        """Print the position and how the episode stands."""
        observation, info, total = self._now
        parts = [f"return {total:g}"]
        parts += [
            f"{info[name]} {name.removesuffix('_left')} left"
            for name in ("turns_left", "actions_left")
            if info.get(name) is not None
        ]
        parts += ["solved!"] if info.get("success") else self._warning()
        print(f"\n{observation}\n{', '.join(parts)}")
        episode = self._base.episode
        # Where actions depend on the state, they are shown with it.
        if not self._base.actions and not (episode.terminated or episode.truncated):
            choices = ", ".join(self._base.legal_actions(self._base.state))
            print(textwrap.fill(f"for example: {choices}", WIDTH, break_on_hyphens=False))

    def _warning(self) -> list[str]:
        try:
            reason = self._base.dead_end(self._base.state)
        except MissingExtra:
            # Whoever asks for a hint is told what is missing; without a warning one can play.
            return []
        return [f"can no longer be solved: {reason}"] if reason else []
