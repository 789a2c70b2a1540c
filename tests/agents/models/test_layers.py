"""Layers whose activations are checkpointed, or that are compiled: the same gradients, and nothing left behind."""

from contextlib import nullcontext
from functools import partial

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.agents.learning.layouts.rows import SIZES, batch_of, random_groups, random_model
from tests.agents.learning.layouts.test_layout import gradient_of, off_by, policy_gradient
from tsr_gym import ConfigError
from tsr_gym.agents.learning.layouts import attending, lay_out
from tsr_gym.agents.models import logprobs
from tsr_gym.agents.models.logprobs import Head, chunked_logprobs, read_head
from tsr_gym.agents.models.sharding import compile_layers, recompute_activations


@pytest.fixture(autouse=True)
def nothing_compiled():
    """Forget what was compiled, before and after."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def check(model, layout, *, again=False, parts=False):
    """Compare a model with one that is not compiled, on batches of different sizes."""
    plain = random_model("qwen2")
    for seed in (3, 4):
        batch = batch_of(random_groups(seed), plain)
        laid = lay_out(batch, layout)
        found = []
        for one in (model, plain):
            head = read_head(one) if parts else None
            with (
                attending(*([] if layout == "padded" else [one])),
                recompute_activations(one) if again and one is model else nullcontext(),
            ):
                found.append(policy_gradient(one, batch, partial(laid.logprobs, one, head=head)))
        assert off_by(found[0][0], found[1][0]) < 1e-5
        assert off_by(found[0][2], found[1][2]) < 1e-5


def test_a_model_without_layers_is_refused():
    with pytest.raises(ConfigError, match="no layers that can be compiled"):
        compile_layers(torch.nn.Linear(2, 2))
    with pytest.raises(ConfigError, match="turn recompute off"), recompute_activations(torch.nn.Linear(2, 2)):
        pass


@pytest.mark.deep
@pytest.mark.parametrize(
    ("layout", "again", "parts"), [("padded", False, False), ("packed", False, True), ("shared", True, True)]
)
def test_compiled_layers_read_every_layout(layout, again, parts):
    model = random_model("qwen2")
    compile_layers(model)
    check(model, layout, again=again, parts=parts)


@pytest.mark.deep
@pytest.mark.parametrize(("layout", "in_place"), [("padded", False), ("shared", True)])
def test_a_model_compiled_as_a_whole_reads_rows_and_forests(layout, in_place):
    model = random_model("qwen2")
    if in_place:
        model.compile(dynamic=True)
    check(model if in_place else torch.compile(model, dynamic=True), layout)


@pytest.mark.deep
@pytest.mark.parametrize("layout", ["padded", "shared"])
def test_the_head_of_a_model_compiled_as_a_whole_is_out_of_sight(layout):
    model = random_model("qwen2")
    batch = batch_of(random_groups(3))
    head = read_head(model)
    model.compile(backend="eager", dynamic=True)
    laid = lay_out(batch, layout)
    with torch.no_grad(), attending(*([] if layout == "padded" else [model])):
        laid.logprobs(model)
        with pytest.raises(ConfigError, match=r"compile its layers in place of the whole \(compile_layers\)"):
            laid.logprobs(model, head=head)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_is_traced_once_for_all_forests():
    """Its backward pass is not there on a CPU; what is traced is what a GPU would compile."""
    plain, model = random_model("llama"), random_model("llama")
    compile_layers(model, backend="eager")
    for parameter in (*plain.parameters(), *model.parameters()):
        parameter.requires_grad_(False)
    graphs = []
    for seed in (0, 1, 2):
        batch = batch_of(random_groups(seed, groups=3))
        found = lay_out(batch, "shared", kernel="flex").logprobs(model)[0]
        assert off_by(found, lay_out(batch, "padded").logprobs(plain)[0]) < 1e-5
        graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    assert graphs[0] == graphs[2]


@pytest.mark.deep
@pytest.mark.parametrize(("cap", "dtype"), [(3.0, None), (None, torch.bfloat16)])
def test_what_a_gpu_compiles_of_the_head_is_the_head(cap, dtype, monkeypatch):
    torch.manual_seed(0)
    layer, states, said = torch.nn.Linear(16, 70), torch.randn(23, 16), torch.randint(0, 70, (23,))
    found = []
    for compiled in (False, True):
        if compiled:
            monkeypatch.setattr(logprobs, "_weigh", logprobs._compiled_weigh)
            monkeypatch.setattr(logprobs, "_slope", logprobs._compiled_slope)
        layer.zero_grad()
        hidden = states.clone().requires_grad_()
        with torch.autocast("cpu", dtype, enabled=dtype is not None):
            chosen, entropy = chunked_logprobs(hidden, said, Head(layer, 1.5, cap), temperature=0.7, block=70 * 9)
        (2 * chosen.sum() + (entropy * torch.linspace(0, 1, 23)).sum()).backward()
        found.append(
            [chosen.detach(), entropy.detach(), hidden.grad, layer.weight.grad.clone(), layer.bias.grad.clone()]
        )
    for one, other in zip(*found, strict=True):
        assert off_by(one, other) < (1e-5 if dtype is None else 1e-3)


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
    with recompute_activations(model):
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
    with recompute_activations(model):
        torch.testing.assert_close(model(input_ids=ids, use_cache=False).logits, wanted)
