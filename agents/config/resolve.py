"""Every setting of a run with its source: default, model card, recipe, file or flag. A later source wins."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tsr_gym.agents.config.recipes import GUIDE, ConfigFile, recipe_settings
from tsr_gym.agents.config.sections import all_settings, tables
from tsr_gym.agents.lessons.settings import fold_keep
from tsr_gym.agents.models.settings import ModelCard, check_model_folder, model_path
from tsr_gym.agents.strategies import STRATEGIES
from tsr_gym.agents.teaching.base_recipe import training_settings
from tsr_gym.errors import ConfigError
from tsr_gym.keywords import fold, no_such
from tsr_gym.sections import typed
from tsr_gym.wrappers.scorers import public_guide

# Where the value of a setting comes from, in the order in which a later one wins.
Source = Literal["default", "card", "recipe", "file", "flag"]
# Stands in a file for None, which TOML does not have.
NONE = "none"
# The sections that a model's card may set: how trajectories are made, which are learned from, and how.
OF_CARDS = ("search", "lessons", "learn")
# Numbers of the strategy's call as settings of their own: --width 2 for beam(width=2).
NUMBERS = ("n", "width", "branching", "depth")


class Setting(NamedTuple):
    """The value of a setting, and where it comes from."""

    value: Any
    source: Source


def collect_settings(
    env: str,
    *,
    recipe: str | None = None,
    card: ModelCard | None = None,
    file: ConfigFile | None = None,
    given: Mapping[str, Any] | None = None,
) -> dict[str, Setting]:
    """Return every setting of a run but the environment, with its source, by name.

    The arguments are those of `tsr_gym.agents.config.resolve`.

    Raises:
        ConfigError: A recipe, a setting of a card, or a number of a call is unknown.
        CheckpointError: The folder of the model holds no model, or its card is damaged.
    """
    flags, of_file = dict(given or {}), {} if file is None else file.settings
    numbers = {name: flags.pop(name, None) for name in NUMBERS}
    keep = flags.pop("keep", None)
    recipe = recipe or (file.recipe if file else None)
    scored = "score" in flags or "score" in of_file
    of_recipe = {} if recipe is None else recipe_settings(recipe, env, scored=scored)
    settings = {item.name: Setting(item.default, "default") for _, item, _ in all_settings()}
    # Later sources win. The card is read after them, because they choose the model, and fills only what they have left
    # at its default.
    settings |= _from("recipe", of_recipe) | _from("file", of_file) | _from("flag", flags)
    of_card = (_card(env, settings) if card is None else card).learn
    allowed = {name for name, path in tables().items() if path[0] in OF_CARDS}
    if unknown := sorted(set(of_card) - allowed):
        raise ConfigError(f"the settings of learning in the model's tsr_gym.json: there is no setting {unknown[0]!r}")
    unset = {name: value for name, value in of_card.items() if settings[name].source == "default"}
    settings |= _from("card", unset)
    if any(number is not None for number in numbers.values()):
        text = fold(str(settings["search"].value), numbers, home=STRATEGIES, what="strategy")
        settings["search"] = Setting(text, "flag")
    if keep is not None:
        settings["filter"] = Setting(fold_keep(str(settings["filter"].value), keep), "flag")
    if settings["score"].value == GUIDE:
        guide = public_guide(env)
        if guide is None:
            raise ConfigError(f"{env} has no public guide: wanted score as the name of a scorer, got {GUIDE!r}")
        settings["score"] = settings["score"]._replace(value=guide)
    return settings


def _from(source: Source, values: Mapping[str, Any]) -> dict[str, Setting]:
    """Return settings of one source, each value in its setting's type."""
    types = {item.name: hint for _, item, hint in all_settings()}
    if unknown := [name for name in values if name not in types]:
        raise no_such("setting", unknown[0], list(types), "one that tsr train --help-all lists")
    values = without_none(values)
    return {name: Setting(typed(value, types[name], name), source) for name, value in values.items()}


def without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings in which the word for None has become None, where None is the default of the setting."""
    optional = {item.name for _, item, _ in all_settings() if item.default is None}
    return {name: None if value == NONE and name in optional else value for name, value in values.items()}


def _card(env: str, settings: Mapping[str, Setting]) -> ModelCard:
    """Return the card of the model that the settings choose.

    The embedded model may not be built yet, so its settings are those that its world teaches it for.
    """
    model = model_path(settings["model"].value)
    # The model of a server is a name and no folder; TrainConfig then refuses to train it.
    if settings["engine"].value == "openai":
        return ModelCard()
    if model == "default":
        try:
            return ModelCard(learn=training_settings(env, tuple(settings["env_set"].value)))
        except ConfigError:
            # No embedded model can be built here. The run reports why when it begins, after what is wrong with its
            # environment.
            return ModelCard()
    check_model_folder(Path(model))
    return ModelCard.load(Path(model))


def sources_in_words(settings: Mapping[str, Setting]) -> str:
    """Return in one line which settings of learning are not defaults, and where each comes from.

    The learning rates are always named, because they decide whether anything is learned.
    """
    paths = tables()
    shown = []
    for name in sorted(settings, key=lambda name: paths[name][:1] != ("learn",)):
        value, source = settings[name]
        of_learning = source != "default" and paths[name] == ("learn",)
        if source == "card" or name in ("lr", "critic_lr") or of_learning:
            shown.append(f"{name} {f'{value:g}' if isinstance(value, float) else value} ({source})")
    return f"learning with {', '.join(shown)}; all other settings of learning are defaults"
