"""Evaluation of a model on held-out instances: a folder, a run, or a model behind a server; torch-free on import."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsr_gym.agents.config import RUN_FILE, RunConfig, TrainConfig
from tsr_gym.agents.episodes.api_player import api_player
from tsr_gym.agents.episodes.play import Bars, Evaluation, HeldOut, summarise_examined
from tsr_gym.agents.episodes.play import examine as episodes_of
from tsr_gym.agents.episodes.settings import SearchConfig, TaskConfig
from tsr_gym.agents.models.settings import ModelConfig
from tsr_gym.agents.policies.chat_api import ApiConfig, Ledger
from tsr_gym.errors import ConfigError
from tsr_gym.files import check_folder
from tsr_gym.optional import importing_only
from tsr_gym.registration import env_id, find_env
from tsr_gym.tree import Candidate, Expand, Meter, Policy, Tree

if TYPE_CHECKING:
    from tsr_gym.agents.episodes.model_player import ModelPlayer


@dataclass(frozen=True, slots=True)
class ModelEvaluation:
    """Success of a model, with the bars to compare it with.

    Attributes:
        instances_of: Environment, preset, split and search, in words.
        evaluation: The episodes that were played.
        bars: Success of random and of best possible play on the same instances.
        ledger: Requests to a server; None for a model in this process.
    """

    instances_of: str
    evaluation: Evaluation
    bars: Bars
    ledger: Ledger | None = None


def examine(
    player: Any,
    split: str,
    instances: int,
    *,
    temperature: float,
    seed: int,
    search: SearchConfig,
    watch: Meter = lambda stage, done, total: None,
) -> ModelEvaluation:
    """Play held-out instances.

    Args:
        player: A `ModelPlayer` or an `ApiPlayer`.
        split: Instances to play.
        instances: Number of instances.
        temperature: Of sampling.
        seed: Of samples and random numbers.
        search: Naive for none; otherwise each turn is chosen by a search with imagined turns and then really played.
        watch: See `Meter`; counts the finished episodes.

    Raises:
        ConfigError: A setting is unknown or impossible.
    """
    strategy = None if search.name == "naive" else search.search.bound
    pool = player.pool(split, search)
    chat = player.chat_about(pool.base, temperature=temperature)
    rater = None
    if search.rater is not None:
        # Raters need torch, the evaluation of a model behind a server does not.
        from tsr_gym.agents.raters import make_rater

        rater = make_rater(search.rater, chat=chat)
    exam = HeldOut(pool, instances)
    limits = exam.bars
    tasks = exam.distinct_tasks
    watched = _watched(chat, len(tasks), watch)
    played = episodes_of(pool, watched, tasks=tasks, seed=seed, strategy=strategy, noise=search.noise, rater=rater)
    watch("episodes", len(tasks), len(tasks))
    means = summarise_examined(exam.spread(played))
    return ModelEvaluation(_words(player.env, split, player.task, search), means, limits)


def _watched(policy: Policy, total: int, watch: Meter) -> Policy:
    """Return the policy with a report of the number of finished episodes at every call.

    The tree of an unfinished episode has a request in every round, so episodes without a request are finished.
    """

    def answer(requests: Sequence[tuple[Tree, Expand]]) -> list[list[Candidate]]:
        watch("episodes", total - min(total, len({id(tree) for tree, _ in requests})), total)
        return policy(requests)

    return answer


def _words(env: str, split: str, task: TaskConfig, search: SearchConfig) -> str:
    by = "no search" if search.name == "naive" else f"search {search.search}"
    clairvoyant = " (clairvoyant)" if search.name != "naive" and search.noise == "same" else ""
    return f"{env}, preset {task.preset}, split {split}, {by}{clairvoyant}"


def evaluate_api(
    env: str,
    split: str,
    instances: int,
    at_temperature: float,
    seed: int,
    task: TaskConfig,
    search: SearchConfig,
    model: ModelConfig,
    api: ApiConfig,
    watch: Meter = lambda stage, done, total: None,
) -> ModelEvaluation:
    """Play held-out instances with a model behind a server, `api`; the other arguments are those of `evaluate_model`.

    Raises:
        ConfigError: A setting is unknown or impossible.
        EngineFailed: The server refuses a request, or does not answer.
        MissingExtra: httpx is not installed.
    """
    player = api_player(env, task.held_out, model, api)
    result = examine(player, split, instances, temperature=at_temperature, seed=seed, search=search, watch=watch)
    ledger, played = player.api.ledger, result.evaluation
    # A server counts the tokens of an answer and does not name them, so trajectories have none. A turn is an answer.
    length = ledger.sampled_tokens / max(ledger.requests - ledger.retries, 1) * played.turns
    return replace(result, ledger=ledger, evaluation=replace(played, response_length=length))


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
    watch: Meter = lambda stage, done, total: None,
) -> ModelEvaluation:
    """Play held-out instances with the model in a folder.

    Args:
        source: Folder of a run or of a model, or ``"default"``.
        env: Environment; None to take it from the run or from the model's card.
        split: Instances to play.
        instances: Number of instances.
        at_temperature: Temperature of sampling.
        seed: Of samples and random numbers.
        task: Settings of the environment; those of a run replace them.
        search: Naive for none; otherwise each turn is chosen by a search with imagined turns and then really played.
        model: How the model is used; the settings of a run replace them, except the engine.
        watch: As in `examine`.

    Raises:
        ConfigError: The environment is not known, or a setting is impossible.
        CheckpointError: The folder holds no model, or the run's latest checkpoint is damaged.
    """
    from tsr_gym.agents.runs.progress import checkpoints
    from tsr_gym.agents.teaching.base_model import default_model

    config = TrainConfig(
        env=env or "",
        task=task,
        search=search,
        model=model,
        run=RunConfig(eval_instances=instances, eval_temperature=at_temperature),
    )
    folder = Path(source)
    if (folder / RUN_FILE).is_file() and checkpoints(folder):
        config = _config_of(folder, env)
        # The engine only decides where the same policy is sampled, so it stays a choice of the evaluation.
        own = replace(config.model, engine=model.engine, engine_url=model.engine_url, engine_gib=model.engine_gib)
        env, task, model = config.env, config.task, own
        latest = checkpoints(folder)[-1]
        check_folder(latest)
        folder = latest / "model"
    elif source == "default":
        if env is None:
            raise ConfigError("wanted --env for the default model")
        folder = default_model(env, task.env_set)
    player = _player_of(folder, env, task.held_out, model)
    return examine(player, split, instances, temperature=at_temperature, seed=seed, search=search, watch=watch)


def _config_of(run: Path, env: str | None) -> TrainConfig:
    """Return the configuration of a run; `env`, where it is given, must be the run's environment."""
    config = TrainConfig.load(run)
    if env is not None and env_id(env) != env_id(config.env):
        raise ConfigError(f"the run in {run} plays {config.env}: leave out --env, got {env}")
    return config


def load_player(
    env: str, task: TaskConfig, model: ModelConfig, note: Callable[[str], None] = lambda text: None
) -> "ModelPlayer":
    """Return the model of a configuration, loaded, with its task.

    Args:
        env: Gymnasium id or short name.
        task: Settings of the environment.
        model: The model; its name is the folder of a model, the folder of a run, for its latest checkpoint, or default
            for the small embedded model, which is built at first use.
        note: Called with a line about anything else that takes time, such as building the embedded model.

    Raises:
        ConfigError: The model was made for another environment.
        CheckpointError: The folder holds no model.
        EngineFailed: vLLM does not start, or its weights differ.
    """
    from tsr_gym.agents.models.settings import check_model_folder
    from tsr_gym.agents.runs.progress import checkpoints
    from tsr_gym.agents.teaching.base_model import default_model

    if model.model == "default":
        folder = default_model(env, task.env_set, note=note)
    else:
        folder = Path(model.model)
        saved = checkpoints(folder)
        folder = saved[-1] / "model" if saved else folder
        check_model_folder(folder)
    return _player_of(folder, env, task, model)


def _player_of(folder: Path, env: str | None, task: TaskConfig, model: ModelConfig) -> "ModelPlayer":
    """Return the model in a folder, loaded; without `env` it plays the environment of its card."""
    # Random play and models behind a server need none of these libraries.
    import torch

    from tsr_gym.agents.episodes.model_player import ModelPlayer
    from tsr_gym.agents.models.language_model import load_policy, pick_device, sampling_host
    from tsr_gym.agents.runs.parity import hand_over

    torch.set_num_threads(model.threads)
    policy = load_policy(folder, device=pick_device(model.device))
    if env is None:
        env = policy.card.env
        if env is None:
            raise ConfigError(f"wanted --env: the model in {folder} was made for none")
        with importing_only((), f"give --env {env} if you trust that module"):
            find_env(env)
    player = ModelPlayer(env, task, model, policy, sampling_host(model, folder))
    hand_over(player)
    return player
