"""The embedded base model: a tiny language model that plays the part of an instruct model, made by imitation.

First it imitates good play; then, briefly, poor play, which hides the skill again. What is left succeeds rarely and
wastes turns, and reinforcement brings the skill back out, as with a pretrained model.
"""

import copy
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tsr_gym.agents.episodes.model_player import ModelPlayer
from tsr_gym.agents.episodes.play import Evaluation, evaluate
from tsr_gym.agents.models.language_model import LanguageModel, save_policy
from tsr_gym.agents.teaching.base_recipe import BaseRecipe, WordRecipe, check_recipe, recipe_for
from tsr_gym.agents.teaching.hiding import hide_skill
from tsr_gym.agents.teaching.symbol_curriculum import LEARN, Note, symbol_curriculum
from tsr_gym.agents.teaching.word_curriculum import word_curriculum
from tsr_gym.codec import digest
from tsr_gym.files import cache_home, write_folder
from tsr_gym.registration import env_id
from tsr_gym.seeds import derive_seed
from tsr_gym.version import __version__

SKILLED = "skilled"


def default_model(env: str, env_set: Sequence[str] = (), *, note: Note = lambda text: None) -> Path:
    """Return the folder of an environment's embedded base model, built at the first use, its skilled stage in it.

    Args:
        env: Gymnasium id or short name.
        env_set: Settings of the environment, as KEY=VALUE.
        note: Told what is being done.
    """
    recipe = recipe_for(env, tuple(env_set))
    key = digest((env_id(env), recipe, LEARN, __version__))[:12]
    folder = cache_home() / "models" / f"{env_id(env).replace('/', '-').replace(':', '-')}-{key}"
    if not folder.exists():
        note(f"building the base model of {env_id(env)} in {folder}")
        build_base_model(env, folder, recipe, keep_skilled=True, note=note)
    return folder


def build_base_model(
    env: str,
    out: Path,
    recipe: BaseRecipe | None = None,
    *,
    keep_skilled: bool = False,
    note: Note = lambda text: None,
) -> dict[str, Any]:
    """Build a base model in a folder, in Hugging Face form.

    Args:
        env: Gymnasium id or short name of an environment that says how it is taught.
        out: The folder; it must not exist.
        recipe: How; None for the environment's default.
        keep_skilled: Whether the model before its skill was hidden is kept, in the subfolder ``skilled``.
        note: Told what is being done.

    Returns:
        How it was made and how it plays.

    Raises:
        ConfigError: The folder exists, or the environment has nobody to learn from.
    """
    recipe = recipe or recipe_for(env)
    lesson = check_recipe(env, out, recipe)
    torch.set_num_threads(1)
    torch.manual_seed(recipe.seed)
    if isinstance(recipe, WordRecipe):
        course = word_curriculum(env, recipe, lesson, note)
        steps, lr, least_valid = recipe.burst, recipe.poor_lr, recipe.least_valid
    else:
        course = symbol_curriculum(env, recipe, lesson, note)
        steps, lr, least_valid = 20, recipe.lr / 4, 0.0
    policy = course.player.policy
    measure = partial(_measure, course.player, recipe)
    best = measure()
    skilled = copy.deepcopy(policy) if keep_skilled else None
    note("plays with success {:.3f}; imitating poor play until it is from {} to {}".format(best.success, *recipe.band))
    found = hide_skill(
        policy.model,
        course.poor(),
        measure,
        best,
        band=recipe.band,
        bursts=recipe.poor_steps // steps,
        lr=lr,
        least_valid=least_valid * best.valid,
        note=note,
    )
    about = {
        "recipe": asdict(recipe),
        "success_skilled": best.success,
        "valid_skilled": best.valid,
        "success": found.success,
        "valid": found.valid,
        "version": __version__,
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    write_folder(out, partial(_save, policy, about, skilled))
    return about


def _save(policy: LanguageModel, about: dict[str, Any], skilled: LanguageModel | None, folder: Path) -> None:
    save_policy(policy._replace(card=replace(policy.card, about=about)), folder)
    if skilled is not None:
        own = about | {"success": about["success_skilled"], "valid": about["valid_skilled"]}
        (folder / SKILLED).mkdir()
        save_policy(skilled._replace(card=replace(skilled.card, about=own)), folder / SKILLED)


def _measure(player: ModelPlayer, recipe: BaseRecipe) -> Evaluation:
    """Return how a model plays instances of the validation split."""
    pool = player.pool("valid")
    chat = player.chat_about(pool.base, temperature=0.5)
    tasks = [derive_seed(recipe.seed, "validate", number) for number in range(recipe.validations)]
    return evaluate(pool, chat, tasks=tasks, seed=recipe.seed)
