"""Players: the policy that a calibration or a probe asks, and the environments that it plays in."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from tsr_gym.agents.episodes.api_player import api_player
from tsr_gym.agents.episodes.env_pool import EnvPool, task_pool
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.episodes.settings import SearchConfig, TaskConfig
from tsr_gym.agents.models.settings import ModelConfig
from tsr_gym.agents.policies.chat_api import ApiConfig
from tsr_gym.agents.policies.random_policy import legal_player
from tsr_gym.agents.probing.rankings import siblings_walk
from tsr_gym.agents.reports.model_evaluation import load_player
from tsr_gym.errors import ConfigError, TsrGymError
from tsr_gym.keywords import bind
from tsr_gym.stack import Noise
from tsr_gym.text_env import TextEnv
from tsr_gym.tree import Policy
from tsr_gym.wrappers.scorers import choose_scorer

# Called with a line about anything else that takes time, such as building the embedded model.
Note = Callable[[str], None]
RANDOM = "random"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldConfig:
    """The environment, and the random numbers of the searches in it."""

    env: str
    """Gymnasium id, or a short name such as sokoban."""
    split: str | None = "train"
    """Instances to draw from; None where the environment has no splits."""
    preset: str = "paper"
    """Settings of the environment."""
    env_set: tuple[str, ...] = ()
    """More settings of the environment as KEY=VALUE, the value in JSON."""
    noise: Noise = "fresh"
    """Random numbers of imagined turns; same is clairvoyant and is marked in the report."""

    def in_words(self, amount: str) -> str:
        """Return the environment, its preset and split, and the amount of instances, in words."""
        split = "" if self.split is None else f", split {self.split}"
        return f"{self.env}, preset {self.preset}{split}, {amount}"

    @property
    def noise_in_words(self) -> str:
        """The noise, marked where it is clairvoyant."""
        return f"noise {self.noise}{' (clairvoyant)' if self.noise == 'same' else ''}"


class Player(NamedTuple):
    """A policy and the environments that it plays in.

    Attributes:
        pool: Returns the environments with a score as the guide of searches.
        policy: Answers for an environment, which gives it the rules.
    """

    pool: Callable[[str], EnvPool]
    policy: Callable[[TextEnv[Any]], Policy]


def set_up(
    world: WorldConfig,
    model: ModelConfig,
    search: SearchConfig,
    *,
    temperature: float,
    api: ApiConfig | None = None,
    note: Note = lambda text: None,
) -> Player:
    """Return the player of a configuration.

    Args:
        world: The environment.
        model: The model; its name is `RANDOM` for uniformly random legal actions.
        search: The noise, repeats, risk and dead ends of searches.
        temperature: Of sampling.
        api: The server, for a model with ``engine="openai"``.
        note: See `Note`.

    Raises:
        ConfigError: The environment or a setting is unknown, or the model was made for another environment.
        CheckpointError: The folder holds no model.
        MissingExtra: The environment or the model needs a package that is not installed.
    """
    plain = TaskConfig(preset=world.preset, env_set=world.env_set)

    def scored(score: str) -> TaskConfig:
        return replace(plain, score=bind(score, choose_scorer))

    if model.model == RANDOM:
        return Player(lambda score: task_pool(world.env, scored(score), world.split, search), legal_player)
    if model.engine == "openai":
        server = api_player(world.env, plain, model, api or ApiConfig())
        return Player(
            lambda score: replace(server, task=scored(score)).pool(world.split, search),
            partial(server.chat_about, temperature=temperature),
        )
    player = load_player(world.env, plain, model, note)
    return Player(
        lambda score: replace(player, task=scored(score)).pool(world.split, search),
        partial(player.chat_about, temperature=temperature),
    )


def player_in_words(model: str, temperature: float) -> str:
    """Return the name of a player and its temperature."""
    return "random play" if model == RANDOM else f"{model} at temperature {temperature:g}"


def check_scorer(env: str, pool: EnvPool, policy: Policy, task: int) -> None:
    """Score one turn, so that a scorer of another environment raises an error that names both.

    Args:
        env: Name of the environment, for the message.
        pool: Environments with the scorer.
        policy: Plays the turn.
        task: Seed of the instance.

    Raises:
        ConfigError: The scorer cannot score the environment.
    """
    try:
        search(pool.set([task]), policy, partial(siblings_walk, branching=1), seeds=[task])
    except TsrGymError:
        raise
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ConfigError(f"the scorer {pool.score} cannot rate {env}: {error}") from error
