"""Evaluate a model or a run by its folder, as the command line does."""

from dataclasses import replace
from pathlib import Path

import torch

from tsr_gym.agents.episodes.model_player import ModelPlayer
from tsr_gym.agents.episodes.settings import SearchConfig, TaskConfig
from tsr_gym.agents.models.language_model import load_policy, pick_device
from tsr_gym.agents.models.sampling_host import sampling_host
from tsr_gym.agents.models.settings import ModelConfig
from tsr_gym.agents.reports.model_evaluation import ModelEvaluation, Watch, examine
from tsr_gym.agents.runs.checkpoint import checkpoints
from tsr_gym.agents.runs.config import RunConfig, TrainConfig
from tsr_gym.agents.runs.parity import hand_over
from tsr_gym.agents.strategies import choose_strategy
from tsr_gym.agents.teaching.base_model import default_model
from tsr_gym.errors import ConfigError
from tsr_gym.files import check_folder
from tsr_gym.registration import env_id


def evaluate_model(
    source: str,
    env: str | None,
    split: str,
    instances: int,
    at_temperature: float,
    seed: int,
    task: TaskConfig,
    search: SearchConfig,
    model: ModelConfig,
    watch: Watch = lambda done, total: None,
) -> ModelEvaluation:
    """Play held-out instances with what stands in a folder.

    Args:
        source: Folder of a run or of a model, or ``"default"``.
        env: Environment; None where a run or a model's card knows it.
        split: Instances to play.
        instances: How many.
        at_temperature: Of sampling.
        seed: Of samples and dice.
        task: What is played; a run brings its own.
        search: Naive for none; otherwise each turn is chosen by a search on imagined dice and then really played.
        model: How the model is used; a run brings its own.
        watch: Called with the number of episodes that have ended, and of all.

    Raises:
        ConfigError: The environment is not known, or a setting is impossible.
        CheckpointError: The folder holds no model, or the run's latest checkpoint is damaged.
    """
    config = TrainConfig(
        env=env or "",
        task=task,
        search=search,
        model=model,
        run=RunConfig(eval_instances=instances, eval_temperature=at_temperature),
    )
    if search.name != "naive":
        # A name that is none is told before anything is loaded.
        choose_strategy(search.search)
    folder = Path(source)
    if (folder / "config.json").is_file() and checkpoints(folder):
        config = _config_of(folder, env)
        # Who samples is not the run's business, and its policy is the same.
        own = replace(config.model, engine=model.engine, engine_url=model.engine_url, engine_gib=model.engine_gib)
        env, task, model = config.env, config.task, own
        folder = _latest_model(folder)
    elif source == "default":
        if env is None:
            raise ConfigError("wanted --env for the default model")
        folder = default_model(env, task.env_set)
    task = task.held_out
    torch.set_num_threads(model.threads)
    policy = load_policy(folder, device=pick_device(model.device))
    env = env or policy.card.env
    if env is None:
        raise ConfigError(f"wanted --env: the model in {folder} was made for none")
    player = ModelPlayer(env, task, model, policy, sampling_host(model, folder))
    hand_over(player)
    return examine(player, split, instances, temperature=at_temperature, seed=seed, search=search, watch=watch)


def _config_of(run: Path, env: str | None) -> TrainConfig:
    """Return the configuration of a run, which plays its own environment."""
    config = TrainConfig.from_json((run / "config.json").read_bytes(), source=str(run / "config.json"))
    if env is not None and env_id(env) != env_id(config.env):
        raise ConfigError(f"the run in {run} plays {config.env}: leave out --env, got {env}")
    return config


def _latest_model(run: Path) -> Path:
    latest = checkpoints(run)[-1]
    check_folder(latest)
    return latest / "model"
