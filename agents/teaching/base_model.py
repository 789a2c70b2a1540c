"""The embedded base model: a tiny language model that stands in for an instruct model, made by imitation.

It first imitates good play and then, in short bursts, poor play, which hides the skill again. The result succeeds
rarely and wastes turns, as a pretrained model does in a new world, and reinforcement learning brings the skill back.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tsr_gym.agents.episodes.model_player import ModelPlayer
from tsr_gym.agents.episodes.play import Evaluation, evaluate
from tsr_gym.agents.models.language_model import LanguageModel, save_policy
from tsr_gym.agents.teaching.base_recipe import LEARN, BaseRecipe, WordRecipe, check_recipe, recipe_for
from tsr_gym.agents.teaching.curricula import BURST, Note, symbol_curriculum, word_curriculum
from tsr_gym.codec import digest
from tsr_gym.files import cache_home, write_folder
from tsr_gym.registration import env_id
from tsr_gym.seeds import derive_seed
from tsr_gym.version import __version__

SKILLED = "skilled"


def default_model(env: str, env_set: Sequence[str] = (), *, note: Note = lambda text: None) -> Path:
    """Return the folder of an environment's embedded base model, which is built at its first use.

    The subfolder ``skilled`` holds the model before its skill was hidden.

    Args:
        env: Gymnasium id or short name.
        env_set: Settings of the environment, as KEY=VALUE.
        note: Called with a line of text at each stage.
    """
    folder = default_folder(env, env_set)
    if not folder.exists():
        note(f"building the base model of {env_id(env)} in {folder}")
        build_base_model(env, folder, recipe_for(env, tuple(env_set)), keep_skilled=True, note=note)
    return folder


def default_folder(env: str, env_set: Sequence[str] = ()) -> Path:
    """Return the folder of an environment's embedded base model, whether it is built yet or not."""
    key = digest((env_id(env), recipe_for(env, tuple(env_set)), LEARN, __version__))[:12]
    return cache_home() / "models" / f"{env_id(env).replace('/', '-').replace(':', '-')}-{key}"


def build_base_model(
    env: str, out: Path, recipe: BaseRecipe | None = None, *, keep_skilled: bool = False, note: Note = lambda text: None
) -> dict[str, Any]:
    """Build a base model in a folder, in Hugging Face form.

    Args:
        env: Gymnasium id or short name of an environment with a `Teaching`.
        out: The folder; it must not exist.
        recipe: Sizes, steps and rates; None for the environment's default.
        keep_skilled: Whether to keep the model before its skill was hidden, in the subfolder ``skilled``.
        note: Called with a line of text at each stage.

    Returns:
        The recipe, and the model's success and share of valid answers before and after hiding.

    Raises:
        ConfigError: The folder exists, or the environment has no good play to imitate.
    """
    recipe = recipe or recipe_for(env)
    world = check_recipe(env, out, recipe)
    torch.set_num_threads(1)
    torch.manual_seed(recipe.seed)
    if isinstance(recipe, WordRecipe):
        skilled = word_curriculum(env, recipe, world, note)
        steps, lr, least_valid = recipe.burst, recipe.poor_lr, recipe.least_valid
    else:
        skilled = symbol_curriculum(env, recipe, world, note)
        steps, lr, least_valid = BURST, recipe.lr / 4, 0.0
    policy = skilled.player.policy
    measure = partial(_measure, skilled.player, recipe)
    best = measure()
    kept = copy.deepcopy(policy) if keep_skilled else None
    note("plays with success {:.3f}; imitating poor play until it is from {} to {}".format(best.success, *recipe.band))
    hidden = hide_skill(
        policy.model,
        skilled.poor_play(),
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
        "success": hidden.success,
        "valid": hidden.valid,
        "version": __version__,
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    write_folder(out, partial(_save, policy, about, kept))
    return about


def hide_skill(
    model: Any,
    burst: Callable[[float], None],
    measure: Callable[[], Evaluation],
    current: Evaluation,
    *,
    band: tuple[float, float],
    bursts: int,
    lr: float,
    least_valid: float = 0.0,
    note: Callable[[str], None],
) -> Evaluation:
    """Imitate poor play in bursts until success is in a band, and return the evaluation of the model.

    Where no burst leads into the band, the model is that with the lowest success above it.

    Args:
        model: Changed in place.
        burst: Takes some optimizer steps of imitating poor play, at the learning rate that it is given.
        measure: Returns an evaluation of the model.
        current: Evaluation of the model before the first burst.
        band: Lowest and highest success to end with.
        bursts: Maximum number of bursts.
        lr: Learning rate of the first burst.
        least_valid: Minimum share of valid answers.
        note: Called with the success after each burst.
    """
    low, high = band
    best, least = None, current
    for _ in range(bursts):
        if current.success <= high:
            break
        before = {name: value.clone() for name, value in model.state_dict().items()}
        burst(lr)
        after = measure()
        note(f"success {after.success:.3f}")
        # Success falls suddenly: a single burst can lead from far above the band to 0, where reinforcement learning has
        # nothing to reinforce. Such a burst is undone, and the next ones are smaller.
        if after.success < low or after.valid < least_valid:
            model.load_state_dict(before)
            lr /= 2
            continue
        current = after
        if current.success <= least.success:
            best, least = {name: value.clone() for name, value in model.state_dict().items()}, current
    if current.success > high:
        if best is not None:
            model.load_state_dict(best)
        note(f"still above {high} after all steps of poor play: the lowest success was {least.success:.3f}")
    return least


def _save(policy: LanguageModel, about: dict[str, Any], skilled: LanguageModel | None, folder: Path) -> None:
    save_policy(policy._replace(card=replace(policy.card, about=about)), folder)
    if skilled is not None:
        about_skilled = about | {"success": about["success_skilled"], "valid": about["valid_skilled"]}
        (folder / SKILLED).mkdir()
        save_policy(skilled._replace(card=replace(skilled.card, about=about_skilled)), folder / SKILLED)


def _measure(player: ModelPlayer, recipe: BaseRecipe) -> Evaluation:
    """Return the evaluation of a model on instances of the validation split."""
    pool = player.pool("valid")
    chat = player.chat_about(pool.base, temperature=0.5)
    tasks = [derive_seed(recipe.seed, "validate", number) for number in range(recipe.validations)]
    return evaluate(pool, chat, tasks=tasks, seed=recipe.seed)
