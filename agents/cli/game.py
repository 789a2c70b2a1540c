"""The game of `tsr play`: an environment in the terminal, with undo, forks, hints, scores and a model's proposals."""

import re
import sys
import textwrap
from cmd import Cmd
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple

import gymnasium as gym

from tsr_gym.errors import ConfigError, InvalidTree, MissingExtra, PromptTooLong, TsrGymError
from tsr_gym.node import Candidate, Node
from tsr_gym.seeds import derive_seed
from tsr_gym.stack import restore, snapshot
from tsr_gym.text_env import TextEnv
from tsr_gym.tree import Tree

Line = tuple[Node, ...]


@dataclass(slots=True)
class Played:
    """The current trajectory, and the trajectories that were left. Nodes are compared by identity.

    Attributes:
        path: The current trajectory, first node first.
        lines: Trajectories that were left, each to its last node.
        positions: Paths from the first node to the positions that were kept.
    """

    path: list[Node]
    lines: list[Line] = field(default_factory=list)
    positions: list[Line] = field(default_factory=list)

    def keep(self) -> int:
        """Keep the current position and return its number, from 1."""
        here = [number for number, line in enumerate(self.positions, start=1) if line[-1] is self.path[-1]]
        if here:
            return here[0]
        self.positions.append(tuple(self.path))
        return len(self.positions)

    def go(self, number: int) -> int:
        """Return to a kept position, and return the number under which the current one is kept.

        Raises:
            LookupError: There is no position with this number.
        """
        if not 1 <= number <= len(self.positions):
            raise LookupError(f"wanted a position from 1 to {len(self.positions)}, got {number}")
        left = self.keep()
        self.lines.append(tuple(self.path))
        self.path = list(self.positions[number - 1])
        return left


def tree_of(played: Played, *, seed: int, score_of: Literal["turn", "state"], about: Mapping[str, Any]) -> Tree:
    """Return the game as a tree, whose played nodes are the current path."""
    tree = Tree(seed=seed, score_of=score_of, about=about)
    own = {id(node) for node in played.path}
    index: dict[int, int] = {}
    for line in (*played.lines, tuple(played.path)):
        parent = None
        for node in line:
            if id(node) not in index:
                index[id(node)] = tree.add(replace(node, parent=parent), played=id(node) in own)
            parent = index[id(node)]
    return tree


def played_of(tree: Tree) -> Played:
    """Return the game that a tree holds; forks and the ends of left trajectories become its kept positions.

    Raises:
        InvalidTree: The observations are not text, or the tree has no played nodes.
    """
    if not tree.played or not all(isinstance(node.observation, str) for node in tree.nodes):
        raise InvalidTree(f"wanted a trajectory of texts, got a tree of {len(tree.nodes)} nodes")

    def line(end: int) -> Line:
        return tuple(tree.nodes[index] for index in tree.path(end))

    ends = [end for end in tree.leaves() if end not in tree.played]
    forks = [index for index in range(len(tree.nodes)) if len(tree.children(index)) > 1]
    return Played(list(line(tree.played[-1])), [line(end) for end in ends], [line(end) for end in [*forks, *ends]])


WIDTH = 100
_INFORMATION = re.compile(r"<information>(.*?)</information>", re.DOTALL)
_PASSAGE = re.compile(r'^Doc (\d+)\(Title: "?(.*?)"?\) (.*)$', re.DOTALL)
# The id of a product, as a button; and a price, which follows a title.
_PRODUCT = re.compile(r"\[B0[A-Z0-9]{8}\]")
_PRICE = re.compile(r" \[SEP\] (\$\d)")


def readable(text: str, *, asked: str = "", buttons: Collection[str] = ()) -> str:
    """Return an observation as a page: passages with their titles, parts of a shop's page as lines, others as they are.

    Args:
        text: The observation.
        asked: The question, printed above passages.
        buttons: Names of the buttons in small letters; they are printed in brackets.
    """
    if _INFORMATION.search(text):
        return "\n\n".join(filter(None, [textwrap.fill(asked, WIDTH), *_passages(text)]))
    return _shop_page(text, buttons) if " [SEP] " in text else text


def _passages(text: str) -> list[str]:
    parts = _INFORMATION.split(text)
    blocks: list[str] = []
    for number, part in enumerate(parts):
        inside = re.split(r"\n(?=Doc \d+\()", part) if number % 2 else [part]
        blocks += [_passage(block.strip()) for block in inside if block.strip()]
    return blocks


def _passage(text: str) -> str:
    match = _PASSAGE.match(text)
    if match is None:
        return textwrap.fill(text, WIDTH)
    number, title, body = match.groups()
    return f"[{number}] {title}\n{textwrap.fill(body, WIDTH, initial_indent='    ', subsequent_indent='    ')}"


def _shop_page(text: str, buttons: Collection[str]) -> str:
    """Return a page with a line per part; neighbouring buttons share lines."""
    lines: list[str] = []
    row: list[str] = []
    for part in _PRICE.sub(r" \1", text).split(" [SEP] "):
        if part.strip().lower() in buttons:
            row.append(f"[{part.strip()}]")
        elif part.strip():
            # A product's title follows its id.
            own = row.pop() if row and _PRODUCT.fullmatch(row[-1]) else ""
            lines += _row(row)
            row = []
            lines += textwrap.wrap(f"{own} {part.strip()}".strip(), WIDTH, subsequent_indent="  ")
    return "\n".join([*lines, *_row(row)])


def _row(names: list[str]) -> list[str]:
    # No-break spaces keep textwrap from breaking a line inside a name.
    lines = textwrap.wrap(" ".join(name.replace(" ", "\u00a0") for name in names), WIDTH, break_on_hyphens=False)
    return [line.replace("\u00a0", " ") for line in lines]


# Their first letters work too.
COMMANDS = ("undo", "restart", "next", "hint", "quit", "help")
WHOLE = ("scores", "model", "fork")
# Commands that take the name of a file, and commands that may take a number.
WITH_FILE = ("save", "load")
WITH_NUMBER = ("fork", "model")
SHOWN = ("undo", "restart", "next", "hint", "scores", "fork [N]", "save FILE", "load FILE", "quit", "help")
MAX_HINT = 5
# Most actions that `scores` tries, and the draws of each in an environment with noise.
MAX_TRIED = 30
DRAWS = 8


class Adviser(NamedTuple):
    """The model that proposes turns.

    Attributes:
        ask: Function of the path to the current node that returns proposals, see
            `tsr_gym.agents.episodes.model_player.Proposer`; None for no proposals.
        samples: Answers that are sampled at every position.
    """

    ask: Callable[..., Sequence[Any]] | None = None
    samples: int = 4


class Game(Cmd):
    """The loop that reads commands and turns of a person.

    Args:
        env: The environment.
        base: The environment without its wrappers.
        number: The first instance.
        numbered: Whether numbers are level numbers of the environment instead of seeds.
        adviser: The model that proposes turns.
        shows: The environment that shows positions to people; `base` if a model sees positions in the same form.
    """

    prompt = "> "

    def __init__(
        self,
        env: gym.Env[Any, Any],
        base: TextEnv[Any],
        number: int,
        *,
        numbered: bool,
        adviser: Adviser,
        shows: TextEnv[Any],
    ) -> None:
        super().__init__()
        self.use_rawinput = sys.stdin.isatty()
        self._env, self._base, self._shows = env, base, shows
        self._numbered, self._adviser = numbered, adviser
        from tsr_gym.wrappers.imagine import key_of
        from tsr_gym.wrappers.score_wrapper import ScoreWrapper

        self._score_of = env.score_of if isinstance(env, ScoreWrapper) else None
        self._key_of = key_of
        self._proposals: Sequence[Any] = ()
        self._begin(number)

    def _begin(self, number: int) -> None:
        options = {"number": number} if self._numbered else None
        observation, info = self._env.reset(seed=number, options=options)
        self._number = number
        self._played = Played([self._node(None, "", observation, 0.0, info)])

    @property
    def _here(self) -> Node:
        return self._played.path[-1]

    @property
    def _over(self) -> bool:
        return self._base.episode.terminated or self._base.episode.truncated

    def _node(self, parent: int | None, turn: str, observation: str, reward: float, info: dict[str, Any]) -> Node:
        """Return the current position as a node of the played trajectory."""
        episode = self._base.episode
        return Node(
            parent=parent,
            depth=0 if parent is None else parent + 1,
            candidate=Candidate(turn),
            observation=observation,
            reward=float(reward),
            score=float(info.get("score", reward)),
            terminated=episode.terminated,
            truncated=episode.truncated,
            info=info,
            snapshot=snapshot(self._env),
            state_key=self._key_of(self._base),
        )

    def precmd(self, line: str) -> str:
        """Return the line with the full name of its command in small letters; any other line is a turn, unchanged."""
        word = line.strip().lower().replace("?", "help")
        first, *rest = line.split(maxsplit=1)[:2] or [""]
        if rest and (first.lower() in WITH_FILE or (first.lower() in WITH_NUMBER and rest[0].strip().isdecimal())):
            return f"{first.lower()} {rest[0]}"
        if word in WHOLE:
            return word
        return next((name for name in COMMANDS if word and word in (name, name[0])), line)

    def onecmd(self, line: str) -> bool:
        """Run a command or play a turn; a line that begins with an exclamation mark is always a turn."""
        if line == "EOF" or line == "quit":
            print()
            return True
        named = line.partition(" ")[0]
        if line in (*COMMANDS, *WHOLE) or (line != named and named in (*WITH_FILE, *WITH_NUMBER)):
            super().onecmd(line)
        else:
            self._play(line.strip().removeprefix("!"))
        return False

    def _play(self, turn: str) -> None:
        if self._over:
            print("the episode is over: undo, fork, restart, next or quit")
            return
        before = self._here.snapshot
        assert before is not None
        observation, reward, _, _, info = self._env.step(turn)
        if info.get("action_is_valid") is False:
            restore(self._env, before)
            print(f"not understood: {info['invalid_reason']}; the position is unchanged")
            return
        self._played.path.append(self._node(len(self._played.path) - 1, turn, observation, float(reward), info))
        self.show()

    def do_help(self, _: str) -> None:
        """Show the rules, the actions and the commands."""
        rules = self._base.instructions
        if not self._base.reads_tags:
            rules = rules.replace("<answer>", "").replace("</answer>", "")
        words = f": {', '.join(self._base.actions)}" if self._base.actions else ""
        several = f", several joined by {self._base.separator}" if self._base.separator else ""
        print(f"{textwrap.fill(rules, WIDTH)}\n" if rules else "")
        more = () if self._adviser.ask is None else ("model [N]",)
        print(f"actions{words}{several}; or: {', '.join((*SHOWN, *more))}")

    def do_undo(self, _: str) -> None:
        """Take the last turn back."""
        if len(self._played.path) == 1:
            print("nothing to undo")
            return
        self._played.path.pop()
        self._stand()
        self.show()

    def do_fork(self, number: str) -> None:
        """Keep this position, or return to a kept one; the current position is then kept as well."""
        if not number:
            kept = self._played.keep()
            print(f"position {kept} is kept: fork {kept} returns to it")
            return
        try:
            left = self._played.go(int(number))
        except LookupError as error:
            print(f"{error}; fork without a number keeps the current position")
            return
        self._stand()
        print(f"the position that you left is kept as {left}")
        self.show()

    def _stand(self) -> None:
        """Restore the environment to the end of the trajectory."""
        here = self._here.snapshot
        if here is None:
            raise InvalidTree("the trajectory was saved without snapshots")
        restore(self._env, here)

    def do_save(self, file: str) -> None:
        """Save the game as a tree, which `load`, `tsr tree`, `tsr view` and `tsr replay` read."""
        try:
            self.save(Path(file))
        except OSError as error:
            print(error)

    def save(self, file: Path) -> None:
        """Save the game as a tree.

        Raises:
            OSError: The file cannot be written.
        """
        from tsr_gym.wrappers.replay import stack_facts

        spec = self._env.spec
        about = {
            "env": None if spec is None else spec.id,
            "stack": stack_facts(self._env),
            "noise": "same",
            "player": "person",
        }
        tree = tree_of(self._played, seed=self._number, score_of=self._score_of or "turn", about=about)
        tree.save(file)
        forks = f", {len(tree.leaves())} ends" if len(tree.leaves()) > 1 else ""
        print(f"{file}: {len(self._played.path) - 1} turns{forks}")

    def do_load(self, file: str) -> None:
        """Load a saved game; its turns can be undone, and its forks continued."""
        before = self._played
        try:
            tree = Tree.load(Path(file))
            self._played = played_of(tree)
            self._stand()
        except (OSError, TsrGymError) as error:
            self._played = before
            print(error)
        else:
            self._number = tree.seed
            self.show()
            if self._played.positions:
                print(f"positions that fork N returns to: 1 to {len(self._played.positions)}")

    def do_restart(self, _: str) -> None:
        """Begin the same instance again."""
        self._begin(self._number)
        self.show()

    def do_next(self, _: str) -> None:
        """Begin the next instance."""
        try:
            self._begin(self._number + 1)
        except ConfigError as error:
            print(f"there is no next instance: {error}")
        else:
            self.show()

    def do_hint(self, _: str) -> None:
        """Show an optimal next turn, or the beginning of a long turn."""
        info = self._here.info
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

    def do_scores(self, _: str) -> None:
        """Show the score or reward of each action on fresh noise, and whether it makes the game unsolvable."""
        before = self._here.snapshot
        assert before is not None
        actions = () if self._over else self._base.legal_actions(self._base.state)
        for name in actions[:MAX_TRIED]:
            print(f"{name}: {', '.join(self._tried(name, before))}")
        if len(actions) > MAX_TRIED:
            print(f"and {len(actions) - MAX_TRIED} more actions")
        if not actions:
            print("there are no actions here")
        restore(self._env, before)

    def _tried(self, name: str, before: Any) -> list[str]:
        """Return the outcome of an action in words: score or reward, how often it solves the game or loses it."""
        scores, rewards, lost, solved = [], [], [], 0
        for draw in range(DRAWS if self._base.draws_noise else 1):
            restore(self._env, before, noise="fresh", seed=derive_seed(self._number, "tried", name, draw))
            _, reward, _, _, info = self._env.step(name)
            rewards.append(float(reward))
            scores.append(float(info.get("score", reward)))
            solved += bool(info.get("success"))
            lost += [] if info.get("success") else self._dead_end()
        words = [f"score {fmean(scores):.3g}"] if self._score_of else [f"reward {fmean(rewards):.3g}"]
        of = f" in {{}} of {len(scores)} draws" if len(scores) > 1 else ""
        words += [f"solves it{of.format(solved)}"] if solved else []
        return words + ([f"can no longer be solved: {lost[0]}{of.format(len(lost))}"] if lost else [])

    def do_model(self, number: str) -> None:
        """Play a turn that the model proposes, the first by default."""
        place = int(number or 1)
        if not 1 <= place <= len(self._proposals):
            asks = "tsr play --model loads a model" if self._adviser.ask is None else f"it made {len(self._proposals)}"
            print(f"the model has no proposal {place}: {asks}")
            return
        self._play(self._proposals[place - 1].action)

    def show(self) -> None:
        """Print the position, the state of the episode, and the model's proposals."""
        here, total = self._here, sum(node.reward for node in self._played.path)
        info = here.info
        print(f"\n{self._page()}")
        parts = [f"return {total:g}"]
        parts += [f"score {here.score:.3g}"] if self._score_of and here.parent is not None else []
        parts += [
            f"{info[name]} {name.removesuffix('_left')} left"
            for name in ("turns_left", "actions_left")
            if info.get(name) is not None
        ]
        dead_end = [] if info.get("success") else self._dead_end()
        parts += ["solved!"] if info.get("success") else [f"can no longer be solved: {why}" for why in dead_end]
        print(", ".join(parts))
        if self._over:
            self._proposals = ()
            return
        # Actions that depend on the state are shown with each position.
        if not self._base.actions:
            choices = ", ".join(self._base.legal_actions(self._base.state))
            print(textwrap.fill(f"for example: {choices}", WIDTH, break_on_hyphens=False))
        self._show_proposals()

    def _page(self) -> str:
        """Return the position for people, followed by the model's observation if it has another form."""
        here = self._here
        asked = "" if here.parent is None else self._played.path[0].observation
        page = readable(here.observation, asked=asked, buttons=_buttons(here.info))
        if self._shows is self._base:
            return page
        drawn = self._shows.observe(self._base.state)
        if drawn == here.observation:
            return page
        shown = readable(drawn, asked=asked, buttons=self._shows.buttons(self._base.state))
        return f"{shown}\nthe model sees: {page}"

    def _show_proposals(self) -> None:
        if self._adviser.ask is None:
            return
        seed = derive_seed(self._number, "proposals")
        try:
            self._proposals = self._adviser.ask(self._played.path, seed=seed, samples=self._adviser.samples)
        except PromptTooLong as error:
            self._proposals = ()
            print(f"the model proposes nothing: {error}")
            return
        for number, proposal in enumerate(self._proposals, start=1):
            action = " ".join(proposal.action.split()) or "an answer without the wanted form"
            share = f"{proposal.times} of {self._adviser.samples}"
            print(f"model {number}: {action} ({share}, p {proposal.probability:.2g})")

    def _dead_end(self) -> list[str]:
        try:
            reason = self._base.dead_end(self._base.state)
        except MissingExtra:
            # The warning of a dead end needs an extra, such as the Sokoban solver. The game works without it, and the
            # command `hint` reports the missing extra.
            return []
        return [reason] if reason else []


def _buttons(info: Any) -> Sequence[str]:
    """Return the buttons of a page from the info of a turn; empty if the info lists none."""
    actions = info.get("available_actions")
    return tuple(actions.get("clickables", ())) if isinstance(actions, dict) else ()
