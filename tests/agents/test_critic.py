"""Critic: a value for the state in which each token is said."""

import copy

import pytest
import torch

from tests.agents.tiny import random_qwen2
from tsr_gym.agents.critic import Critic


@pytest.fixture(scope="module")
def critic(tokenizer):
    critic = Critic(random_qwen2(tokenizer, context=64).model)
    torch.manual_seed(1)
    torch.nn.init.normal_(critic.head.weight)
    torch.nn.init.normal_(critic.head.bias)
    return critic


IDS = torch.tensor([[7, 8, 9, 10, 11], [12, 13, 14, 0, 0]])
PRESENT = torch.tensor([[True] * 5, [True, True, True, False, False]])


def test_at_first_every_state_is_worth_nothing(tokenizer):
    assert torch.count_nonzero(Critic(random_qwen2(tokenizer, context=64).model)(IDS, PRESENT)) == 0


def test_a_value_is_read_off_what_stands_before_the_token(critic):
    values = critic(IDS, PRESENT)
    assert values.shape == (2, 5)
    assert values[:, 0].tolist() == [0.0, 0.0]
    weight, bias = critic.head.weight[0], critic.head.bias[0]
    for row, length in ((0, 5), (1, 3)):
        for column in range(1, length):
            hidden = critic.backbone(input_ids=IDS[row : row + 1, :column], use_cache=False).last_hidden_state[0, -1]
            assert values[row, column].item() == pytest.approx((hidden @ weight + bias).item(), abs=1e-5)


def test_neither_the_token_nor_the_future_is_known(critic):
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
