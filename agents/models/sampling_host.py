"""The host of a model that samples for a configuration outside of transformers."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tsr_gym.agents.models.language_model import pick_autocast, pick_device
from tsr_gym.agents.models.lora import base_weights, save_adapter
from tsr_gym.agents.models.settings import ModelConfig
from tsr_gym.agents.policies.vllm_engine import Host


def sampling_host(config: ModelConfig, folder: Path, *, lora_rank: int = 0) -> Host | None:
    """Return a new host of the model in a folder, None where transformers samples from the model itself.

    Args:
        config: How the model is used.
        folder: A Hugging Face model with weights in safetensors.
        lora_rank: Of the adapters that vLLM in this process will be given; 0 for none.

    Raises:
        CheckpointError: The folder holds no such model.
        ConfigError: vLLM cannot compute the model here.
        EngineFailed: vLLM does not start, or its server does not answer.
        MissingExtra: vLLM is not installed.
    """
    lower = pick_autocast(config.dtype, pick_device(config.device))
    dtype = "float32" if lower is None else str(lower).removeprefix("torch.")
    # Each is imported where it is wanted, because vLLM is optional.
    gib, batch = config.engine_gib, config.max_batch
    if config.engine == "vllm":
        from tsr_gym.agents.policies.vllm_model import VllmModel

        return VllmModel(folder, dtype=dtype, cache_gib=gib, max_batch=batch, lora_rank=lora_rank)
    if config.engine == "vllm-server":
        from tsr_gym.agents.policies.vllm_server import VllmServer

        return VllmServer(folder, url=config.engine_url, dtype=dtype, cache_gib=gib, max_batch=batch)
    return None


def policy_host(config: ModelConfig, model: Any, folder: Path, *, adapter_rank: int = 0) -> Host | None:
    """Return a new host of a policy, which gets its weights at each update; see `sampling_host`.

    Args:
        config: How the model is used.
        model: The policy.
        folder: Where it was read from.
        adapter_rank: Of the low-rank matrices, where these alone are handed over; 0 where all weights are.
    """
    return adapter_host(config, model, adapter_rank) if adapter_rank else sampling_host(config, folder)


def adapter_host(config: ModelConfig, model: Any, lora_rank: int) -> Host | None:
    """Return a new host of a model with LoRA as it is without its low-rank matrices; see `sampling_host`."""
    with TemporaryDirectory() as name:
        # The folder of a run that goes on has the matrices merged into the weights.
        model.save_pretrained(name, state_dict=dict(base_weights(model)))
        return sampling_host(config, Path(name), lora_rank=lora_rank)


def hand_over_adapter(host: Host, model: Any, *, version: int) -> None:
    """Give a host the low-rank matrices of a model, and nothing else.

    Raises:
        EngineFailed: The host does not take them.
        Unsupported: It has no room for any.
    """
    with TemporaryDirectory() as name:
        save_adapter(model, Path(name))
        host.load_adapter(Path(name), version=version)
