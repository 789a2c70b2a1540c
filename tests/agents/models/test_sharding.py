"""Sharded models, activation checkpointing and compiled layers."""

from contextlib import nullcontext
from functools import partial

import pytest
import torch
from torch.distributed.fsdp import FSDPModule
from transformers import LlamaConfig, LlamaForCausalLM

from tests.agents.learning.layouts.rows import SIZES, WORDS, batch_of, random_groups, random_model
from tests.agents.learning.layouts.test_layout import gradient_of, off_by, policy_gradient
from tests.agents.short_runs import together
from tsr_gym import ConfigError
from tsr_gym.agents.learning.layouts import attending, lay_out
from tsr_gym.agents.models import logprobs
from tsr_gym.agents.models.logprobs import Head, chunked_logprobs, read_head
from tsr_gym.agents.models.sharding import (
    compile_layers,
    own_range,
    own_rows,
    recompute_activations,
    settle,
    shard,
    wake,
    whole,
    whole_tensor,
    whole_weights,
)
from tsr_gym.agents.processes import ALONE

CPU = torch.device("cpu")
IDS = torch.arange(1, 9)[None] % WORDS


def look(processes):
    """Spread a model and return everything about it that a test wants to know."""
    plain, model = random_model("qwen2"), random_model("qwen2")
    shard(model, processes, CPU)
    settle(model, CPU)
    rows = {name: (own_range(value), own_rows(value).detach()) for name, value in model.named_parameters()}
    gathered = {name: whole_tensor(value).detach() for name, value in model.state_dict().items()}
    with torch.no_grad():
        expected = plain(input_ids=IDS).logits
        together = model(input_ids=IDS).logits
        wake(model)
        of_part = model.model(input_ids=IDS).last_hidden_state
        with whole(model):
            # As often as each process likes, which would hang if they had to meet.
            alone = [model(input_ids=IDS).logits for _ in range(processes.rank + 1)]
    with whole_weights(model) as weights:
        held = {name: value.clone() for name, value in weights.items()}
    model.reshard()
    return {
        "rows": rows,
        "gathered": gathered,
        "held": held,
        "off": [float((logits - expected).abs().max()) for logits in (together, *alone)],
        "of_part": float((plain.model(input_ids=IDS).last_hidden_state - of_part).abs().max()),
        "spread again": all(own_rows(value) is not value for value in model.parameters()),
        "parts": sum(isinstance(module, FSDPModule) for module in model.modules()),
    }


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.deep)])
def test_processes_hold_their_rows_and_read_the_model_together_or_alone(size):
    expected = random_model("qwen2").state_dict()
    seen = together(size, look)
    for name, value in expected.items():
        if name in seen[0]["rows"]:
            assert [row for one in seen for row in one["rows"][name][0]] == list(range(len(value)))
            assert torch.equal(torch.cat([one["rows"][name][1] for one in seen]), value)
        assert all(torch.equal(one["gathered"][name], value) and torch.equal(one["held"][name], value) for one in seen)
    for one in seen:
        assert one["gathered"].keys() == one["held"].keys() == expected.keys()
        assert max(*one["off"], one["of_part"]) < 1e-5
        assert one["spread again"]
        # Two layers and the rest.
        assert one["parts"] == 3


def test_one_process_has_all_of_a_model_that_stays_as_it_is():
    model = random_model("qwen2")
    before = dict(model.named_parameters())
    shard(model, ALONE, CPU)
    wake(model)
    with whole(model), whole_weights(model) as weights:
        assert all(torch.equal(weights[name], value) for name, value in model.state_dict().items())
    for name, value in model.named_parameters():
        assert value is before[name]
        assert own_rows(value) is whole_tensor(value) is value
        assert own_range(value) == range(len(value))


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
            recomputed = recompute_activations(one) if again and one is model else nullcontext()
            with attending(*([] if layout == "padded" else [one])), recomputed:
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
            monkeypatch.setattr(logprobs, "_on", lambda device, function: logprobs._compiled(function))
        layer.zero_grad()
        hidden = states.clone().requires_grad_()
        with torch.autocast("cpu", dtype, enabled=dtype is not None):
            chosen, entropy = chunked_logprobs(hidden, said, Head(layer, 1.5, cap), temperature=0.7, block=70 * 9)
        (2 * chosen.sum() + (entropy * torch.linspace(0, 1, 23)).sum()).backward()
        gradients = [hidden.grad, layer.weight.grad.clone(), layer.bias.grad.clone()]
        found.append([chosen.detach(), entropy.detach(), *gradients])
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
