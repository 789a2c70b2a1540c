"""What an audit asks of a model: the log-probability of every token of a row."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tsr_gym.agents.models.language_model import load_policy, pick_device
from tsr_gym.agents.models.logprobs import token_logprobs
from tsr_gym.errors import ConfigError


class Witness(NamedTuple):
    """A model that is asked about rows.

    Attributes:
        logprobs: From token ids to the log-probability of each, 0 for the first.
        tokenizer: The model's.
    """

    logprobs: Callable[[Sequence[int]], list[float]]
    tokenizer: Any


def witness(folder: Path, *, temperature: float = 1.0, device: str = "auto") -> Witness:
    """Return a model that says how likely it was to sample what rows hold.

    Args:
        folder: A Hugging Face model.
        temperature: At which the rows were sampled.
        device: Where to compute.

    Raises:
        CheckpointError: The model cannot be read.
        ConfigError: The temperature is not above 0.
    """
    if not temperature > 0:
        raise ConfigError(f"wanted a temperature above 0, got {temperature}")
    policy = load_policy(folder, device=pick_device(device))
    policy.model.eval()

    def logprobs(row: Sequence[int]) -> list[float]:
        words, context = policy.model.config.vocab_size, policy.model.config.max_position_embeddings
        if len(row) > context or max(row) >= words:
            raise ConfigError(
                f"the model reads {context} tokens below {words}, got {len(row)} up to {max(row)}: not its rows"
            )
        ids = torch.tensor([list(row)], device=policy.model.device)
        present = torch.ones_like(ids, dtype=torch.bool)
        asked = present.clone()
        asked[:, 0] = False
        with torch.no_grad():
            found, _ = token_logprobs(policy.model, ids, present, asked, temperature=temperature)
        values: list[float] = found[0].tolist()
        return values

    return Witness(logprobs, policy.tokenizer)
