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
from tsr_gym.errors import ConfigError, InvalidTree, MissingExtra, TsrGymError
from tsr_gym.keywords import parse_settings
from tsr_gym.optional import load
from tsr_gym.registration import env_id
from tsr_gym.stack import restore, snapshot
from tsr_gym.text_env import TextEnv
from tsr_gym.tree import Candidate, Node, Tree

COMMANDS = ("undo", "restart", "next", "hint", "quit", "help")
# These take the name of a file.
WITH_FILE = ("save", "load")
SHOWN = ("undo", "restart", "next", "hint", "save FILE", "load FILE", "quit", "help")
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
        self._key_of: Any = load("tsr_gym.wrappers.imagine:key_of")
        self._begin(number)

    def _begin(self, number: int) -> None:
        options = {"number": number} if self._numbered else None
        observation, info = self._env.reset(seed=number, options=options)
        self._number = number
        self._path = [self._node(None, "", observation, 0.0, info)]

    def _node(self, parent: int | None, turn: str, observation: str, reward: float, info: dict[str, Any]) -> Node:
        """Return where the game stands as a node of the trajectory that is played."""
        episode, key_of = self._base.episode, self._key_of
        return Node(
            parent=parent,
            depth=0 if parent is None else parent + 1,
            candidate=Candidate(turn),
            observation=observation,
            reward=float(reward),
            score=float(reward),
            terminated=episode.terminated,
            truncated=episode.truncated,
            info=info,
            snapshot=snapshot(self._env),
            state_key=key_of(self._base),
        )

    def precmd(self, line: str) -> str:
        """Take commands in any case and by their first letter; what is not one is a turn."""
        word = line.strip().lower().replace("?", "help")
        first, *file = line.split(maxsplit=1)[:2] or [""]
        if file and first.lower() in WITH_FILE:
            return f"{first.lower()} {file[0]}"
        return next((name for name in COMMANDS if word and word in (name, name[0])), line)

    def onecmd(self, line: str) -> bool:
        """Carry out a command, or play a turn."""
        if line == "EOF" or line == "quit":
            print()
            return True
        if line in COMMANDS or line.startswith(tuple(f"{name} " for name in WITH_FILE)):
            super().onecmd(line)
        else:
            self._play(line.strip())
        return False

    def _play(self, turn: str) -> None:
        episode = self._base.episode
        if episode.terminated or episode.truncated:
            print("the episode is over: undo, restart, next or quit")
            return
        before = self._path[-1].snapshot
        assert before is not None
        observation, reward, _, _, info = self._env.step(turn)
        if info.get("action_is_valid") is False:
            restore(self._env, before)
            print(f"not understood: {info['invalid_reason']}; nothing was done")
            return
        self._path.append(self._node(len(self._path) - 1, turn, observation, float(reward), info))
        self.show()

    def do_help(self, _: str) -> None:
        """Show the rules, the actions and the commands."""
        rules = self._base.instructions
        if not self._base.reads_tags:
            rules = rules.replace("<answer>", "").replace("</answer>", "")
        words = f": {', '.join(self._base.actions)}" if self._base.actions else ""
        several = f", several joined by {self._base.separator}" if self._base.separator else ""
        print(f"{textwrap.fill(rules, WIDTH)}\n" if rules else "")
        print(f"actions{words}{several}; or: {', '.join(SHOWN)}")

    def do_undo(self, _: str) -> None:
        """Take the last turn back."""
        if len(self._path) == 1:
            print("nothing to undo")
            return
        self._path.pop()
        self._stand()
        self.show()

    def _stand(self) -> None:
        """Put the environment where the trajectory ends."""
        here = self._path[-1].snapshot
        if here is None:
            raise InvalidTree("the trajectory was saved without snapshots")
        restore(self._env, here)

    def do_save(self, file: str) -> None:
        """Save the trajectory to here as a tree, which `load`, `tsr tree` and `tsr replay` read."""
        facts: Any = load("tsr_gym.wrappers.stack_facts:stack_facts")
        spec = self._env.spec
        about = {
            "env": None if spec is None else spec.id,
            "stack": facts(self._env),
            "noise": "same",
            "player": "person",
        }
        tree = Tree(seed=self._number, about=about)
        for node in self._path:
            tree.add(node, played=True)
        try:
            tree.save(Path(file))
            print(f"{file}: {len(self._path) - 1} turns")
        except OSError as error:
            print(error)

    def do_load(self, file: str) -> None:
        """Go on where a trajectory was saved; its turns can be undone."""
        before = self._path
        try:
            tree = Tree.load(Path(file))
            self._path = [tree.nodes[index] for index in tree.played]
            shown = all(isinstance(node.observation, str) for node in self._path)
            if not self._path or len(self._path) != len(tree.nodes) or not shown:
                raise InvalidTree(f"{file}: wanted a trajectory of texts, got a tree of {len(tree.nodes)} nodes")
            self._stand()
        except (OSError, TsrGymError) as error:
            self._path = before
            print(error)
        else:
            self._number = tree.seed
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
        info = self._path[-1].info
        try:
            turn = self._base.optimal_turn(self._base.state, info.get("turns_left"), info.get("actions_left"))
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
        here, total = self._path[-1], sum(node.reward for node in self._path)
        info = here.info
        # Pages of the shop are one line for a model.
        observation = here.observation.replace(" [SEP] ", "\n")
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
