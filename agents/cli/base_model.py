"""`tsr base-model`: build the small embedded language model of an environment."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from tsr_gym.agents.cli.arguments import read_arguments
from tsr_gym.errors import ConfigError
from tsr_gym.optional import require


def main(args: list[str]) -> int:
    """Build the model and say how it plays."""
    usual = _usual_for(args[0] if args and not args[0].startswith("-") else "")
    chosen = _read(args, usual)
    require("torch", "agents")
    require("transformers", "agents")
    # Before these are imported, which takes seconds.
    from tsr_gym.agents.teaching.base_recipe import check_recipe as check

    if usual != (own := _usual_for(chosen.env)):
        # The environment stood behind flags; the defaults are its own.
        chosen = _read(args, own)
    check(chosen.env, chosen.out, chosen.recipe)
    from tsr_gym.agents.teaching.base_model import build_base_model as build

    about = build(chosen.env, chosen.out, chosen.recipe, keep_skilled=chosen.keep_skilled, note=print)
    print(
        f"{chosen.out}: success {about['success']:.3f} on validation instances, sampled at temperature 0.5; "
        f"{about['success_skilled']:.3f} before it was hidden"
    )
    return 0


def _read(args: list[str], usual: Any) -> Any:
    kind: Any = type(usual)

    @dataclass(frozen=True)
    class BaseModelArgs:
        """Build a tiny Qwen2-architecture model that plays an environment poorly, as a start for training."""

        env: Annotated[str, tyro.conf.Positional]
        """Gymnasium id, package.module:Id of yours, or a short name such as sokoban."""
        out: Path
        """Folder of the model, in Hugging Face form; it must not exist."""
        keep_skilled: bool = False
        """Keep the model before its skill is hidden, in the subfolder skilled."""
        recipe: kind = field(default_factory=lambda: usual)

    return read_arguments(BaseModelArgs, args, prog="tsr base-model")


def _usual_for(env: str) -> Any:
    """Return the default recipe of an environment; of one that cannot be made any, because the check says why."""
    from tsr_gym.agents.teaching.base_recipe import BaseRecipe as base
    from tsr_gym.agents.teaching.base_recipe import recipe_for

    try:
        return recipe_for(env) if env else base()
    except ConfigError:
        return base()
