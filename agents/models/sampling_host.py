"""The host of a model that samples for a configuration outside of transformers."""

from pathlib import Path

from tsr_gym.agents.models.language_model import pick_autocast, pick_device
from tsr_gym.agents.models.settings import ModelConfig
from tsr_gym.agents.policies.vllm_engine import Host


def sampling_host(config: ModelConfig, folder: Path) -> Host | None:
    """Return a new host of the model in a folder, None where transformers samples from the model itself.

    Args:
        config: How the model is used.
        folder: A Hugging Face model with weights in safetensors.

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

        return VllmModel(folder, dtype=dtype, cache_gib=gib, max_batch=batch)
    if config.engine == "vllm-server":
        from tsr_gym.agents.policies.vllm_server import VllmServer

        return VllmServer(folder, url=config.engine_url, dtype=dtype, cache_gib=gib, max_batch=batch)
    return None
