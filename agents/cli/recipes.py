"""Recipes: named sets of training settings, as flags that stand in for those that nobody gave."""

from argparse import ArgumentParser
from collections.abc import Sequence

from tsr_gym.errors import ConfigError
from tsr_gym.keywords import no_such
from tsr_gym.registration import env_class, env_id
from tsr_gym.text_env import Guide

# The project's own. Every instance is played plainly first, and only one that nothing solved is searched, once, until
# something does; rates fall at the end. docs/does_search_pay.md has what was measured with them.
OURS = {
    "--search-when": "failed",
    "--naive": "4",
    "--trajectories": "1",
    "--groups": "16",
    "--algorithm": "grpo",
    "--filter": "mixed_success",
    "--minibatch": "10",
    "--entropy": "0.003",
    "--lr-decay-from": "0.5",
}
# GUIDE stands for the world's public guide. Groups of plain and searched episodes are learned from together by tsr+,
# while levin imitates what it has found and reinforces plain play alone.
GUIDE = "GUIDE"
RECIPES: dict[str, dict[str, str]] = {
    "tsr+": {"--search": "beam(width=4, branching=4, merge='state', until_success=True)", "--score": GUIDE, **OURS},
    "levin": {
        "--search": "levin(expansions=60)",
        **OURS,
        "--searched-weight": "0",
        "--imitation": "1",
        "--imitated": "expansions",
    },
    "paper": {"--search": "beam(width=2, branching=4)"},
}
# What TSR (arXiv 2602.11767) chooses by world: its rooms, its proxies (Eq. 14 and 15), the algorithm, the updates.
OF_WORLD = {
    ("paper", "tsr/Sokoban-v0"): {"--env-set": "generator=ragen", "--algorithm": "ppo"},
    ("paper", "tsr/FrozenLake-v0"): {"--score": "FrozenLakeScore", "--algorithm": "grpo"},
    ("paper", "tsr/WebShop-v0"): {"--score": "WebShopScore", "--algorithm": "grpo", "--updates": "100"},
}


def follow_recipe(args: Sequence[str]) -> list[str]:
    """Return a command line with the flags of its recipe, but for those that it has itself.

    In a world without a public guide tsr+ is levin, which needs none.

    Args:
        args: Of a command, the environment first.

    Raises:
        ConfigError: There is no such recipe.

    >>> follow_recipe(["sokoban", "--recipe", "tsr+", "--naive", "8"])[:5]
    ['sokoban', '--naive', '8', '--search', "beam(width=4, branching=4, merge='state', until_success=True)"]
    """
    parser = ArgumentParser(prog="tsr", add_help=False, allow_abbrev=False)
    parser.add_argument("--recipe")
    found, rest = parser.parse_known_args(args)
    if found.recipe is None:
        return rest
    if found.recipe not in RECIPES:
        raise no_such("recipe", found.recipe, tuple(RECIPES))
    if not rest or rest[0].startswith("-"):
        raise ConfigError(f"wanted the environment before --recipe {found.recipe}, got {rest[:1] or 'nothing'}")
    given = {arg.partition("=")[0] for arg in rest}
    world = env_id(rest[0])
    cls = env_class(world)
    guide = None if cls is None else cls.guide
    name = "levin" if found.recipe == "tsr+" and guide is None else found.recipe
    wanted = RECIPES[name] | OF_WORLD.get((name, world), {})
    flags = [pair for pair in wanted.items() if pair[0] not in given]
    return rest + [write_guide(guide) if word == GUIDE else word for pair in flags for word in pair]


def write_guide(guide: Guide | None) -> str:
    """Return a guide as the flag ``--score`` takes it; ``"reward"`` for None.

    >>> write_guide(Guide("tsr_gym.wrappers:SokobanScore", {"potential": "next_push"}))
    "SokobanScore(potential='next_push')"
    """
    if guide is None:
        return "reward"
    module, _, name = guide.scorer.partition(":")
    # A bare name is one of ours.
    scorer = name if module == "tsr_gym.wrappers" else guide.scorer
    numbers = ", ".join(f"{key}={value!r}" for key, value in guide.numbers.items())
    return f"{scorer}({numbers})" if numbers else scorer
