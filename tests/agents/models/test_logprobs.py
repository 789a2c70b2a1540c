"""Log-probabilities in parts against all at once, in value and gradient, and how much exists at a time."""

import copy

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from tsr_gym import ConfigError
from tsr_gym.agents.learning import learner
from tsr_gym.agents.models.logprobs import Head, chunked_logprobs, cross_logprobs, read_head, token_logprobs

TOKENS, WIDTH, WORDS = 13, 6, 17


def head_of(*, scale=1.0, cap=None, bias=False, dtype=torch.float32):
    torch.manual_seed(3)
    return Head(nn.Linear(WIDTH, WORDS, bias=bias, dtype=dtype), scale, cap)


def states(dtype=torch.float32):
    torch.manual_seed(4)
    return (2 * torch.randn(TOKENS, WIDTH, dtype=dtype)).requires_grad_(), torch.randint(WORDS, (TOKENS,))


def plain(hidden, said, head, temperature):
    """Return the same from all logits at once, in the words of the formulas."""
    logits = head.module(hidden).to(torch.promote_types(hidden.dtype, torch.float32)) * head.scale
    if head.cap is not None:
        logits = head.cap * torch.tanh(logits / head.cap)
    chances = torch.log_softmax(logits / temperature, dim=-1)
    return chances[torch.arange(len(said)), said], torch.distributions.Categorical(logits=chances).entropy()


def mixed(logprobs, entropy):
    """Return a loss to which both numbers of every token contribute differently."""
    factors = torch.linspace(-1, 2, len(logprobs), dtype=logprobs.dtype)
    return (factors * logprobs).sum() + (factors.flip(0) * entropy**2).sum()


def both_ways(head, *, temperature=1.0, block=40, loss=mixed):
    """Return results and gradients of the plain way and in parts, 40 logits being 2 tokens."""
    found = []
    for way in (plain, lambda *parts: chunked_logprobs(*parts[:3], temperature=parts[3], block=block)):
        hidden, said = states(head.module.weight.dtype)
        head.module.zero_grad()
        results = way(hidden, said, head, temperature)
        loss(*results).backward()
        found.append((*results, hidden.grad, *(part.grad.clone() for part in head.module.parameters())))
    return found


def off_by(parts, whole):
    """Return the largest difference, as a share of the largest number."""
    return ((parts - whole).abs().max() / whole.abs().max()).item()


@pytest.mark.parametrize(("dtype", "rounding"), [(torch.float32, 1e-6), (torch.float64, 1e-14)])
@pytest.mark.parametrize("block", [1, 40, 10**6])
@pytest.mark.parametrize("settings", [{}, {"bias": True}, {"scale": 0.25}, {"scale": 2.0, "cap": 3.0, "bias": True}])
def test_in_parts_everything_is_as_in_one(block, settings, dtype, rounding):
    for whole, parts in zip(*both_ways(head_of(**settings, dtype=dtype), temperature=0.7, block=block), strict=True):
        assert off_by(parts, whole) < rounding


@pytest.mark.parametrize("settings", [{}, {"scale": 0.5, "cap": 2.0, "bias": True}])
def test_gradients_are_those_of_small_differences(settings):
    head = head_of(**settings, dtype=torch.float64)
    hidden, said = states(torch.float64)
    parameters = dict(head.module.named_parameters())

    def measured(hidden, *values):
        with torch.no_grad():
            twin = nn.Linear(WIDTH, WORDS, bias="bias" in parameters, dtype=torch.float64)
        for name, value in zip(parameters, values, strict=True):
            del twin._parameters[name]
            twin.__dict__[name] = value
        return chunked_logprobs(hidden, said, head._replace(module=twin), temperature=0.6, block=50)

    assert torch.autograd.gradcheck(measured, (hidden, *parameters.values()))


@pytest.mark.parametrize("loss", [lambda logprobs, entropy: logprobs.sum(), lambda logprobs, entropy: entropy.sum()])
def test_one_of_the_two_may_be_left_alone(loss):
    for whole, parts in zip(*both_ways(head_of(), loss=loss), strict=True):
        assert off_by(parts, whole) < 1e-6


def test_a_head_that_does_not_learn_gets_no_gradient():
    head = head_of(bias=True)
    head.module.requires_grad_(False)
    hidden, said = states()
    mixed(*chunked_logprobs(hidden, said, head, block=40)).backward()
    assert head.module.weight.grad is None
    whole, said = states()
    mixed(*plain(whole, said, head, 1.0)).backward()
    assert torch.allclose(hidden.grad, whole.grad, atol=1e-6)


class Doubled(nn.Linear):
    """A layer that is not a plain one, as adapters make them."""

    def forward(self, inputs):
        return 2 * super().forward(inputs)


def test_a_head_of_another_kind_is_computed_twice():
    torch.manual_seed(3)
    head = Head(Doubled(WIDTH, WORDS), 0.5, 4.0)
    for whole, parts in zip(*both_ways(head, temperature=0.7), strict=True):
        assert off_by(parts, whole) < 1e-6


def test_half_precision_is_as_exact_as_the_same_logits_at_once():
    """Under autocast both ways round the logits to bfloat16; what follows is in float32."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = both_ways(head_of(bias=True), temperature=0.7)
    exact = both_ways(head_of(bias=True), temperature=0.7)[0]
    for place, (whole, parts, right) in enumerate(zip(*found, exact, strict=True)):
        assert whole.dtype == parts.dtype == torch.float32
        # Values are the same; gradients are rounded to bfloat16 in another order: within half a percent.
        assert off_by(parts, whole) < (1e-6 if place < 2 else 0.005)
        assert off_by(parts, right) < 0.01


@pytest.mark.parametrize("module", [nn.Linear, Doubled])
def test_nothing_sampled_is_nothing_found(module):
    head = Head(module(WIDTH, WORDS))
    logprobs, entropy = chunked_logprobs(torch.zeros(0, WIDTH), torch.zeros(0, dtype=torch.int64), head)
    assert logprobs.shape == entropy.shape == (0,)


class Largest(TorchDispatchMode):
    """Watch what operations return, and remember the size of the largest tensor."""

    def __init__(self):
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for part in made if isinstance(made, tuple | list) else [made]:
            if isinstance(part, torch.Tensor):
                self.numel = max(self.numel, part.numel())
        return made


@pytest.mark.parametrize("module", [nn.Linear, Doubled])
def test_all_logits_never_exist_at_once(module):
    tokens, width, words, block = 200, 4, 500, 5000
    head = Head(module(width, words))
    hidden, said = torch.randn(tokens, width, requires_grad=True), torch.randint(words, (tokens,))
    with Largest() as parts:
        mixed(*chunked_logprobs(hidden, said, head, block=block)).backward()
    with Largest() as whole:
        mixed(*plain(hidden, said, head, 1.0)).backward()
    # The weight has 2,000 numbers, the block 5,000, and all logits are 100,000.
    assert parts.numel <= block
    assert whole.numel >= tokens * words


COMMON = {
    "vocab_size": 50, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "initializer_range": 0.4, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def tied():
    torch.manual_seed(2)
    return Qwen2ForCausalLM(Qwen2Config(**COMMON, tie_word_embeddings=True)).eval()


MODELS = {
    "tied": (tied, 1.0, None),
    "untied": (lambda: Qwen2ForCausalLM(Qwen2Config(**COMMON, tie_word_embeddings=False)), 1.0, None),
    "capped": (
        lambda: Gemma2ForCausalLM(Gemma2Config(**COMMON, head_dim=8, final_logit_softcapping=5.0)),
        1.0,
        pytest.approx(5.0),
    ),
    "scaled up": (lambda: CohereForCausalLM(CohereConfig(**COMMON, logit_scale=1.75)), pytest.approx(1.75), None),
    "scaled down": (
        lambda: GraniteForCausalLM(GraniteConfig(**COMMON, logits_scaling=3.0)),
        pytest.approx(1 / 3),
        None,
    ),
}


def rows():
    draw = torch.Generator().manual_seed(1)
    ids = torch.randint(3, 50, (3, 8), generator=draw)
    present = torch.arange(8) < torch.tensor([[8], [6], [7]])
    sampled = present & (torch.rand(3, 8, generator=draw) < 0.6)
    sampled[:, 0] = False
    return ids * present, present, sampled


@pytest.mark.parametrize("kind", MODELS)
def test_what_a_model_does_to_its_logits_is_found_out(kind):
    make, scale, cap = MODELS[kind]
    torch.manual_seed(0)
    model = make().eval()
    head = read_head(model)
    assert head[1:] == (scale, cap)
    assert head.module is model.get_output_embeddings()
    assert not head.module._forward_hooks
    found = []
    for way in ({}, {"head": head, "block": 120}):
        model.zero_grad()
        logprobs, entropy = token_logprobs(model, *rows(), temperature=0.7, **way)
        (logprobs * torch.arange(24.0).reshape(3, 8) + entropy**2).sum().backward()
        found.append((logprobs, entropy, *(parameter.grad.clone() for parameter in model.parameters())))
    for whole, parts in zip(*found, strict=True):
        assert torch.allclose(parts, whole, atol=1e-5 * max(1.0, whole.abs().max().item()))
    assert (found[0][0] != 0).sum() == rows()[2].sum()


def test_it_agrees_with_the_learners_own():
    model = tied()
    for head in (None, read_head(model)):
        with torch.no_grad():
            found = token_logprobs(model, *rows(), temperature=0.5, head=head)
            known = learner.token_logprobs(model, *rows(), temperature=0.5)
        assert all(torch.allclose(ours, theirs, atol=1e-5) for ours, theirs in zip(found, known, strict=True))


class Odd(Qwen2ForCausalLM):
    """A model that changes its logits in a way that no head describes."""

    def forward(self, *args, **more):
        output = super().forward(*args, **more)
        output.logits = output.logits + output.logits.sin()
        return output


class Headless(Qwen2ForCausalLM):
    """A model that names no output layer."""

    def get_output_embeddings(self):
        return None


class Detour(Qwen2ForCausalLM):
    """A model that does not call the output layer that it names."""

    def get_output_embeddings(self):
        return nn.Linear(32, 50)


@pytest.mark.parametrize("kind", [Odd, Headless, Detour])
def test_a_model_that_cannot_be_taken_apart_is_left_whole(kind):
    model = kind(Qwen2Config(**COMMON)).eval()
    assert read_head(model) is None
    logprobs, entropy = token_logprobs(model, *rows(), head=None)
    assert logprobs.isfinite().all()
    assert (entropy >= 0).all()


def test_another_models_head_is_refused_and_no_hook_stays_behind_where_a_pass_fails():
    model = tied()
    with pytest.raises(ConfigError, match="call its output layer once, it did 0 times"):
        token_logprobs(model, *rows(), head=read_head(copy.deepcopy(model)))
    model = tied()
    head = read_head(model)
    ids, present, sampled = rows()
    with pytest.raises(IndexError):
        token_logprobs(model, ids + 1000, present, sampled, head=head)
    assert not head.module._forward_pre_hooks


def test_every_answer_is_rated_after_every_prompt():
    model = tied()
    prompts, answers = [(3, 4, 5), (6,)], [(7, 8), (9,), (10, 11, 12)]
    for microbatch in (1, 4, 16):
        found = cross_logprobs(model, prompts, answers, temperature=0.8, head=read_head(model), microbatch=microbatch)
        assert found.shape == (3, 2)
        for row, answer in enumerate(answers):
            for column, prompt in enumerate(prompts):
                with torch.no_grad():
                    logits = model(input_ids=torch.tensor([prompt + answer])).logits[0]
                chances = torch.log_softmax(logits / 0.8, dim=-1)
                expected = sum(chances[len(prompt) - 1 + place, word] for place, word in enumerate(answer))
                assert found[row, column].item() == pytest.approx(expected.item(), abs=1e-4)
