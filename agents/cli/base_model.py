"""`tsr base-model`: build the small embedded language model of an environment."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from tsr_gym.agents.cli.arguments import read_arguments
from tsr_gym.agents.cli.output import still_working
from tsr_gym.errors import ConfigError
from tsr_gym.optional import require


def main(args: list[str]) -> int:
    """Build the model and print its success; return 1 if that is above the band."""
    defaults = _defaults_for(args[0] if args and not args[0].startswith("-") else "")
    options = _read(args, defaults)
    require("torch", "agents")
    require("transformers", "agents")
    # The check comes before torch and transformers are imported, which takes seconds.
    from tsr_gym.agents.teaching.base_recipe import check_recipe

    if defaults != (recipe_defaults := _defaults_for(options.env)):
        # The environment came after the flags, so the first reading used the defaults of no environment.
        options = _read(args, recipe_defaults)
    check_recipe(options.env, options.out, options.recipe)
    from tsr_gym.agents.teaching.base_model import build_base_model

    with still_working(console=Console(soft_wrap=True, highlight=False)) as note:
        about = build_base_model(options.env, options.out, options.recipe, keep_skilled=options.keep_skilled, note=note)
    print(
        f"{options.out}: success {about['success']:.3f} on validation instances, sampled at temperature 0.5; "
        f"{about['success_skilled']:.3f} before it was hidden"
    )
    # The model is kept, because its building took long, but it is not what was asked for.
    return int(about["success"] > options.recipe.band[1])


def _read(args: list[str], defaults: Any) -> Any:
    recipe_type: Any = type(defaults)

    @dataclass(frozen=True)
    class BaseModelArgs:
        """Build a tiny Qwen2-architecture model that plays an environment poorly, as a start for training."""

        env: Annotated[str, tyro.conf.Positional]
        """Gymnasium id, package.module:Id of your own, or a short name such as sokoban."""
        out: Path
        """Folder of the model, in Hugging Face form; it must not exist."""
        keep_skilled: bool = False
        """Keep the model before its skill is hidden, in the subfolder skilled."""
        recipe: recipe_type = field(default_factory=lambda: defaults)

    return read_arguments(BaseModelArgs, args, prog="tsr base-model")


def _defaults_for(env: str) -> Any:
    """Return the default recipe of an environment.

    Of an environment that cannot be made it is the general recipe; the check then reports the reason.
    """
    from tsr_gym.agents.teaching.base_recipe import BaseRecipe, recipe_for

    try:
        return recipe_for(env) if env else BaseRecipe()
    except ConfigError:
        return BaseRecipe()
