"""Recomputing: the same gradients, fewer activations, no dropout, and nothing left behind."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.agents.learning.layouts.rows import SIZES, batch_of, random_groups, random_model
from tests.agents.learning.layouts.test_layout import gradient_of, off_by
from tsr_gym import ConfigError
from tsr_gym.agents.learning.layouts import attending, lay_out
from tsr_gym.agents.models.recomputing import recomputing


def read(model, batch, layout):
    """Return the gradient, and the bytes of what was kept for it."""
    kept = {}

    def keep(tensor):
        kept[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    model.zero_grad()
    with attending(*([] if layout == "padded" else [model])):
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            logprobs, entropy = lay_out(batch, layout).logprobs(model)
        (logprobs + entropy).sum().backward()
    return gradient_of(model), sum(kept.values())


@pytest.mark.parametrize("layout", ["padded", "packed", "shared"])
def test_gradients_are_the_same_and_less_is_kept(layout):
    model, batch = random_model("llama"), batch_of(random_groups(0))
    gradient, kept = read(model, batch, layout)
    with recomputing(model):
        again, fewer = read(model, batch, layout)
    assert off_by(again, gradient) < 1e-6
    assert fewer < 0.7 * kept
    # Afterwards the model is as it was.
    assert read(model, batch, layout)[1] == kept
    assert not any(module.training for module in model.modules())


def test_dropout_stays_off():
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SIZES, attention_dropout=0.9)).eval()
    ids = torch.tensor([[1, 2, 3, 4, 5]])
    wanted = model(input_ids=ids, use_cache=False).logits
    with recomputing(model):
        torch.testing.assert_close(model(input_ids=ids, use_cache=False).logits, wanted)


def test_a_model_without_such_layers_is_refused():
    with pytest.raises(ConfigError, match="turn recompute off"), recomputing(torch.nn.Linear(2, 2)):
        pass
