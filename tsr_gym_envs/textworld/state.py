"""The settings that decide the games of TextWorld, and the state of an episode."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from tsr_gym import ConfigError
from tsr_gym_envs.settings import SPLITS, settings_from
from tsr_gym_envs.zmachine.machine import Memory

PRESETS: dict[str, dict[str, Any]] = {"default": {}}
OBSERVATION_MODES = ("feedback", "full", "commands")
FOODS = ("train", "valid", "test", "all")
# Most levels of a game. TextWorld 1.7 compiles at most 100 rooms, which leaves these of the coin collector.
LEVELS = {"simple": 3, "coin_collector": 150, "treasure_hunter": 30, "cooking": 10}
# The published difficulties of the cooking games (GATA, arXiv 2002.09127: the levels of its games' folders), as
# options of TextWorld's tw-cooking. Every one has closed doors and containers.
COOKING: tuple[dict[str, Any], ...] = (
    {"recipe": 1, "take": 1},
    {"recipe": 1, "take": 1, "cook": True},
    {"recipe": 1, "take": 1, "cut": True},
    {"recipe": 1, "take": 1, "go": 6},
    {"recipe": 1, "take": 1, "go": 9},
    {"recipe": 1, "take": 1, "go": 12},
    {"recipe": 1, "take": 1, "cook": True, "cut": True},
    {"recipe": 3, "take": 3, "go": 6},
    {"recipe": 3, "take": 3, "go": 6, "cook": True, "cut": True},
    {"recipe": 3, "take": 3, "go": 12, "cook": True, "cut": True},
)
# How often the simple game pays on the way to its goal.
SIMPLE = ("dense", "balanced", "sparse")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextWorldSettings:
    """The settings of games, limits and observations; `TextWorldEnv` documents them."""

    preset: str = "default"
    game: Literal["simple", "coin_collector", "treasure_hunter", "cooking"] = "simple"
    level: int = 1
    foods: str = "train"
    split: str = "all"
    num_games: int = 100
    observation_mode: str = "full"
    max_turns: int | None = 50

    def __post_init__(self) -> None:
        for name, value, choices in (
            ("game", self.game, LEVELS),
            ("foods", self.foods, FOODS),
            ("split", self.split, SPLITS),
            ("observation_mode", self.observation_mode, OBSERVATION_MODES),
        ):
            if value not in choices:
                raise ConfigError(f"wanted {name} of {sorted(choices)}, got {value!r}")
        if not 1 <= self.level <= LEVELS[self.game]:
            raise ConfigError(f"wanted level from 1 to {LEVELS[self.game]} of {self.game!r}, got {self.level}")
        if self.num_games < 1:
            raise ConfigError(f"wanted num_games >= 1, got {self.num_games}")


def make_settings(preset: str, given: dict[str, Any]) -> TextWorldSettings:
    """Return the settings that keywords stand for.

    Raises:
        ConfigError: A setting is unknown or impossible.
    """
    return settings_from(TextWorldSettings, PRESETS, preset, given, discrete={}, arrays=())


def options_of(settings: TextWorldSettings) -> dict[str, Any]:
    """Return the options with which TextWorld makes a game, without its seeds.

    >>> options_of(TextWorldSettings(game="cooking", level=4))
    {'go': 6, 'open': True, 'cook': False, 'cut': False, 'drop': False, 'recipe': 1, 'take': 1, 'split': 'train'}
    """
    if settings.game == "cooking":
        plain = {"go": 1, "open": True, "cook": False, "cut": False, "drop": False}
        foods = None if settings.foods == "all" else settings.foods
        return {**plain, **COOKING[settings.level - 1], "split": foods}
    if settings.game == "simple":
        return {"rewards": SIMPLE[settings.level - 1], "goal": "detailed", "test": False}
    return {"level": settings.level}


class About(NamedTuple):
    """The constant facts of a game.

    Attributes:
        objective: What it asks for.
        max_points: How many points there are.
        walkthrough: Commands that win it, as TextWorld wrote them.
        words: The words that it knows.
    """

    objective: str
    max_points: int
    walkthrough: tuple[str, ...]
    words: frozenset[str]


class Scene(NamedTuple):
    """The state of a game.

    Attributes:
        memory: The interpreter's.
        facts: What is true, as TextWorld writes it, in ascending order.
        feedback: The game's last output.
        description: The room as it is described.
        inventory: What the player carries, as it is described.
        points: Points so far.
        quests: For each quest that has to be completed, whether it was at some time.
        progress: Mean over the quests of the share of their conditions that hold, 1 for those that were completed.
        ended: ``"won"``, ``"lost"``, ``"halted"`` or "".
        done: The commands so far that changed the facts, as TextWorld writes them.
    """

    memory: Memory
    facts: tuple[str, ...]
    feedback: str
    description: str
    inventory: str
    points: int
    quests: tuple[bool, ...]
    progress: float
    ended: str
    done: tuple[str, ...]


class TextWorldState(NamedTuple):
    """The state of an episode.

    Attributes:
        game: Number of the game, which is its seed.
        scene: The state of that game.
    """

    game: int
    scene: Scene
