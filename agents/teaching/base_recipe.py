"""BaseRecipe and WordRecipe: how an embedded base model is made, and whether it can be; torch-free."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tsr_gym.agents.episodes.env_pool import EnvPool, task_pool
from tsr_gym.agents.episodes.settings import TaskConfig
from tsr_gym.errors import ConfigError
from tsr_gym.registration import accepted, env_id
from tsr_gym.sections import check_numbers
from tsr_gym.teaching import Teaching, oracle_turn


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseRecipe:
    """How a base model is made.

    Attributes:
        seed: Of everything.
        env_set: Settings of the environment, as KEY=VALUE.
        band: Success that the model should end with, on instances of the validation split, at temperature 0.5.
        hidden: Width of the model.
        layers: Its depth.
        skill: Share of optimal turns in the first stage.
        steps: Optimizer steps of the first stage.
        poor_skill: Share of optimal turns in the second stage.
        malformed: Share of malformed answers in the second stage.
        instances: Task instances of the first stage.
        episodes: Demonstrations of each of them; the second stage has one of each of a fifth as many others.
        poor_steps: Most steps of the second stage, which ends as soon as success is in the band.
        validations: Instances on which success is measured.
        batch: Turns per step, or episodes where they are imitated whole.
        lr: Learning rate of the first stage, which falls to a tenth of it.
    """

    seed: int = 0
    env_set: tuple[str, ...] = ()
    band: tuple[float, float] = (0.02, 0.25)
    hidden: int = 64
    layers: int = 2
    skill: float = 0.95
    steps: int = 1000
    poor_skill: float = 0.12
    malformed: float = 0.28
    instances: int = 4_000
    episodes: int = 6
    poor_steps: int = 200
    validations: int = 256
    batch: int = 64
    lr: float = 3e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class WordRecipe(BaseRecipe):
    """How a base model is made in a world of words, where episodes are imitated whole and copying comes first.

    Attributes:
        drill_steps: Most steps of the copying drill, which ends as soon as the model copies.
        copies: Share of words that the model must copy right to end the drill.
        burst: Steps of the second stage between two measurements.
        poor_lr: Learning rate of the second stage, halved where a burst went too far.
        least_valid: Share of the valid answers that must be kept, else a burst went too far: choices are hidden, more
            than form.
        corrections: Episodes that the model plays itself when most steps of the first stage are done. Where it first
            says something that means nothing, the teacher plays on, from there and from the turn before, and the rest
            of the stage has these episodes, too: without them a small model says the same again until the end.
        poor_player: Who is imitated in the second stage, as package.module:name(...); empty for whom the world names.
    """

    band: tuple[float, float] = (0.02, 0.08)
    skill: float = 1.0
    malformed: float = 0.0
    episodes: int = 1
    poor_steps: int = 300
    batch: int = 32
    drill_steps: int = 600
    copies: float = 0.95
    burst: int = 20
    poor_lr: float = 4e-4
    least_valid: float = 0.7
    corrections: int = 0
    poor_player: str = ""


class Lesson(NamedTuple):
    """What a world says of how it is learned.

    Attributes:
        teaching: Who plays well and poorly, and in which words.
        form: Settings in which the environment shows itself to a very small model.
    """

    teaching: Teaching
    form: dict[str, Any]

    @property
    def in_words(self) -> bool:
        """Whether the model reads words rather than signs, and learns by a `WordRecipe`."""
        return self.teaching.words is not None or self.teaching.copying or self.teaching.history == "full"


def find_lesson(env: str, env_set: tuple[str, ...] = (), *, seed: int = 0) -> Lesson:
    """Return how an environment is learned.

    Args:
        env: Gymnasium id or short name.
        env_set: Settings of the environment, as KEY=VALUE.
        seed: Of the instance on which the oracle is asked.

    Raises:
        ConfigError: The environment cannot be made, or nobody plays it well.
    """
    pool = _pool(env, env_set, {})
    teaching = pool.base.teaching()
    form = accepted(env, {} if teaching is None else teaching.env_settings)
    try:
        pool = _pool(env, env_set, form)
    except ConfigError:
        form = {}
    pool.set([seed])
    base = pool.base
    # In its form a world may be another one, with other words.
    teaching = base.teaching()
    knows = teaching is not None and (
        teaching.teacher_turn is not oracle_turn
        or base.optimal_turn(base.state, base.limits.max_turns, base.limits.max_actions) is not None
    )
    if teaching is None or not knows:
        raise ConfigError(
            f"{env_id(env)} has no oracle with these settings: there is no good play to imitate; choose a --model, or "
            "write optimal_turn or teaching"
        )
    return Lesson(teaching, form)


def recipe_for(env: str, env_set: tuple[str, ...] = ()) -> BaseRecipe:
    """Return the default recipe of an environment: a `WordRecipe` where it is a world of words.

    Raises:
        ConfigError: See `find_lesson`.
    """
    lesson = find_lesson(env, env_set)
    kind = WordRecipe if lesson.in_words else BaseRecipe
    return kind(env_set=env_set, **lesson.teaching.recipe)


def check_recipe(env: str, out: Path, recipe: BaseRecipe) -> Lesson:
    """Return how an environment is learned.

    Args:
        env: Gymnasium id or short name.
        out: Folder of the model.
        recipe: How it is made.

    Raises:
        ConfigError: The folder exists, the environment cannot be made, it has no good play to learn from, the recipe is
            not for its kind, or the band is narrower than can be measured.
    """
    if out.exists():
        raise ConfigError(f"{out} exists: choose another folder")
    check_numbers(recipe, "validations", "batch", "instances", "episodes", least=1)
    lesson = find_lesson(env, recipe.env_set, seed=recipe.seed)
    if lesson.in_words != isinstance(recipe, WordRecipe):
        kinds = (BaseRecipe.__name__, WordRecipe.__name__)
        raise ConfigError(
            f"wanted a {kinds[lesson.in_words]} for {env_id(env)}, got a {type(recipe).__name__}: see recipe_for"
        )
    _check_band(recipe)
    return lesson


def _check_band(recipe: BaseRecipe) -> None:
    """Refuse a band in which no number of successes lies that so many validations can show."""
    low, high = recipe.band
    if low > high:
        raise ConfigError(f"wanted a band from low to high, got {low} to {high}")
    most = int(high * recipe.validations)
    # One success more or less has to be in the band, too. In a band that reaches down to none, none at all is.
    if low > 0 and most < 3:
        raise ConfigError(
            f"{recipe.validations} validations cannot tell whether success is from {low} to {high}: of them {most} "
            f"would succeed at most; wanted validations >= {int(3 / high) + 1}"
        )


def _pool(env: str, env_set: tuple[str, ...], fixed: dict[str, Any]) -> EnvPool:
    return task_pool(env, TaskConfig(env_set=env_set), "train", fixed=fixed)
