"""Critic: a value for the state in which each token is sampled."""

import copy
from dataclasses import replace

import pytest
import torch

from tests.agents.learning.layouts.rows import batch_of, random_groups, random_model
from tests.agents.tiny import random_qwen2
from tsr_gym.agents.learning.layouts import lay_out
from tsr_gym.agents.learning.learner import Learner
from tsr_gym.agents.learning.settings import LearnConfig
from tsr_gym.agents.models.critic import Critic
from tsr_gym.agents.models.lora import adapted_layers, add_lora, merged_weights
from tsr_gym.agents.models.settings import LoraSettings


@pytest.fixture(scope="module")
def critic(tokenizer):
    critic = Critic(random_qwen2(tokenizer, context=64).model)
    torch.manual_seed(1)
    torch.nn.init.normal_(critic.head.weight)
    torch.nn.init.normal_(critic.head.bias)
    return critic


IDS = torch.tensor([[7, 8, 9, 10, 11], [12, 13, 14, 0, 0]])
PRESENT = torch.tensor([[True] * 5, [True, True, True, False, False]])


def test_at_first_every_state_is_worth_nothing_whatever_the_backbone(tokenizer):
    assert torch.count_nonzero(Critic(random_qwen2(tokenizer, context=64).model)(IDS, PRESENT)) == 0
    critic = with_random_head(Critic.on(random_model("llama")))
    assert not critic.hidden(input_ids=IDS).requires_grad
    assert critic(IDS, PRESENT).requires_grad
    critic = Critic.on(random_model("llama", dtype=torch.bfloat16))
    assert {part.dtype for part in critic.parameters()} == {torch.float32}
    assert with_random_head(critic)(IDS, PRESENT).dtype == torch.float32


def test_a_value_is_read_off_what_stands_before_the_token_and_nothing_after(critic):
    values = critic(IDS, PRESENT)
    assert (values.shape, values[:, 0].tolist()) == ((2, 5), [0.0, 0.0])
    weight, bias = critic.head.weight[0], critic.head.bias[0]
    for row, length in ((0, 5), (1, 3)):
        for column in range(1, length):
            hidden = critic.backbone(input_ids=IDS[row : row + 1, :column], use_cache=False).last_hidden_state[0, -1]
            assert values[row, column].item() == pytest.approx((hidden @ weight + bias).item(), abs=1e-5)
    other = IDS.clone()
    other[0, 3:] = torch.tensor([40, 41])
    before, after = critic(IDS, PRESENT)[0], critic(other, PRESENT)[0]
    torch.testing.assert_close(before[:4], after[:4])
    assert abs(before[4] - after[4]) > 1e-3


def test_backbone_and_head_both_learn(critic):
    twin = copy.deepcopy(critic)
    twin(IDS, PRESENT).sum().backward()
    assert twin.head.weight.grad.abs().sum() > 0
    assert twin.backbone.embed_tokens.weight.grad.abs().sum() > 0


LAYOUTS = ("padded", "packed", "shared")


def with_random_head(critic):
    torch.manual_seed(1)
    torch.nn.init.normal_(critic.head.weight, std=0.3)
    torch.nn.init.normal_(critic.head.bias)
    return critic


def with_lora(plain):
    """Return a model with LoRA that has learned something."""
    model = copy.deepcopy(plain)
    add_lora(model, LoraSettings(rank=3))
    for layer in adapted_layers(model).values():
        torch.nn.init.normal_(layer.lora_B["default"].weight, std=0.3)
    return model


def test_a_head_on_a_policy_owns_the_head_and_reads_the_policys_own_backbone():
    model = random_model("qwen2")
    critic = Critic.on(model)
    assert critic.backbone is model.model
    shapes = {name: tuple(part.shape) for name, part in critic.state_dict().items()}
    assert shapes == {"head.weight": (1, 32), "head.bias": (1,)}
    assert [id(part) for part in critic.parameters()] == [id(critic.head.weight), id(critic.head.bias)]
    assert torch.count_nonzero(critic(IDS, PRESENT)) == 0
    before = with_random_head(critic)(IDS, PRESENT)
    with torch.no_grad():
        model.model.norm.weight *= 2
    # The last norm is what the head reads, so twice the norm is twice the value but for the bias.
    bias = critic.head.bias.item()
    torch.testing.assert_close(critic(IDS, PRESENT)[:, 1:] - bias, 2 * (before[:, 1:] - bias))


@pytest.mark.parametrize("adapted", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_head_on_a_policy_says_what_a_critic_with_the_same_backbone_says(layout, adapted):
    plain = random_model("qwen2")
    model = with_lora(plain) if adapted else plain
    twin = copy.deepcopy(plain)
    twin.load_state_dict(dict(merged_weights(model)))
    batch = batch_of(random_groups(0, trees=1, turns=2))
    found = lay_out(batch, layout).values(with_random_head(Critic.on(model)))
    wanted = torch.zeros(batch.rewards.shape)
    separate = with_random_head(Critic(twin.model))
    for row, column in batch.sampled.nonzero().tolist():
        states = separate.backbone(input_ids=batch.ids[row : row + 1, :column], use_cache=False).last_hidden_state
        hidden = states[0, -1]
        wanted[row, column] = hidden @ separate.head.weight[0] + separate.head.bias[0]
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def gradients_of(critic, model, batch, layout):
    """Return the gradient of the summed squares of the values in the head and in the model."""
    for module in (critic, model):
        module.zero_grad()
    lay_out(batch, layout).values(critic).square().sum().backward()
    parts = [torch.zeros_like(part) if part.grad is None else part.grad for part in model.parameters()]
    return critic.head.weight.grad.clone(), torch.cat([part.flatten() for part in parts])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_backbone_gets_its_share_of_the_gradient_and_the_head_all_of_it(layout):
    model, batch = random_model("llama"), batch_of(random_groups(0, trees=1, turns=2))
    whole_head, whole = gradients_of(with_random_head(Critic.on(model, gradient=1.0)), model, batch, layout)
    assert whole.norm() > 0
    for share in (0.0, 0.25):
        head, shared = gradients_of(with_random_head(Critic.on(model, gradient=share)), model, batch, layout)
        torch.testing.assert_close(head, whole_head)
        torch.testing.assert_close(shared, share * whole)


@pytest.mark.parametrize("adapted", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_head_without_gradient_leaves_the_policy_to_its_own_loss(layout, adapted):
    plain = random_model("qwen2")
    start = with_lora(plain) if adapted else plain
    batch = replace(batch_of(random_groups(0, trees=1, turns=2), plain), layout=layout)
    ends = []
    for on in (True, False):
        model = copy.deepcopy(start)
        if on:
            critic = with_random_head(Critic.on(model))
        else:
            critic = with_random_head(Critic(copy.deepcopy(start).model.requires_grad_(False)))
        told = Learner(model, critic, LearnConfig(lr=0.01, critic_lr=0.01)).update(batch)
        ends.append((told, model.state_dict(), critic.head.weight.detach()))
    (told, policy, head), (wanted_told, wanted_policy, wanted_head) = ends
    assert told["policy_loss"] == pytest.approx(wanted_told["policy_loss"], rel=1e-4)
    assert told["value_loss"] == pytest.approx(wanted_told["value_loss"], rel=1e-4)
    torch.testing.assert_close(head, wanted_head, rtol=1e-4, atol=1e-5)
    for name, value in wanted_policy.items():
        torch.testing.assert_close(policy[name], value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_computing_activations_again_changes_nothing_for_policy_and_head_on_one_backbone(layout):
    start = random_model("llama")
    batch = replace(batch_of(random_groups(0, trees=1, turns=2), start), layout=layout)
    ends = []
    for recompute in (False, True):
        model = copy.deepcopy(start)
        critic = with_random_head(Critic.on(model, gradient=0.5))
        Learner(model, critic, LearnConfig(lr=0.01, critic_lr=0.01, recompute=recompute)).update(batch)
        ends.append({**model.state_dict(), **critic.state_dict()})
        assert not any(module.training for module in model.modules())
    for name, value in ends[0].items():
        torch.testing.assert_close(ends[1][name], value, rtol=1e-4, atol=1e-5)
