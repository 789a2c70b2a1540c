"""Support: models that read forests, and models of other kinds that would get them wrong."""

import pytest
import torch
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
)

from tests.agents.learning.layouts.rows import FAMILIES, SIZES, random_model
from tsr_gym.agents.learning.layouts import why_only_padded

SMALL = {"vocab_size": 40, "hidden_size": 32}
EXPERTS = {"head_dim": 8, "num_experts": 2, "num_experts_per_tok": 1}


def made(kind, config):
    torch.manual_seed(0)
    return kind(config).eval()


@pytest.mark.parametrize("family", FAMILIES)
def test_models_with_plain_attention_read_forests(family):
    assert why_only_padded(random_model(family)) is None


def test_in_lower_precision_rounding_is_no_reason_against_a_forest():
    assert why_only_padded(random_model("qwen2", dtype=torch.bfloat16)) is None


def test_small_weights_are_no_reason_either():
    assert why_only_padded(made(MistralForCausalLM, MistralConfig(**SIZES | {"initializer_range": 0.002}))) is None


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        # A recurrence takes the forest for one long row and says nothing.
        (lambda: made(MambaForCausalLM, MambaConfig(**SMALL, num_hidden_layers=2, state_size=4)), "otherwise than"),
        (lambda: made(Qwen3NextForCausalLM, Qwen3NextConfig(**SIZES, **EXPERTS)), "linear_attention"),
        (lambda: made(Gemma2ForCausalLM, Gemma2Config(**SIZES, head_dim=8)), "capped scores"),
        (lambda: made(BloomForCausalLM, BloomConfig(**SMALL, n_layer=2, n_head=4)), "attention of its own"),
    ],
    ids=["recurrent", "partly recurrent", "capped scores", "own attention"],
)
def test_models_that_mix_their_tokens_otherwise_are_found_out(model, reason):
    assert reason in why_only_padded(model())


def test_weights_that_are_not_finite_are_no_good_sign():
    model = random_model("qwen2")
    with torch.no_grad():
        model.model.norm.weight[0] = float("nan")
    assert "otherwise than" in why_only_padded(model)
