"""Settle: settings of training that nobody gave, from the card of the model; torch-free."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, fields, replace
from typing import Any, NamedTuple

from tsr_gym.agents.models.card import ModelCard
from tsr_gym.agents.runs.config import TrainConfig
from tsr_gym.errors import ConfigError

# The sections that a card may speak of: how trajectories come to be, which are learned from, and how.
_SECTIONS = ("search", "lessons", "learn")
# These decide whether anything is learned, so a run always names them.
_ALWAYS = ("lr", "critic_lr")


class Settled(NamedTuple):
    """A configuration, and where its settings of training come from.

    Attributes:
        config: With the card's settings in it.
        words: What comes from where, in one line.
    """

    config: TrainConfig
    words: str


def settle(config: TrainConfig, card: ModelCard, given: Collection[str]) -> Settled:
    """Return a configuration with the settings of training that a model's card has and nobody gave.

    Args:
        config: As the command line makes it.
        card: Of the model that the run begins with.
        given: Names of settings that were given, which win.

    Raises:
        ConfigError: The card has a setting that there is not, or an impossible value.
    """
    sections: dict[str, Any] = {"search": config.search, "lessons": config.lessons, "learn": config.learn}
    from_card = {name: value for name, value in card.learn.items() if name not in given}
    known = {item.name: section for section in _SECTIONS for item in fields(sections[section])}
    try:
        if unknown := sorted(set(from_card) - set(known)):
            raise ConfigError(f"there is no setting {unknown[0]!r}")
        changes: dict[str, Any] = {
            section: replace(own, **{name: value for name, value in from_card.items() if known[name] == section})
            for section, own in sections.items()
        }
        settled = replace(config, **changes)
    except (TypeError, ConfigError) as error:
        raise ConfigError(f"the settings of learning in the model's tsr_gym.json: {error}") from error
    words = []
    for name in sorted(known, key=lambda name: known[name] != "learn"):
        source = "the model's card" if name in from_card else "command line" if name in given else "default"
        # Of the other sections the configuration tells as much as the command line does.
        if name in from_card or name in _ALWAYS or (source != "default" and known[name] == "learn"):
            value = asdict(changes[known[name]])[name]
            words.append(f"{name} {f'{value:g}' if isinstance(value, float) else value} ({source})")
    return Settled(settled, f"learning with {', '.join(words)}; all else is the default")


def given_flags(args: Sequence[str]) -> set[str]:
    """Return the names of the settings that stand in a command line.

    >>> sorted(given_flags(["sokoban", "--lr", "1e-5", "--critic-lr=1e-4"]))
    ['critic_lr', 'lr']
    """
    flags = (arg.partition("=")[0] for arg in args if arg.startswith("--"))
    return {flag.removeprefix("--").removeprefix("no-").replace("-", "_") for flag in flags}
