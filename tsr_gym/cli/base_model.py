"""`tsr base-model`: build the small embedded language model of an environment."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from tsr_gym.cli.arguments import read_arguments
from tsr_gym.optional import load, require


def main(args: list[str]) -> int:
    """Build the model and say how it plays."""
    recipe_kind: Any = load("tsr_gym.agents.runs.base_recipe:BaseRecipe")

    @dataclass(frozen=True)
    class BaseModelArgs:
        """Build a tiny Qwen2-architecture model that plays an environment poorly, as a start for training."""

        env: Annotated[str, tyro.conf.Positional]
        """Gymnasium id, or a short name such as sokoban."""
        out: Path
        """Folder of the model, in Hugging Face form; it must not exist."""
        recipe: recipe_kind = field(default_factory=recipe_kind)

    chosen = read_arguments(BaseModelArgs, args, prog="tsr base-model")
    require("torch", "agents")
    require("transformers", "agents")
    # Before these are imported, which takes seconds.
    check: Any = load("tsr_gym.agents.runs.base_recipe:check_recipe")
    check(chosen.env, chosen.out, chosen.recipe)
    build: Any = load("tsr_gym.agents.runs.base_model:build_base_model")
    about = build(chosen.env, chosen.out, chosen.recipe, note=print)
    print(f"{chosen.out}: success {about['success']:.3f} on validation instances, sampled at temperature 0.5")
    return 0
