"""`tsr play`: an environment in the terminal, with undo, forks, hints, scores and a model's proposals."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import gymnasium as gym
import tyro

from tsr_gym.agents.cli.arguments import read_arguments
from tsr_gym.agents.cli.game import Adviser, Game
from tsr_gym.errors import ConfigError
from tsr_gym.keywords import parse_settings
from tsr_gym.optional import load, require
from tsr_gym.registration import env_id, find_env
from tsr_gym.sections import setting
from tsr_gym.text_env import TextEnv

UNLIMITED = {"max_turns": None, "max_actions_per_turn": None, "max_actions": None}


@dataclass(frozen=True, slots=True)
class PlayArgs:
    """Play an environment in the terminal."""

    env: Annotated[str, tyro.conf.Positional]
    """Gymnasium id, or a short name such as sokoban."""
    seed: int = 0
    """Which instance to begin with; with --levels the number of the level, from 0."""
    levels: Path | None = None
    """File of levels, played in their order and without limits."""
    env_set: tuple[str, ...] = ()
    """Settings of the environment as KEY=VALUE, the value in JSON, such as num_boxes=2."""
    score: str | None = setting(None, metavar="CALL")
    """Scorer whose judgement is shown, with its numbers, such as SokobanScore(potential='estimate'); tsr envs lists
    them."""
    model: str | None = setting(None, metavar="FOLDER")
    """Folder of a model or of a run whose proposals are shown beside the keys; default for the small embedded model."""
    samples: int = 4
    """With --model, answers that are drawn for every position."""
    out: Path | None = None
    """File of a tree in which everything that was played is saved when you leave."""


def main(args: list[str]) -> int:
    """Play until the player quits or the input ends."""
    chosen = read_arguments(PlayArgs, args, prog="tsr play")
    if chosen.samples < 1:
        raise ConfigError(f"wanted --samples of at least 1, got {chosen.samples}")
    settings = parse_settings(chosen.env_set)
    if chosen.levels is not None:
        settings = {**UNLIMITED, "levels": str(chosen.levels), **settings}
    player = None if chosen.model is None else _player(chosen)
    env, base = _made(chosen, settings if player is None else {**player.policy.card.env_settings, **settings})
    # A model may be shown a position in another form than people read.
    own = {} if player is None else base.people_settings(player.policy.card.env_settings)
    _, shows = (env, base) if player is None else _made(chosen, {**own, **settings})
    proposer: Any = None if player is None else load("tsr_gym.agents.episodes.model_player:Proposer")
    adviser = Adviser(None if proposer is None else proposer(player, base), chosen.samples)
    game = Game(env, base, chosen.seed, numbered=chosen.levels is not None, adviser=adviser, shows=shows)
    game.do_help("")
    game.show()
    game.cmdloop()
    if chosen.out is not None:
        game.do_save(str(chosen.out))
    return 0


def _made(chosen: PlayArgs, settings: dict[str, Any]) -> tuple[gym.Env[Any, Any], TextEnv[Any]]:
    """Return the environment, under the scorer where one is wanted, and the same without wrappers."""
    find_env(chosen.env)
    try:
        env = gym.make(env_id(chosen.env), **settings)
    except (gym.error.Error, ModuleNotFoundError, TypeError) as error:
        raise ConfigError(f"{chosen.env} cannot be made: {error}") from error
    base = env.unwrapped
    if not isinstance(base, TextEnv):
        raise ConfigError(f"wanted an environment of text, {chosen.env} is a {type(base).__name__}")
    from tsr_gym.wrappers.scorers import make_scorer as make

    return env if chosen.score is None else make(chosen.score, env), base


def _player(chosen: PlayArgs) -> Any:
    """Return the model at play; of a run, that of its latest checkpoint."""
    for package in ("torch", "transformers"):
        require(package, "agents")
    from tsr_gym.agents.episodes.settings import TaskConfig as task
    from tsr_gym.agents.models.settings import ModelConfig as model
    from tsr_gym.agents.reports.model_evaluation import load_player

    own = task(env_set=chosen.env_set)
    return load_player(chosen.env, own, model(model=str(chosen.model)), lambda text: print(text, file=sys.stderr))
