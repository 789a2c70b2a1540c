"""ServedModel: what is known of a folder before vLLM reads it, and which updates are whole."""

import pytest
import torch

from tests.agents.tiny import random_qwen2
from tsr_gym import CheckpointError, ConfigError
from tsr_gym.agents.policies.vllm_model import served_model


@pytest.fixture
def folder(tokenizer, tmp_path):
    def made(**settings):
        model = random_qwen2(tokenizer, context=96, **settings)
        model.save_pretrained(tmp_path)
        return model, served_model(tmp_path)

    return made


@pytest.mark.parametrize("tie", [True, False])
def test_a_folder_tells_sizes_and_all_parameters(folder, tie):
    model, found = folder(tie=tie)
    assert (found.context, found.vocabulary, found.head_width, found.tied) == (96, len(model.lm_head.weight), 8, tie)
    assert found.shapes == {name: tuple(value.shape) for name, value in model.state_dict().items()}


def test_a_tied_head_that_an_update_leaves_out_is_the_embedding(folder):
    model, found = folder(tie=True)
    whole = found.whole_weights(model.named_parameters())
    assert torch.equal(whole["lm_head.weight"], model.model.embed_tokens.weight)
    assert not whole["lm_head.weight"].requires_grad


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda weights: weights.pop("model.norm.weight"),
            "brings all 27 parameters, and 'model.norm.weight' is missing",
        ),
        (lambda weights: weights.pop("lm_head.weight"), "'lm_head.weight' is missing"),
        (lambda weights: weights.update({"model.norm.weight": torch.ones(3)}), r"of shape \[32\], got \[3\]"),
        (lambda weights: weights.update(other=torch.ones(3)), "no parameter 'other'"),
    ],
    ids=["missing", "head of its own missing", "other shape", "unknown"],
)
def test_an_update_that_is_not_whole_is_refused(folder, change, message):
    model, found = folder(tie=False)
    weights = dict(model.state_dict())
    change(weights)
    with pytest.raises(ConfigError, match=message):
        found.whole_weights(weights.items())


def test_heads_that_vllm_does_not_know_on_a_cpu_are_refused(folder):
    with pytest.raises(
        ConfigError, match=r"heads are 8 wide.*--engine transformers, or a base model with --hidden 128"
    ):
        folder(tie=True)[1].check_heads()
    folder(tie=True, hidden=128)[1].check_heads()


def test_a_folder_without_a_model_is_told(tmp_path):
    with pytest.raises(CheckpointError, match="wanted a Hugging Face model in safetensors"):
        served_model(tmp_path)
    (tmp_path / "config.json").write_text(
        '{"hidden_size": 8, "num_attention_heads": 1, "max_position_embeddings": 9, "vocab_size": 4}'
    )
    with pytest.raises(CheckpointError, match="found no weights"):
        served_model(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match="Safetensor"):
        served_model(tmp_path)
