"""Games: the generated games, and what TextWorld's logic knows of them; the one file that imports TextWorld.

A game is generated at its first use and kept under a key of its settings. The operations run in a child process; every
answer depends on the question alone. Facts are canonical texts in ascending order, so equal facts are equal values on
every path to them.
"""

import re
from collections.abc import Callable, Generator, Iterable
from functools import lru_cache, partial
from hashlib import blake2b
from importlib.metadata import version
from itertools import count, islice
from pathlib import Path
from typing import Any

from tsr_gym.files import cache_home, first_use
from tsr_gym.optional import require
from tsr_gym_envs.settings import in_split
from tsr_gym_envs.textworld.state import About, Scene, TextWorldSettings, options_of
from tsr_gym_envs.zmachine.child import Child, shared_child
from tsr_gym_envs.zmachine.machine import Machine

# The name has to begin so: Jericho knows TextWorld's games by it.
STORY = "tw-game.z8"
# The story prints these every turn, as TextWorld's wrappers request it.
TRACKED = ("inventory", "description", "moves", "score")
_EVENT = re.compile(r"\[[^]]+\]\n?")
_SUCCEEDED = " - succeeded"


def operations() -> dict[str, Callable[..., Any]]:
    """Return the operations of the child process, by name."""
    return {"generate": generate, "about": about, "begin": begin, "step": step, "commands": commands, "plan": plan}


def generate(folder: Path, game: str, options: dict[str, Any], seed: int) -> None:
    """Write a game, compiled, and what TextWorld knows of it."""
    import textworld
    from textworld.challenges import CHALLENGES

    made = textworld.GameOptions()
    made.seeds = seed
    made.path = str(folder / STORY)
    if game == "cooking":
        # Zero stands for the seeds of the rest of the game.
        options = {**options, "recipe_seed": seed + 1}
    _, make, _ = CHALLENGES[f"tw-{game}"]
    textworld.generator.compile_game(make(options, made), made)
    # The source of the compiled game is of no use here.
    (folder / STORY).with_suffix(".ni").unlink(missing_ok=True)


class _World:
    """A game that was opened: its interpreter and its logic."""

    def __init__(self, story: Path) -> None:
        from textworld import Game
        from textworld.generator.inform7 import Inform7Game
        from textworld.logic import State

        self.machine = Machine(story)
        self.game: Any = Game.load(str(story.with_suffix(".json")))
        self.inform: Any = Inform7Game(self.game)
        self._state: Any = State
        self._props: dict[str, Any] = {}
        # The other quests are optional, or define only how a game is lost.
        self.quests = [quest for quest in self.game.quests if quest.win_events and not quest.optional]
        self.rules = list(self.game.kb.rules.values())
        self.constants = self.game.kb.types.constants_mapping
        self.valid = lru_cache(maxsize=1024)(self._valid)

    def texts(self, facts: Iterable[Any]) -> tuple[str, ...]:
        """Return facts as canonical texts."""
        named = {str(fact): fact for fact in facts}
        self._props.update(named)
        return tuple(sorted(named))

    def state(self, facts: Iterable[str]) -> Any:
        """Return TextWorld's state in which some facts are true."""
        from textworld.logic import Proposition

        for text in facts:
            if text not in self._props:
                self._props[text] = Proposition.parse(text)
        return self._state(self.game.kb.logic, [self._props[text] for text in facts])

    def _valid(self, facts: tuple[str, ...]) -> tuple[tuple[Any, ...], tuple[str, ...]]:
        """Return the actions that are possible, and the commands for them."""
        actions = tuple(self.state(facts).all_applicable_actions(self.rules, self.constants))
        return actions, tuple(self.inform.gen_commands_from_actions(actions))


@lru_cache(maxsize=32)
def _opened(story: Path) -> _World:
    return _World(story)


def about(story: Path) -> About:
    """Return the constant facts of a game."""
    world = _opened(story)
    walkthrough = world.game.metadata.get("walkthrough") or ()
    return About(world.game.objective, world.game.max_score, tuple(walkthrough), world.machine.words)


def begin(story: Path) -> Scene:
    """Return the beginning of a game."""
    world = _opened(story)
    machine = world.machine
    machine.put(machine.start.memory)
    shown = {}
    for name in TRACKED:
        output = machine.send(f"tw-extra-infos {name}")
        shown[name] = _printed(output.text, (name,))[0][name]
    output = machine.send("tw-trace-actions")
    facts = world.texts(world.game.world.state.facts)
    none = (False,) * len(world.quests)
    first = Scene(
        output.memory,
        facts,
        machine.start.text,
        shown["description"] or "",
        shown["inventory"] or "",
        _number(shown["score"]),
        none,
        0.0,
        "",
        (),
    )
    return _judged(world, first, first)


def step(story: Path, before: Scene, command: str) -> Generator[None, None, Scene]:
    """Return the scene after a command; yield once the game is loaded."""
    world = _opened(story)
    yield
    output = world.machine.run(before.memory, command)
    shown, feedback = _printed(output.text)
    ended = "won" if "*** The End ***" in feedback else "lost" if "*** You lost! ***" in feedback else ""
    events, feedback = _events(feedback)
    facts, done = before.facts, before.done
    for event in events:
        actions, names = world.valid(facts)
        action = world.inform.detect_action(event, actions)
        if action is not None:
            state = world.state(facts)
            state.apply(action)
            texts = world.texts(state.facts)
            if texts != facts:
                done, facts = (*done, names[actions.index(action)]), texts
    after = Scene(
        output.memory,
        facts,
        feedback,
        before.description if shown["description"] is None else shown["description"],
        before.inventory if shown["inventory"] is None else shown["inventory"],
        before.points if shown["score"] is None else _number(shown["score"]),
        before.quests,
        before.progress,
        ended or ("halted" if output.halted else ""),
        done,
    )
    return _judged(world, before, after)


def commands(story: Path, facts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the admissible commands where some facts are true, in alphabetical order."""
    return tuple(sorted(set(_opened(story).valid(facts)[1])))


def plan(story: Path, done: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return commands that win a game after some others, proven in TextWorld's logic; None where it knows none.

    Args:
        story: The game.
        done: `Scene.done`.
    """
    world = _opened(story)
    progress = _progression(story, done)
    policy = progress.winning_policy
    if policy is None:
        return None
    trial = progress.copy()
    for action in policy:
        if not trial.state.is_applicable(action):
            return None
        trial.update(action)
    return tuple(world.inform.gen_commands_from_actions(policy)) if trial.completed else None


@lru_cache(maxsize=256)
def _progression(story: Path, done: tuple[str, ...]) -> Any:
    from textworld.generator.game import GameProgression

    world = _opened(story)
    if not done:
        return GameProgression(world.game, track_quests=True)
    progress = _progression(story, done[:-1]).copy()
    actions = progress.valid_actions
    progress.update(actions[world.inform.gen_commands_from_actions(actions).index(done[-1])])
    return progress


def _judged(world: _World, before: Scene, after: Scene) -> Scene:
    """Return a scene with its quests and its progress."""
    if after.facts == before.facts and after is not before:
        return after
    state = world.state(after.facts)
    quests, shares = [], []
    for quest, completed in zip(world.quests, before.quests, strict=True):
        holding = [_share(state, event.condition.preconditions) for event in quest.win_events]
        quests.append(completed or 1.0 in holding)
        shares.append(1.0 if quests[-1] else max(holding, default=0.0))
    return after._replace(quests=tuple(quests), progress=sum(shares) / len(shares) if shares else 0.0)


def _share(state: Any, facts: Any) -> float:
    return float(sum(state.is_fact(fact) for fact in facts) / len(facts))


def _printed(text: str, names: tuple[str, ...] = TRACKED) -> tuple[dict[str, str | None], str]:
    """Return the texts that a story printed between tags, by name, and the rest."""
    texts: dict[str, str | None] = {}
    for name in names:
        tagged = re.compile(rf"<{name}>\n(.*)</{name}>", re.DOTALL)
        match = tagged.search(text)
        texts[name] = None if match is None else _events(match.group(1))[1].strip()
        text = text if match is None else tagged.sub("", text)
    return texts, text


def _events(text: str) -> tuple[list[str], str]:
    """Return the events that a story named and that succeeded, and the text without any."""
    tags = _EVENT.findall(text)
    for tag in tags:
        text = text.replace(tag, "")
    names = [tag.strip()[1:-1] for tag in tags]
    ended = [name[: name.index(_SUCCEEDED)] for name in names if _SUCCEEDED in name]
    # Text in parentheses belongs to another event.
    return [name for name in ended if "(" not in name and ")" not in name], text


def _number(text: str | None) -> int:
    """Return the number on the first line of what was printed."""
    return int((text or "0").strip().split("\n")[0])


OPERATIONS = "tsr_gym_envs.textworld.games:operations"


def library_version() -> str:
    """Return the version of TextWorld: other versions make other games.

    Raises:
        MissingExtra: TextWorld or Jericho is not installed.
    """
    require("textworld", "textworld")
    require("jericho", "textworld")
    return version("textworld")


def child() -> Child:
    """Return the process that plays games."""
    return shared_child(OPERATIONS)


@lru_cache(maxsize=64)
def numbers(settings: TextWorldSettings) -> tuple[int, ...]:
    """Return the numbers of the games of a split, ascending; numbers of different splits never meet."""
    named = f"{settings.game}/{settings.level}"
    members = (number for number in count() if in_split(f"{named}/{number}".encode(), settings.split))
    return tuple(islice(members, settings.num_games))


@lru_cache(maxsize=1024)
def story_of(settings: TextWorldSettings, number: int) -> Path:
    """Return the file of a game; TextWorld makes it where it is not there yet.

    Args:
        settings: What decides the games; the form of observations and the limits do not count.
        number: The game's seed.
    """
    options = options_of(settings)
    made_of = (library_version(), settings.game, sorted(options.items(), key=str), number)
    key = blake2b(repr(made_of).encode(), digest_size=8).hexdigest()
    folder = cache_home() / "textworld" / f"{settings.game}-{settings.level}-{number}-{key}"
    return first_use(folder, STORY, partial(_write, settings.game, options, number)) / STORY


def _write(game: str, options: dict[str, Any], number: int, folder: Path) -> None:
    child().ask("generate", folder.resolve(), game, options, number)
