"""Evaluate a model or a run by its folder, as the command line does."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from tsr_gym.agents.episodes.assembly import Assembly
from tsr_gym.agents.episodes.collect import pick_rater, pick_strategy
from tsr_gym.agents.episodes.play import Bars, Evaluation, bars, evaluate, held_out
from tsr_gym.agents.models.language_model import load_policy, pick_device
from tsr_gym.agents.runs.base_model import default_model
from tsr_gym.agents.runs.checkpoint import checkpoints
from tsr_gym.agents.runs.config import ModelConfig, RunConfig, SearchConfig, TaskConfig, TrainConfig
from tsr_gym.agents.runs.files import check_folder
from tsr_gym.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ModelEvaluation:
    """How a model plays, beside its bars.

    Attributes:
        instances_of: Environment, preset, split and search, in words.
        evaluation: The episodes that were played.
        bars: What they are held against.
    """

    instances_of: str
    evaluation: Evaluation
    bars: Bars


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

    Raises:
        ConfigError: The environment is not known, or a setting is impossible.
        CheckpointError: The folder holds no model, or the run's latest checkpoint is damaged.
    """
    config = TrainConfig(
        env=env or "",
        task=task,
        search=replace(search, trajectories=1, paths_per_search=1),
        model=model,
        run=RunConfig(eval_instances=instances, eval_temperature=at_temperature),
    )
    strategy = None if search.search == "naive" else pick_strategy(config.search)
    folder = Path(source)
    if (folder / "config.json").is_file() and checkpoints(folder):
        config = TrainConfig.from_json((folder / "config.json").read_text(), source=str(folder / "config.json"))
        env, task, model = config.env, config.task, config.model
        folder = _latest_model(folder)
    elif source == "default":
        if env is None:
            raise ConfigError("wanted --env for the default model")
        folder = default_model(env, task.env_set)
    torch.set_num_threads(model.threads)
    policy = load_policy(folder, device=pick_device(model.device))
    env = env or policy.card.env
    if env is None:
        raise ConfigError(f"wanted --env: the model in {folder} was made for none")
    assembly = Assembly(env, task, model, policy)
    pool = assembly.pool(split, search)
    chat = assembly.chat_about(pool.base, temperature=at_temperature)
    tasks = held_out(instances)
    played = evaluate(
        pool, chat, tasks=tasks, seed=seed, strategy=strategy, noise=search.noise, rater=pick_rater(search, chat)
    )
    return ModelEvaluation(_words(env, split, task, search), played, bars(pool, tasks=tasks))


def _words(env: str, split: str, task: TaskConfig, search: SearchConfig) -> str:
    by = "no search" if search.search == "naive" else f"search {search.search}"
    clairvoyant = " (clairvoyant)" if search.search != "naive" and search.noise == "same" else ""
    return f"{env}, preset {task.preset}, split {split}, {by}{clairvoyant}"


def _latest_model(run: Path) -> Path:
    latest = checkpoints(run)[-1]
    check_folder(latest)
    return latest / "model"
