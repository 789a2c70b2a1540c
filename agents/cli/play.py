"""`tsr play`: play an environment in the terminal, with undo, forks, hints, scores and a model's proposals."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import gymnasium as gym
import tyro

from tsr_gym.agents.cli.arguments import read_arguments
from tsr_gym.agents.cli.game import Adviser, Game
from tsr_gym.agents.cli.output import still_working
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
    """First instance; with --levels the number of the level, from 0."""
    levels: Path | None = None
    """File of levels, played in order and without limits."""
    env_set: tuple[str, ...] = ()
    """Settings of the environment as KEY=VALUE, the value in JSON, such as num_boxes=2."""
    score: str | None = setting(None, metavar="CALL")
    """Scorer whose score is shown, with its numbers, such as SokobanScore(potential='estimate'); tsr envs lists
    them."""
    model: str | None = setting(None, metavar="FOLDER")
    """Folder of a model or of a run whose proposals are shown; default for the small embedded model."""
    samples: int = 4
    """With --model, answers that are sampled at every position."""
    out: Path | None = None
    """File of a tree in which the game is saved at the end."""


def main(args: list[str]) -> int:
    """Play until the player quits or the input ends."""
    options = read_arguments(PlayArgs, args, prog="tsr play")
    if options.samples < 1:
        raise ConfigError(f"wanted --samples of at least 1, got {options.samples}")
    if options.out is not None and (options.out.is_dir() or not options.out.absolute().parent.is_dir()):
        raise ConfigError(f"wanted --out as a file in a folder that is there, got {options.out}")
    settings = parse_settings(options.env_set)
    if options.levels is not None:
        settings = {**UNLIMITED, "levels": str(options.levels), **settings}
    player = None if options.model is None else _player(options)
    env, base = _made(options, settings if player is None else {**player.policy.card.env_settings, **settings})
    # A model may see positions in another form than people, such as the compact form of the embedded model.
    own = {} if player is None else base.people_settings(player.policy.card.env_settings)
    _, shows = (env, base) if player is None else _made(options, {**own, **settings})
    proposer: Any = None if player is None else load("tsr_gym.agents.episodes.model_player:Proposer")
    adviser = Adviser(None if proposer is None else proposer(player, base), options.samples)
    game = Game(env, base, options.seed, numbered=options.levels is not None, adviser=adviser, shows=shows)
    game.do_help("")
    game.show()
    game.cmdloop()
    if options.out is not None:
        game.save(options.out)
    return 0


def _made(options: PlayArgs, settings: dict[str, Any]) -> tuple[gym.Env[Any, Any], TextEnv[Any]]:
    """Return the environment, with the scorer of --score around it, and the environment without wrappers."""
    find_env(options.env)
    try:
        env = gym.make(env_id(options.env), **settings)
    except (gym.error.Error, ModuleNotFoundError, TypeError) as error:
        raise ConfigError(f"{options.env} cannot be made: {error}") from error
    base = env.unwrapped
    if not isinstance(base, TextEnv):
        raise ConfigError(f"wanted an environment of text, {options.env} is a {type(base).__name__}")
    from tsr_gym.wrappers.scorers import make_scorer

    return env if options.score is None else make_scorer(options.score, env), base


def _player(options: PlayArgs) -> Any:
    """Return the model that proposes turns; for a run, that of its latest checkpoint."""
    for package in ("torch", "transformers"):
        require(package, "agents")
    from tsr_gym.agents.episodes.settings import TaskConfig
    from tsr_gym.agents.models.settings import ModelConfig
    from tsr_gym.agents.reports.model_evaluation import load_player

    own = TaskConfig(env_set=options.env_set)
    with still_working(lambda: f"loading {options.model}") as note:
        return load_player(options.env, own, ModelConfig(model=str(options.model)), note)
