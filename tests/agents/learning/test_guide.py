"""Guide: a value head fitted to the returns of episodes, with numbers worked out by hand and by another library."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests.agents.learning.test_batch import episode, turn
from tests.agents.tiny import random_qwen2
from tsr_gym.agents.episodes.trajectory import Group
from tsr_gym.agents.learning.guide import Guide


class Backbone(torch.nn.Module):
    """A model whose hidden state after a token is half the token's number."""

    def __init__(self):
        super().__init__()
        self.config = SimpleNamespace(hidden_size=1)
        self.device = torch.device("cpu")

    def forward(self, input_ids, attention_mask, use_cache):
        return SimpleNamespace(last_hidden_state=input_ids[..., None] / 2)


def guide(**settings):
    return Guide(SimpleNamespace(base_model=Backbone()), **settings)


def head(found):
    return found.critic.head.weight.item(), found.critic.head.bias.item()


def lesson(*episodes):
    return [Group(0, episodes)]


def test_without_inertia_the_head_is_the_line_through_the_returns():
    found = guide(inertia=0.0)
    # Hidden states 1 and 3 at the ends of the prompts, returns 2 and 4: the line is x + 1.
    two = lesson(episode(turn([9, 2], [5], 2.0)), episode(turn([6], [5], 4.0)))
    # Before, 0 was said of both: the mean square is 10, the variance 1.
    assert found.learn(two) == pytest.approx(1 - 10)
    assert head(found) == pytest.approx((1.0, 1.0))
    assert found.learn(two) == pytest.approx(1.0)


def test_with_inertia_the_head_stays_close_to_the_one_before():
    found = guide(inertia=4.0)
    one = lesson(episode(turn([0], [5], 6.0)))
    # The hidden state is 0, so x'x is 1 and l = 4 * 1 / 2: the bias is 6 / (1 + 2), and then a third of what is left.
    assert found.learn(one) is None
    assert head(found) == pytest.approx((0.0, 2.0))
    found.learn(one)
    assert head(found) == pytest.approx((0.0, 2.0 + 4.0 / 3))


def test_a_state_is_worth_the_rewards_from_its_turn_on():
    found = guide(inertia=0.0)
    # After tokens 2, 4 and 8: hidden states 1, 2 and 4. The rewards to come are 9, 8 and 6, which is 10 - x.
    found.learn(lesson(episode(turn([2], [5], 1.0), turn([4], [5], 2.0), turn([8], [5], 6.0))))
    assert head(found) == pytest.approx((-1.0, 10.0))


def test_without_turns_nothing_is_learned():
    found = guide()
    assert found.learn([]) is None
    assert found.learn(lesson(episode())) is None
    assert head(found) == (0.0, 0.0)


def test_the_fit_is_that_of_a_ridge_regression_on_the_models_own_states_and_leaves_the_model_alone(tokenizer):
    model = random_qwen2(tokenizer)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    rng = np.random.default_rng(0)
    prompts = [rng.integers(5, 90, size=rng.integers(1, 12)).tolist() for _ in range(20)]
    returns = rng.normal(size=20)
    found = Guide(model, inertia=3.0, max_batch=7)
    found.learn(lesson(*[episode(turn(prompt, [5], float(y))) for prompt, y in zip(prompts, returns, strict=True)]))
    with torch.no_grad():
        states = [model.base_model(torch.tensor([prompt])).last_hidden_state[0, -1].numpy() for prompt in prompts]
    x = np.hstack([np.array(states, dtype=float), np.ones((20, 1))])
    # A ridge is least squares with rows of its root below.
    ridge = 3.0 * (x**2).sum(axis=1).mean() / x.shape[1]
    rows = np.vstack([x, np.sqrt(ridge) * np.eye(x.shape[1])])
    wanted, *_ = np.linalg.lstsq(rows, np.concatenate([returns, np.zeros(x.shape[1])]), rcond=None)
    weights = torch.cat([found.critic.head.weight[0], found.critic.head.bias]).detach().numpy()
    assert weights == pytest.approx(wanted, abs=1e-4)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    # What a search asks: the value before a token is that of the prompt's end.
    ids = torch.tensor([[*prompts[0], 5]])
    value = found.critic(ids, torch.ones_like(ids))[0, -1].item()
    assert value == pytest.approx(float(x[0] @ wanted), abs=1e-3)
