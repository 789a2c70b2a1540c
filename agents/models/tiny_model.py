"""Tiny models: a Qwen2 architecture of about 0.1 million parameters, and initial weights that can copy words."""

from typing import Any

import torch
from torch import Tensor
from transformers import Qwen2Config, Qwen2ForCausalLM

from tsr_gym.errors import ConfigError


def tiny_model(
    tokenizer: Any,
    *,
    hidden: int = 64,
    layers: int = 2,
    heads: int = 4,
    context: int = 512,
    theta: float = 1e4,
    seed: int = 0,
) -> Any:
    """Return an untrained causal language model of Qwen2's architecture for a tokenizer.

    Args:
        tokenizer: Its vocabulary and end tokens.
        hidden: Width.
        layers: Depth.
        heads: Attention heads.
        context: Longest sequence.
        theta: Base of the rotary positions; a large one leaves heads that look for equal words undisturbed by distance.
        seed: Of the parameters.
    """
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        rope_parameters={"rope_theta": theta, "rope_type": "default"},
        # The usual 0.02 is for widths in the thousands; at this width it makes learning several times slower.
        initializer_range=0.1,
        use_sliding_window=False,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed % 2**63)
        model: Any = Qwen2ForCausalLM(config)
    return model.eval()


# Scale of what the other heads and the feed-forward layers write. At 1 it hides the little that head 0 of layer 0
# writes.
_QUIET = 0.1
# How strongly the heads write and look: of the values and outputs, 1 leaves a normed vector as long as it was.
_WRITTEN, _SOUGHT, _COPIED = 0.2, 1.5, 1.0


@torch.no_grad()
def set_copying_heads(model: Any, *, seed: int = 0) -> None:
    r"""Set the first heads of a model's first two layers to copy the word that followed the present word earlier.

    With head width D, model width d, rows of orthonormal maps P, Q, V `[D, d]`, P and Q orthogonal to one another:

        layer 0, head 0   looks one token back by biases alone: W_q = W_k = 0,
                          k = (c, 0), q = 2c (cos f, -sin f), f_j = theta^(-2j/D), c = 5 sqrt(16/D),
                          so that rotary positions make the score 2 c^2 / sqrt(D) sum_j cos((i - 1 - j') f_j);
                          W_v = P, W_o = 0.2 Q^T: writes the previous word at every word
        layer 1, head 0   W_q = 1.5 P, W_k = 1.5 Q: looks where the previous word is the present one;
                          W_v = V, W_o = V^T: predicts the word at that place, with tied embeddings

    All other outputs are scaled to a tenth.

    Args:
        model: An untrained Qwen2 of `tiny_model` with at least two layers, changed in place.
        seed: Of the maps.

    Raises:
        ConfigError: The model has one layer, or heads wider than half of it.
    """
    config = model.config
    width = config.hidden_size // config.num_attention_heads
    if config.num_hidden_layers < 2 or 2 * width > config.hidden_size:
        raise ConfigError(
            f"copying takes two layers and two heads or more, got {config.num_hidden_layers} and "
            f"{config.num_attention_heads}"
        )
    generator = torch.Generator().manual_seed(seed % 2**63)
    rows = _orthonormal(config.hidden_size, generator)
    before, here = rows[:width], rows[width : 2 * width]
    value = _orthonormal(config.hidden_size, generator)[:width]
    for layer in model.model.layers:
        layer.mlp.down_proj.weight *= _QUIET
        layer.self_attn.o_proj.weight[:, width:] *= _QUIET
    first, second = (layer.self_attn for layer in model.model.layers[:2])
    _look_one_back(first, width, config.rope_parameters["rope_theta"])
    first.v_proj.weight[:width] = before
    first.o_proj.weight[:, :width] = _WRITTEN * here.T
    second.q_proj.weight[:width] = _SOUGHT * before
    second.k_proj.weight[:width] = _SOUGHT * here
    second.v_proj.weight[:width] = value
    second.o_proj.weight[:, :width] = _COPIED * value.T


def _look_one_back(attention: Any, width: int, theta: float) -> None:
    angle = theta ** (-torch.arange(0, width, 2) / width)
    strength = 5 * (16 / width) ** 0.5
    attention.q_proj.weight[:width] = 0
    attention.k_proj.weight[:width] = 0
    attention.q_proj.bias[:width] = 2 * strength * torch.cat([angle.cos(), -angle.sin()])
    attention.k_proj.bias[:width] = strength * torch.cat([torch.ones_like(angle), torch.zeros_like(angle)])


def _orthonormal(width: int, generator: torch.Generator) -> Tensor:
    rows: Tensor = torch.linalg.qr(torch.randn(width, width, generator=generator))[0]
    return rows
