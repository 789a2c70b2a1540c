"""Before a run: whether it can begin, and an estimate of its parameters, memory and tokens; torch-free but for names.

The estimate reads the settings and the model's `config.json`; it loads no weights.
"""

from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

from tsr_gym.agents.config import RUN_FILE, TrainConfig
from tsr_gym.agents.episodes.collect import choose_search
from tsr_gym.agents.episodes.env_pool import task_pool
from tsr_gym.agents.learning.estimators import ESTIMATORS, needs_of
from tsr_gym.agents.lessons.credit import undo_selection
from tsr_gym.agents.models.settings import ModelCard
from tsr_gym.agents.policies.choose_engine import pick_engine, why_no_trie
from tsr_gym.agents.policies.engine import find_engine
from tsr_gym.agents.runs.progress import checkpoints, token_targets
from tsr_gym.agents.strategies import best_of_n
from tsr_gym.errors import ConfigError, NothingThere
from tsr_gym.keywords import no_such, parse_call
from tsr_gym.optional import require
from tsr_gym.wrappers.tool_calls import Family


def check_start(config: TrainConfig) -> None:
    """Raise an error where a run cannot begin, before a model is built or loaded for it.

    The cheap checks come first, because the last one imports torch.

    Raises:
        ConfigError: The folder exists, the environment or one of its settings is unknown, the run whose tokens it
            matches does not fit, or the batches will not have what the estimator needs.
        MissingExtra: The engine is not installed.
    """
    if config.folder.exists():
        raise ConfigError(
            f"{config.folder} exists: choose another --out, or continue that run by --resume {config.folder}"
        )
    package = find_engine(config.model.engine).package
    if package is not None and config.model.engine_url is None:
        require(package, package)
    _check_lessons(config)
    estimator = parse_call(config.learn.estimator, what="estimator").name
    if ":" not in estimator and estimator not in ("auto", *ESTIMATORS):
        raise no_such("estimator", estimator, ("auto", *sorted(ESTIMATORS)))
    # Any form of calls: whether the environment has tools does not depend on it.
    calls: Family | None = "hermes" if config.model.prompt == "tools" else None
    task_pool(config.env, config.task, config.task.train_split, calls=calls)
    task_pool(config.env, config.task.held_out, config.task.eval_split, calls=calls)
    token_targets(config)
    _check_estimator(config)
    # Late, because it imports torch and transformers.
    from tsr_gym.agents.models.language_model import pick_device

    pick_device(config.model.device)


def check_resume(folder: Path) -> None:
    """Raise NothingThere where a folder holds no run that can be resumed, before torch is imported."""
    if not (folder / RUN_FILE).is_file() or not checkpoints(folder):
        raise NothingThere(f"{folder}: wanted the folder of a run with {RUN_FILE} and a checkpoint, found none")


def check_choices(config: TrainConfig) -> None:
    """Raise ConfigError where the choices of a run do not fit together; imports torch for the estimator.

    Raises:
        ConfigError: A credit rule undoes another selection than the search's, nothing would be learned from, or the
            batches will not have what the estimator needs.
    """
    _check_lessons(config)
    _check_estimator(config)


def _check_lessons(config: TrainConfig) -> None:
    """Raise ConfigError where nothing would be learned from, or a credit rule does not fit the search."""
    plan, objective = choose_search(config.search), config.learn.objective
    for rule in config.lessons.credit:
        if rule.bound.func is undo_selection:
            _check_selection(config, rule.bound.keywords["samples"], rule.bound.keywords["kept"])
    if not (config.plays_plainly or objective.searched_weight or objective.imitation):
        raise ConfigError(
            f"{plan.name} with searched_weight=0: nothing would be learned from: set naive, imitation or "
            "searched_weight above 0"
        )
    if config.search.search_temperature is not None and objective.searched_weight:
        raise ConfigError(
            f"searches sample at temperature {config.search.search_temperature}, so that the objective cannot compare "
            f"them with the policy: wanted searched_weight=0, with imitation, got {objective.searched_weight}"
        )


def _check_selection(config: TrainConfig, samples: int, kept: int) -> None:
    """Raise ConfigError where trajectories are not the best `kept` of `samples` independent episodes.

    The rule `undo_selection` inverts the distribution of the best of independent plays. It reads the distribution
    of a single play from the plain episodes of the same instance.
    """
    own, plan = config.search, choose_search(config.search)
    if plan.strategy.func is not best_of_n or plan.harvest != "selected":
        raise ConfigError(
            "undo_selection holds for the best of independent episodes alone: wanted search="
            f"best_of_n(n={samples}, keep={kept}) with learn_from=selected, got {own.search} with {own.learn_from}"
        )
    wanted = (signature(plan.strategy).parameters["n"].default, plan.paths)
    if (samples, kept) != wanted:
        raise ConfigError(
            f"{own.search} keeps {wanted[1]} of {wanted[0]}: wanted undo_selection(samples={wanted[0]}, "
            f"kept={wanted[1]}), got samples={samples} and kept={kept}"
        )
    if own.search_when != "always":
        raise ConfigError(
            "undo_selection holds where every instance is searched: wanted search_when=always, got "
            f"{own.search_when}, which searches those whose plain play failed"
        )
    if own.naive < 1:
        raise ConfigError("undo_selection reads the distribution of returns off plain play: wanted naive >= 1, got 0")
    if (own.noise, own.dead_ends) != ("fresh", "off"):
        raise ConfigError(
            "undo_selection holds where episodes are independent and ranked by their returns: wanted noise=fresh "
            f"and dead_ends=off, got {own.noise} and {own.dead_ends}"
        )


def _check_estimator(config: TrainConfig) -> None:
    """Raise ConfigError where the run's batches will not have what its estimator needs."""
    from tsr_gym.agents.learning.advantages.choose_estimator import choose_estimator

    learn, search = config.learn, choose_search(config.search)
    needs = needs_of(choose_estimator(learn.estimator, critic=learn.algorithm == "ppo").estimator)
    if needs.naive and not config.plays_plainly:
        raise ConfigError(
            f"the estimator {learn.estimator} compares with plain play, and {config.search.search} brings none: set "
            "naive >= 1, or baseline='all'"
        )
    if needs.whole_groups and learn.objective.searched_weight == 0 and config.search.name != "naive":
        raise ConfigError(
            f"the estimator {learn.estimator} compares by turns where a whole group failed, and is not shown searched "
            "trajectories with searched_weight=0: it would treat a group whose only success was searched as one that "
            "the credit rule rewrote. Write groups='all' in both, tspo(groups='all') and "
            "first_occurrence(groups='all'), or searched_weight above 0"
        )
    if needs.finished and search.harvest == "leaves":
        raise ConfigError(
            f"the estimator {learn.estimator} takes a branch that the search left for an episode that ended: wanted "
            "learn_from=selected, or an estimator that completes branches, such as tree_backup"
        )


# Bytes of a parameter or an activation in float32. Parameters stay in float32, also under autocast.
FLOAT = 4
# AdamW keeps two moments per trained parameter, and the backward pass one gradient.
MOMENTS, GRADIENTS = 2, 1
# Activations that the backward pass keeps per token and layer, in multiples of the hidden width: the inputs of the
# attention's and the MLP's matrices, their norms and residuals. Measured values lie between 25 and 40.
KEPT = 34


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimated size of a run.

    Attributes:
        parameters: Of the model.
        trained: Parameters that the optimizer updates, those of a critic included.
        tokens: Sampled tokens per update.
        tokens_from: The setting that decides the tokens per update.
        model_bytes: Weights of policy, critic and reference model.
        optimizer_bytes: Gradients and AdamW's moments.
        batch_bytes: Activations and logits of the longest micro-batch.
        engine: What samples: the engine of the configuration, or the one that ``auto`` stands for.
    """

    parameters: int
    trained: int
    tokens: int
    tokens_from: str
    model_bytes: int
    optimizer_bytes: int
    batch_bytes: int
    engine: str


def estimate(config: TrainConfig, model_dir: Path) -> Estimate:
    """Return the estimated size of a run.

    Args:
        config: All settings.
        model_dir: The model, of which only ``config.json`` is read.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    shape: Any = AutoConfig.from_pretrained(model_dir, trust_remote_code=False)
    # On this device parameters have shapes and take no memory.
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(shape)  # type: ignore[no-untyped-call]
    parameters = sum(parameter.numel() for parameter in model.parameters())
    learn, search = config.learn, config.search
    trained = parameters
    if learn.lora_rank:
        # A matrix of n x m gets two factors of rank r: r * (n + m) parameters.
        layers = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
        trained = sum(learn.lora_rank * sum(layer.weight.shape) for layer in layers)
    critics = parameters if learn.algorithm == "ppo" and learn.critic == "model" else 0
    reference = parameters if learn.objective.kl_weight and not learn.lora_rank else 0
    limits = task_pool(config.env, config.task, config.task.train_split).base.limits
    turns = limits.max_turns or 1
    answer = min(config.model.max_tokens, ModelCard.load(model_dir).max_tokens or config.model.max_tokens)
    longest = int(shape.to_dict().get("max_position_embeddings", 4096))
    rows = min(learn.rows_per_pass(longest), search.groups * search.trajectories)
    width, depth, vocabulary = shape.hidden_size, shape.num_hidden_layers, shape.vocab_size
    activations = rows * longest * (KEPT * width * (1 if learn.recompute else depth))
    logits = rows * longest * (1 if learn.logits == "whole" else 0) * vocabulary * 2
    return Estimate(
        parameters,
        trained + critics,
        *_tokens(config, turns * answer),
        model_bytes=FLOAT * (parameters + critics + reference),
        optimizer_bytes=FLOAT * (MOMENTS + GRADIENTS) * (trained + critics),
        batch_bytes=FLOAT * (activations + logits),
        engine=_engine(config, shape.to_dict()),
    )


def _engine(config: TrainConfig, shape: dict[str, Any]) -> str:
    from tsr_gym.agents.models.language_model import pick_autocast, pick_device

    own = config.model
    if own.engine != "auto":
        return own.engine
    device = pick_device(own.device)
    lower = pick_autocast(own.dtype, device)
    adapted = "low-rank matrices" if config.learn.lora_rank else ""
    reason = why_no_trie(shape, device=device.type, dtype="float32" if lower is None else str(lower))
    return "transformers" if config.learn.offload else pick_engine(shape, reason or adapted)


def _tokens(config: TrainConfig, episode: int) -> tuple[int, str]:
    """Return the sampled tokens of an update, and the setting that decides them.

    Without a budget it is a bound: all turns of every episode, and every answer as long as it may be. A search
    samples more than the paths that it keeps, by a factor that depends on the strategy.
    """
    run, search = config.run, config.search
    if run.update_tokens is not None:
        return run.update_tokens, "update_tokens"
    if run.total_tokens is not None:
        return run.total_tokens // max(run.updates, 1), "total_tokens / updates"
    plan = choose_search(search)
    episodes = search.groups * (plan.searches * plan.paths + search.naive)
    if plan.harvest in ("episodes", "branches"):
        episodes = search.groups * (search.trajectories + search.naive)
    return episodes * episode, "at most, by turns and max_tokens of the kept paths"
