"""BaseRecipe: how an embedded base model is made, and whether it can be; torch-free."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tsr_gym.agents.episodes.env_pool import EnvPool, task_pool
from tsr_gym.agents.episodes.settings import TaskConfig
from tsr_gym.errors import ConfigError
from tsr_gym.registration import accepted, env_id


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
        batch: Turns per step.
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


def check_recipe(env: str, out: Path, recipe: BaseRecipe) -> dict[str, Any]:
    """Return the settings in which an environment shows itself to a very small model, none where it has one form only.

    Args:
        env: Gymnasium id or short name.
        out: Folder of the model.
        recipe: How it is made.

    Raises:
        ConfigError: The folder exists, the environment cannot be made, or it has no oracle to learn from.
    """
    if out.exists():
        raise ConfigError(f"{out} exists: choose another folder")
    compact = accepted(env, {"obs_type": "compact"})
    try:
        form, pool = compact, _pool(env, recipe, compact)
    except ConfigError:
        form, pool = {}, _pool(env, recipe, {})
    pool.set([recipe.seed])
    base = pool.base
    if base.optimal_turn(base.state, base.limits.max_turns, base.limits.max_actions) is None:
        raise ConfigError(
            f"{env_id(env)} has no oracle with these settings: there is no good play to imitate; choose a --model, or "
            "write optimal_turn"
        )
    return form


def _pool(env: str, recipe: BaseRecipe, fixed: dict[str, Any]) -> EnvPool:
    return task_pool(env, TaskConfig(env_set=recipe.env_set), "train", fixed=fixed)
