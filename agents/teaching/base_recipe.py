"""BaseRecipe and WordRecipe: sizes, steps and rates of an embedded base model, and their checks; torch-free."""

from dataclasses import dataclass
from math import ceil
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
    """Recipe of a base model for a world of symbols, where single turns are imitated.

    Attributes:
        seed: Seed of instances, batches and weights.
        env_set: Settings of the environment, as KEY=VALUE.
        band: Lowest and highest success to end with, on instances of the validation split, at temperature 0.5.
        hidden: Width of the model.
        layers: Number of layers.
        skill: Share of optimal turns in the first stage.
        steps: Optimizer steps of the first stage.
        poor_skill: Share of optimal turns in the second stage.
        malformed: Share of malformed answers in the second stage.
        instances: Task instances of the first stage.
        episodes: Demonstrations of each instance; the second stage has one demonstration of each of a fifth as many
            other instances.
        poor_steps: Maximum steps of the second stage, which ends as soon as success is in the band.
        validations: Instances on which success is measured.
        batch: Turns per step; in worlds of words, episodes per step.
        lr: Learning rate at the beginning of the first stage; it falls to a tenth.
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
    """Recipe of a base model for a world of words, where whole episodes are imitated after a drill in copying.

    Attributes:
        drill_steps: Maximum steps of the copying drill, which ends as soon as the model copies.
        copies: Share of words that the model must copy correctly to end the drill.
        burst: Steps of the second stage between two measurements.
        poor_lr: Learning rate of the second stage, halved after each burst that went too far.
        least_valid: Share of the valid answers that a burst must keep, else it went too far. The second stage should
            hide good choices, not the answer format.
        corrections: Episodes that the model plays itself when most steps of the first stage are done. From the first
            invalid answer, and from the turn before it, the teacher continues the episode, and the rest of the stage
            also imitates these continuations. Without them a small model repeats an invalid answer until the episode
            ends.
        poor_player: Player imitated in the second stage, as package.module:name(...); empty for the world's own.
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


# Rates for 0.1 million parameters; the paper's 1e-6 is for billions, and has no effect here. A world may set its own.
LEARN = (("lr", 5e-4), ("critic_lr", 1e-3))


class TaughtWorld(NamedTuple):
    """A world's teaching, with the settings under which it is taught.

    Attributes:
        teaching: The good and the poor player, and the words.
        env_settings: Settings under which the environment's texts suit a very small model.
    """

    teaching: Teaching
    env_settings: dict[str, Any]

    @property
    def in_words(self) -> bool:
        """Whether the model reads words, not symbols, and so learns by a `WordRecipe`."""
        return self.teaching.words is not None or self.teaching.copying or self.teaching.history == "full"


def taught_world(env: str, env_set: tuple[str, ...] = (), *, seed: int = 0) -> TaughtWorld:
    """Return the teaching of an environment.

    Args:
        env: Gymnasium id or short name.
        env_set: Settings of the environment, as KEY=VALUE.
        seed: Seed of the instance on which the oracle is tried.

    Raises:
        ConfigError: The environment cannot be made, or has neither an oracle nor a teacher.
    """
    pool = _pool(env, env_set, {})
    teaching = pool.base.teaching()
    env_settings = accepted(env, {} if teaching is None else teaching.env_settings)
    try:
        pool = _pool(env, env_set, env_settings)
    except ConfigError:
        # The user's settings and the teaching's exclude each other; the user's win.
        env_settings = {}
    pool.set([seed])
    base = pool.base
    # Under these settings a world may have other texts, and so another teaching.
    teaching = base.teaching()
    has_good_play = teaching is not None and (
        teaching.teacher_turn is not oracle_turn
        or base.optimal_turn(base.state, base.limits.max_turns, base.limits.max_actions) is not None
    )
    if teaching is None or not has_good_play:
        raise ConfigError(
            f"{env_id(env)} has no oracle with these settings: there is no good play to imitate; choose a --model, or "
            "write optimal_turn or teaching"
        )
    return TaughtWorld(teaching, env_settings)


def training_settings(env: str, env_set: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the settings of training that fit the embedded model of an environment, by name.

    Raises:
        ConfigError: See `taught_world`.
    """
    return dict(LEARN) | dict(taught_world(env, env_set).teaching.learn)


def recipe_for(env: str, env_set: tuple[str, ...] = ()) -> BaseRecipe:
    """Return the default recipe of an environment: a `WordRecipe` for a world of words.

    Raises:
        ConfigError: See `taught_world`.
    """
    world = taught_world(env, env_set)
    recipe_type = WordRecipe if world.in_words else BaseRecipe
    return recipe_type(env_set=env_set, **world.teaching.recipe)


def check_recipe(env: str, out: Path, recipe: BaseRecipe) -> TaughtWorld:
    """Check that a base model can be built, and return the teaching of its environment.

    Args:
        env: Gymnasium id or short name.
        out: Folder of the model.
        recipe: Its recipe.

    Raises:
        ConfigError: The folder exists, the environment cannot be made or has no good play to learn from, the recipe is
            of the wrong type, or the band is narrower than can be measured.
    """
    if out.exists():
        raise ConfigError(f"{out} exists: choose another folder")
    check_numbers(recipe, "validations", "batch", "instances", "episodes", least=1)
    world = taught_world(env, recipe.env_set, seed=recipe.seed)
    if world.in_words != isinstance(recipe, WordRecipe):
        expected = WordRecipe if world.in_words else BaseRecipe
        raise ConfigError(
            f"wanted a {expected.__name__} for {env_id(env)}, got a {type(recipe).__name__}: see recipe_for"
        )
    _check_band(recipe)
    return world


def _check_band(recipe: BaseRecipe) -> None:
    """Raise ConfigError if no count of successes among the validations lies in the band."""
    low, high = recipe.band
    if low > high:
        raise ConfigError(f"wanted a band from low to high, got {low} to {high}")
    most = int(high * recipe.validations)
    # The next smaller and the next larger count must lie in the band as well, or one lucky episode decides. A band
    # from 0 needs no such margin: no success at all is in it.
    if low > 0 and most < 3:
        raise ConfigError(
            f"{recipe.validations} validations cannot show a success from {low} to {high}: at most {most} of them "
            f"would succeed; wanted validations >= {int(3 / high) + 1}"
        )
    if 0 == low < high and most < 1:
        raise ConfigError(
            f"{recipe.validations} validations cannot show a success from 0 to {high}, only none at all: wanted a band "
            f"from 0 to 0, or validations >= {ceil(1 / high)}"
        )


def _pool(env: str, env_set: tuple[str, ...], fixed: dict[str, Any]) -> EnvPool:
    return task_pool(env, TaskConfig(env_set=env_set), "train", fixed=fixed)
