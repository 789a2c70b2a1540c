"""Estimate parameters, memory and tokens of a run from its settings and the model's `config.json`, without weights."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tsr_gym.agents.config import TrainConfig
from tsr_gym.agents.episodes.collect import choose_search
from tsr_gym.agents.episodes.env_pool import task_pool
from tsr_gym.agents.models.card import ModelCard

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
    """

    parameters: int
    trained: int
    tokens: int
    tokens_from: str
    model_bytes: int
    optimizer_bytes: int
    batch_bytes: int


def estimate(config: TrainConfig, model_dir: Path) -> Estimate:
    """Return the estimated size of a run.

    Args:
        config: All settings.
        model_dir: The model, of which only ``config.json`` is read.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    shape: Any = AutoConfig.from_pretrained(model_dir, trust_remote_code=False)
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
    rows = min(learn.microbatch, search.groups * search.trajectories)
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
    )


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
