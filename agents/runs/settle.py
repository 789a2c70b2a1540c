"""Settle: settings of learning that nobody gave, from the card of the model; torch-free."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, fields, replace
from typing import NamedTuple

from tsr_gym.agents.learning.settings import LearnConfig
from tsr_gym.agents.models.card import ModelCard
from tsr_gym.agents.runs.config import TrainConfig
from tsr_gym.errors import ConfigError

# These decide whether anything is learned, so a run always names them.
_ALWAYS = ("lr", "critic_lr")


class Settled(NamedTuple):
    """A configuration, and where its settings of learning come from.

    Attributes:
        config: With the card's settings in it.
        words: What comes from where, in one line.
    """

    config: TrainConfig
    words: str


def settle(config: TrainConfig, card: ModelCard, given: Collection[str]) -> Settled:
    """Return a configuration with the settings of learning that a model's card has and nobody gave.

    Args:
        config: As the command line makes it.
        card: Of the model that the run begins with.
        given: Names of settings that were given, which win.

    Raises:
        ConfigError: The card has a setting that there is not, or an impossible value.
    """
    from_card = {name: value for name, value in card.learn.items() if name not in given}
    try:
        learn = replace(config.learn, **from_card)
    except (TypeError, ConfigError) as error:
        raise ConfigError(f"the settings of learning in the model's tsr_gym.json: {error}") from error
    values = asdict(learn)
    words = []
    for name in (item.name for item in fields(LearnConfig)):
        source = "the model's card" if name in from_card else "command line" if name in given else "default"
        if source != "default" or name in _ALWAYS:
            value = f"{values[name]:g}" if isinstance(values[name], float) else str(values[name])
            words.append(f"{name} {value} ({source})")
    return Settled(replace(config, learn=learn), f"learning with {', '.join(words)}; all else is the default")


def given_flags(args: Sequence[str]) -> set[str]:
    """Return the names of the settings that stand in a command line.

    >>> sorted(given_flags(["sokoban", "--lr", "1e-5", "--critic-lr=1e-4"]))
    ['critic_lr', 'lr']
    """
    flags = (arg.partition("=")[0] for arg in args if arg.startswith("--"))
    return {flag.removeprefix("--").removeprefix("no-").replace("-", "_") for flag in flags}
