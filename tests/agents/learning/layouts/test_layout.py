"""Layouts against rows that are read one at a time, and models that cannot read every layout."""

import copy

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

from tests.agents.learning.layouts.rows import (
    BATCHES,
    FAMILIES,
    SIZES,
    batch_of,
    random_groups,
    random_model,
    row_by_row,
)
from tsr_gym.agents.learning.layouts import lay_out, why_only_padded
from tsr_gym.agents.learning.losses import Given, StepWeights, clipped_value_loss, policy_loss, token_weights
from tsr_gym.agents.learning.settings import Objective
from tsr_gym.agents.models.critic import Critic
from tsr_gym.agents.models.logprobs import read_head

LAYOUTS = ("padded", "packed", "shared")
CLOSE = 1e-5


@pytest.fixture(scope="module", params=FAMILIES)
def model(request):
    return random_model(request.param)


@pytest.fixture(scope="module")
def critic(model):
    critic = Critic(copy.deepcopy(model.model))
    torch.manual_seed(1)
    torch.nn.init.normal_(critic.head.weight, std=0.3)
    return critic


def off_by(actual, expected):
    """Return the size of a difference as a share of the size of what was wanted."""
    return float((actual - expected).norm() / expected.norm().clamp(min=1e-30))


def advantages_of(batch):
    """Return advantages that differ between the leaves and between the tokens, half of them negative."""
    draw = torch.Generator().manual_seed(7)
    return torch.randn(batch.rewards.shape, generator=draw).to(batch.old_logprobs) * batch.sampled


def policy_gradient(model, batch, read):
    """Return PPO's loss with an entropy bonus, the share that is clipped, and all gradients in one vector."""
    model.zero_grad()
    weights = StepWeights(token_weights(batch, "sequence"))
    actual = policy_loss(Objective(entropy=0.05), *read(), Given.of(batch, advantages_of(batch), weights))
    actual.loss.backward()
    return actual.parts["policy_loss"], actual.parts["clip_fraction"], gradient_of(model)


def gradient_of(model):
    parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
    return torch.cat([part.flatten() for part in parts]).clone()


@pytest.fixture(scope="module", params=BATCHES)
def alone(request, model):
    """A batch, and what comes of its rows when they are read alone."""
    batch = batch_of(BATCHES[request.param](), model)
    with torch.no_grad():
        numbers = row_by_row(model, batch, 0.7)
    return batch, numbers, policy_gradient(model, batch, lambda: row_by_row(model, batch))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_log_probabilities_loss_and_gradients_are_those_of_rows_read_alone(model, alone, layout):
    batch, numbers, (loss, share, gradient) = alone
    laid = lay_out(batch, layout)
    with torch.no_grad():
        actual = laid.logprobs(model, temperature=0.7)
    for one, expected in zip(actual, numbers, strict=True):
        assert off_by(one, expected) < CLOSE
        assert (one[~batch.sampled] == 0).all()
    other_loss, other_share, other_gradient = policy_gradient(model, batch, lambda: laid.logprobs(model))
    # Some tokens are clipped, at one leaf and not at another; with few tokens there may be none.
    assert 0 < share < 1 or batch.sampled.sum() < 12
    assert other_share == pytest.approx(share)
    assert float(other_loss) == pytest.approx(float(loss), rel=CLOSE, abs=1e-6)
    assert off_by(other_gradient, gradient) < CLOSE


def test_a_token_may_be_clipped_in_one_row_and_not_in_another():
    model = random_model("qwen2")
    batch = batch_of(BATCHES["twins"](), model, spread=0.0)
    half = len(batch.ids) // 2
    # The same tokens twice, with a ratio of e^0.5: the clip binds where they are good, not where they are bad.
    batch.old_logprobs[batch.sampled] -= 0.5
    weights = StepWeights(token_weights(batch, "token"))
    for layout in LAYOUTS:
        logprobs = lay_out(batch, layout).logprobs(model)[0].detach().requires_grad_()
        advantages = batch.sampled * torch.where(torch.arange(2 * half) < half, 1.0, -1.0)[:, None]
        given = Given.of(batch, advantages, weights)
        actual = policy_loss(Objective(entropy=0.0), logprobs, torch.zeros_like(logprobs), given)
        actual.loss.backward()
        assert actual.parts["clip_fraction"] == pytest.approx(0.5)
        assert (logprobs.grad[:half] == 0).all()
        assert (logprobs.grad[half:][batch.sampled[half:]] > 0).all()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["trees", "windows", "nested"])
def test_values_and_the_critics_gradient_are_those_of_rows_read_alone(critic, name, layout):
    batch = batch_of(BATCHES[name]())
    draw = torch.Generator().manual_seed(8)
    old, targets = (torch.randn(batch.rewards.shape, generator=draw) for _ in range(2))
    weights = token_weights(batch, "token")

    def alone():
        rows = []
        for ids, present in zip(batch.ids, batch.present, strict=True):
            length = int(present.sum())
            hidden = critic.backbone(input_ids=ids[None, :length], use_cache=False).last_hidden_state[0, :-1]
            rows.append(torch.nn.functional.pad(critic.head(hidden)[:, 0], (1, len(ids) - length)))
        return torch.stack(rows) * batch.sampled

    actual = []
    for read in (alone, lambda: lay_out(batch, layout).values(critic)):
        critic.zero_grad()
        values = read()
        clipped_value_loss(values, old, targets, weights, clip=0.3).backward()
        actual.append((values.detach(), gradient_of(critic)))
    assert off_by(actual[1][0], actual[0][0]) < CLOSE
    assert off_by(actual[1][1], actual[0][1]) < CLOSE


@pytest.mark.parametrize("layout", LAYOUTS)
def test_logits_may_be_taken_in_parts(model, layout):
    batch = batch_of(random_groups(6), model)
    laid, head = lay_out(batch, layout), read_head(model)
    assert head is not None
    whole = policy_gradient(model, batch, lambda: laid.logprobs(model))
    parts = policy_gradient(model, batch, lambda: laid.logprobs(model, head=head))
    assert float(parts[0]) == pytest.approx(float(whole[0]), rel=CLOSE)
    assert off_by(parts[2], whole[2]) < CLOSE
    model.zero_grad()


@pytest.mark.gpu
@pytest.mark.parametrize("layout", ["packed", "shared"])
def test_on_a_gpu_in_bfloat16_forests_are_read_as_padded_rows_are(layout):
    model, batch = random_model("qwen2").cuda(), batch_of(random_groups(6))
    head, actual = read_head(model), []
    for name in ("padded", layout):
        with torch.autocast("cuda", torch.bfloat16):
            actual.append(lay_out(batch.to("cuda"), name).logprobs(model, head=head)[0])
    assert off_by(actual[1].detach(), actual[0].detach()) < 3e-2
    gradients = []
    for logprobs in actual:
        model.zero_grad()
        logprobs.sum().backward()
        gradients.append(gradient_of(model))
    assert off_by(gradients[1], gradients[0]) < 5e-2


def test_other_layouts_and_rows_that_begin_with_a_sampled_token_are_refused():
    batch = batch_of(BATCHES["nested"]())
    batch.sampled[0, 0] = True
    with pytest.raises(ValueError, match="wanted a prompt before every sampled token"):
        lay_out(batch, "shared")
    with pytest.raises(ValueError, match="wanted layout padded, packed or shared, got 'round'"):
        lay_out(batch_of(BATCHES["nested"]()), "round")


SMALL = {"vocab_size": 40, "hidden_size": 32}
EXPERTS = {"head_dim": 8, "num_experts": 2, "num_experts_per_tok": 1}


def made(model_class, config):
    torch.manual_seed(0)
    return model_class(config).eval()


def test_models_with_plain_attention_read_forests_in_lower_precision_and_with_small_weights_too():
    small = made(MistralForCausalLM, MistralConfig(**SIZES | {"initializer_range": 0.002}))
    rounded = random_model("qwen2", dtype=torch.bfloat16)
    assert [why_only_padded(model) for model in (*map(random_model, FAMILIES), small, rounded)] == [None] * 5


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        # A recurrence reads the forest as one long row without an error.
        (lambda: made(MambaForCausalLM, MambaConfig(**SMALL, num_hidden_layers=2, state_size=4)), "a forest differ"),
        (lambda: made(Qwen3NextForCausalLM, Qwen3NextConfig(**SIZES, **EXPERTS)), "linear_attention"),
        (lambda: made(Gemma2ForCausalLM, Gemma2Config(**SIZES, head_dim=8)), "capped scores"),
        (lambda: made(BloomForCausalLM, BloomConfig(**SMALL, n_layer=2, n_head=4)), "use the padded layout"),
    ],
    ids=["recurrent", "partly recurrent", "capped scores", "own attention"],
)
def test_models_that_mix_their_tokens_otherwise_are_found_out(model, reason):
    assert reason in why_only_padded(model())


def test_weights_that_are_not_finite_are_no_good_sign():
    model = random_model("qwen2")
    with torch.no_grad():
        model.model.norm.weight[0] = float("nan")
    assert "results for a forest differ" in why_only_padded(model)
