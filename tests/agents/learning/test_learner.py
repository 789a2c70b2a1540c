"""Learner: updates against the paper's equations written down again, one row and one token at a time."""

import copy
from dataclasses import replace

import pytest
import torch
from transformers import Gemma2Config, Gemma2ForCausalLM, Qwen2Config, Qwen2ForCausalLM

from tests.agents.learning.layouts import rows
from tests.agents.learning.layouts.rows import random_model
from tests.agents.learning.test_batch import episode, turn
from tests.agents.tiny import random_qwen2
from tests.conftest import deep
from tsr_gym import ConfigError, TrainingDiverged
from tsr_gym.agents.episodes.trajectory import Group
from tsr_gym.agents.learning.advantages import tree_backup, tree_value_targets, turn_gae, turn_value_targets
from tsr_gym.agents.learning.advantages.choose_estimator import estimated
from tsr_gym.agents.learning.batch import Edges, collate
from tsr_gym.agents.learning.learner import Learner
from tsr_gym.agents.learning.losses import whiten
from tsr_gym.agents.learning.settings import LearnConfig, Objective
from tsr_gym.agents.models.critic import Critic

TEMPERATURE = 0.7


@pytest.fixture(scope="module")
def untrained(tokenizer):
    return random_qwen2(tokenizer, context=64)


@pytest.fixture
def model(untrained):
    return copy.deepcopy(untrained)


@pytest.fixture
def critic(untrained):
    critic = Critic(copy.deepcopy(untrained.model))
    torch.manual_seed(1)
    torch.nn.init.normal_(critic.head.weight, std=0.05)
    return critic


@pytest.mark.parametrize(
    ("estimate", "error", "message"),
    [
        (lambda batch: None, ConfigError, "wanted advantages .* got None"),
        (lambda batch: torch.ones(len(batch.sampled)), ConfigError, r"wanted advantages .* got shape"),
        (lambda batch: torch.full_like(batch.rewards, torch.nan), TrainingDiverged, "wanted finite advantages"),
        (lambda batch: torch.ones_like(batch.rewards), ConfigError, "0 where nothing was sampled"),
    ],
)
def test_an_estimator_that_returns_nonsense_is_named(model, estimate, error, message):
    with pytest.raises(error, match=rf"the estimator tests\.agents\.learning\.test_learner:<lambda>: .*{message}"):
        estimated(estimate, make_batch(model))


def row_logprobs(model, ids, temperature=TEMPERATURE):
    """Return the log-probabilities of every next token of one row, `[T - 1, V]`."""
    logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, :-1]
    return torch.log_softmax(logits / temperature, dim=-1)


def make_batch(model, spread=0.3, rewards=(1.0, 0.5, -0.5, 2.0)):
    """Return two groups of episodes of one row and of two, sampled by a policy that was a bit other."""
    first = [turn([1, 2], [30, 31, 32], 0.0, 0, 0, 0), turn([1, 2, 30, 31, 32, 9], [33], rewards[0], 0)]
    second = [turn([1, 2], [34], 0.25, 0), turn([8], [35, 36], rewards[1], 0, 0)]
    groups = [
        Group(0, (episode(*first), episode(*second))),
        Group(1, (episode(turn([5, 6, 7], [40, 41], rewards[2], 0, 0)), episode(turn([5], [42], rewards[3], 0)))),
    ]
    batch = collate(groups)
    draw = torch.Generator().manual_seed(2)
    old = torch.zeros(batch.rewards.shape)
    for row in range(len(batch.ids)):
        ids = batch.ids[row][batch.present[row]].tolist()
        with torch.no_grad():
            chances = row_logprobs(model, ids)
        for column in batch.sampled[row].nonzero()[:, 0].tolist():
            old[row, column] = chances[column - 1, ids[column]] + spread * torch.randn((), generator=draw)
    return replace(batch, old_logprobs=old)


# Returns 1 and 0.75, of mean 0.875 and deviation 0.125 sqrt 2; and -0.5 and 2, of mean 0.75 and 1.25 sqrt 2.
GRPO_BY_HAND = [2**-0.5, -(2**-0.5), -(2**-0.5), 2**-0.5]


def surrogate(model, batch, advantage, objective):
    """Return Eq. 13 with its clip, and the mean entropy, token by token, as a tensor each."""
    gains, entropies = [], []
    for number in range(batch.num_trajectories):
        gain, entropy = [], []
        for row in (batch.trajectory == number).nonzero()[:, 0].tolist():
            ids = batch.ids[row][batch.present[row]].tolist()
            chances = row_logprobs(model, ids)
            for column in batch.sampled[row].nonzero()[:, 0].tolist():
                ratio = torch.exp(chances[column - 1, ids[column]] - batch.old_logprobs[row, column])
                bounded = torch.clamp(ratio, 1 - objective.clip_low, 1 + objective.clip_high)
                worth = advantage(number, row, column)
                gain.append(torch.minimum(ratio * worth, bounded * worth))
                entropy.append(-(chances[column - 1].exp() * chances[column - 1]).sum())
        gains.append(gain)
        entropies.append(entropy)
    if objective.aggregation == "sequence":
        mean = [sum(part) / len(part) for part in gains], [sum(part) / len(part) for part in entropies]
    else:
        mean = [token for part in gains for token in part], [token for part in entropies for token in part]
    return sum(mean[0]) / len(mean[0]), sum(mean[1]) / len(mean[1])


def by_hand(model, objective, *, clip):
    """Return the clipped gradient of minus an objective, by name, and its norm before."""
    parameters = dict(model.named_parameters())
    gradients = torch.autograd.grad(-objective, list(parameters.values()), allow_unused=True)
    filled = [torch.zeros_like(p) if g is None else g for p, g in zip(parameters.values(), gradients, strict=True)]
    norm = torch.sqrt(sum((gradient**2).sum() for gradient in filled)).item()
    scale = min(1.0, clip / (norm + 1e-6))
    return {name: gradient * scale for name, gradient in zip(parameters, filled, strict=True)}, norm


def plain(learner):
    """Let a learner descend by its bare gradient, so that the size of it shows."""
    learner.optimizers = {
        name: torch.optim.SGD([p for group in old.param_groups for p in group["params"]], lr=1.0)
        for name, old in learner.optimizers.items()
    }
    return learner


def check_moved(model, before, expected):
    for name, gradient in expected.items():
        torch.testing.assert_close(before[name] - model.state_dict()[name], gradient, atol=2e-5, rtol=1e-3, msg=name)


def state_of(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


CONFIG = LearnConfig(algorithm="grpo", objective=Objective(entropy=0.05), minibatch=99, microbatch_tokens=1)
NO_BONUS = Objective(entropy=0.0)


@pytest.mark.parametrize("aggregation", ["sequence", "token"])
@pytest.mark.parametrize("grad_clip", [0.5, 1e6])
def test_a_grpo_update_follows_the_papers_gradient(model, aggregation, grad_clip):
    config = replace(CONFIG, objective=Objective(entropy=0.05, aggregation=aggregation), grad_clip=grad_clip)
    batch, before = make_batch(model), state_of(model)
    objective, entropy = surrogate(model, batch, lambda number, row, column: GRPO_BY_HAND[number], config.objective)
    expected, norm = by_hand(model, objective + 0.05 * entropy, clip=grad_clip)
    result = plain(Learner(model, None, config, temperature=TEMPERATURE)).update(batch)
    assert result["policy_loss"] == pytest.approx(-objective.item(), abs=1e-5)
    assert result["entropy"] == pytest.approx(entropy.item(), abs=1e-4)
    assert result["grad_norm"] == pytest.approx(norm, rel=1e-4)
    assert norm > 0.5
    # With this spread some ratios are outside of the clip; otherwise the test would not cover it.
    assert 0 < result["clip_fraction"] < 1
    check_moved(model, before, expected)


def test_a_ppo_update_follows_whitened_gae_and_the_critic_its_targets(model, critic):
    config = replace(CONFIG, algorithm="ppo", value_clip=0.5)
    batch, before, critic_before = make_batch(model), state_of(model), state_of(critic)
    # gamma = lambda = 1: the return to come minus the value; trajectory 1 has two rows.
    to_come = {0: [1.0, 1.0, 1.0, 1.0], 1: [0.75, 0.5, 0.5], 2: [-0.5, -0.5], 3: [2.0]}
    places = {number: [] for number in to_come}
    for row, column in batch.sampled.nonzero().tolist():
        places[int(batch.trajectory[row])].append((row, column))
    values = {}
    for row in range(len(batch.ids)):
        ids = batch.ids[row][batch.present[row]]
        hidden = critic.backbone(input_ids=ids[None], use_cache=False).last_hidden_state[0]
        for column in batch.sampled[row].nonzero()[:, 0].tolist():
            values[row, column] = (hidden[column - 1] @ critic.head.weight[0]) + critic.head.bias[0]
    target = {place: to_come[n][k] for n, result in places.items() for k, place in enumerate(result)}
    raw = {place: target[place] - values[place].item() for place in target}
    mean = sum(raw.values()) / 10
    deviation = (sum((value - mean) ** 2 for value in raw.values()) / 10) ** 0.5
    white = {place: (value - mean) / deviation for place, value in raw.items()}
    objective, entropy = surrogate(model, batch, lambda number, *place: white[place], config.objective)
    expected, _ = by_hand(model, objective + 0.05 * entropy, clip=1.0)
    # The critic has not moved yet, so its clip does not bind: half the squared error, trajectories with equal weights.
    errors = [sum((values[p] - target[p]) ** 2 for p in result) / len(result) for result in places.values()]
    value_loss = 0.5 * sum(errors) / 4
    critic_expected, critic_norm = by_hand(critic, -value_loss, clip=1.0)
    result = plain(Learner(model, critic, config, temperature=TEMPERATURE)).update(batch)
    assert result["policy_loss"] == pytest.approx(-objective.item(), abs=1e-5)
    assert result["value_loss"] == pytest.approx(value_loss.item(), abs=1e-5)
    assert result["critic_grad_norm"] == pytest.approx(critic_norm, rel=1e-3)
    check_moved(model, before, expected)
    check_moved(critic, critic_before, critic_expected)


def test_the_step_is_adamws(model):
    config = replace(CONFIG, lr=0.01, weight_decay=0.1, objective=NO_BONUS)
    batch, before = make_batch(model), state_of(model)
    objective, _ = surrogate(model, batch, lambda number, row, column: GRPO_BY_HAND[number], config.objective)
    gradient, _ = by_hand(model, objective, clip=1.0)
    Learner(model, None, config, temperature=TEMPERATURE).update(batch)
    for name, value in model.named_parameters():
        # The first step of Adam: both moments are corrected to the gradient and its square.
        step = gradient[name] / (gradient[name].abs() + 1e-8)
        expected = before[name] * (1 - 0.01 * 0.1) - 0.01 * step
        clear = gradient[name].abs() > 1e-6
        assert clear.any()
        torch.testing.assert_close(value.detach()[clear], expected[clear], atol=1e-4, rtol=0)
        # A parameter that no token touched only decays.
        untouched = gradient[name] == 0
        torch.testing.assert_close(value.detach()[untouched], before[name][untouched] * (1 - 0.001))


@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
def test_the_size_of_the_microbatches_does_not_matter(untrained, critic, algorithm):
    def after(microbatch):
        model, judge = copy.deepcopy(untrained), copy.deepcopy(critic) if algorithm == "ppo" else None
        config = replace(CONFIG, algorithm=algorithm, microbatch=microbatch)
        result = plain(Learner(model, judge, config, temperature=TEMPERATURE)).update(make_batch(model))
        return result, model.state_dict() | ({} if judge is None else judge.state_dict())

    result, whole = after(100)
    for microbatch in (1, 2, 4):
        others, parts = after(microbatch)
        assert others == pytest.approx(result, rel=1e-4, abs=1e-6)
        for name, value in whole.items():
            torch.testing.assert_close(parts[name], value, atol=1e-5, rtol=1e-4, msg=name)
    # Short rows are read together up to the tokens of a pass.
    config = LearnConfig(microbatch=8, microbatch_tokens=1000)
    assert [config.rows_per_pass(longest) for longest in (20, 125, 126, 4000)] == [50, 8, 8, 8]


@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
def test_the_same_update_twice_is_the_same_to_the_last_bit(untrained, critic, algorithm):
    def after():
        model, judge = copy.deepcopy(untrained), copy.deepcopy(critic) if algorithm == "ppo" else None
        learner = Learner(model, judge, replace(CONFIG, algorithm=algorithm, minibatch=2, epochs=2, microbatch=2))
        result = [learner.update(make_batch(untrained), seed=seed) for seed in (5, 6)]
        return result, model.state_dict()

    (left, first), (two, second) = after(), after()
    assert left == two
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_minibatches_hold_whole_trajectories_and_an_epoch_every_one_of_them(untrained):
    class Seen(torch.optim.SGD):
        def step(self, closure=None):
            steps.append(1)

    steps = []
    for minibatch, epochs, expected in ((2, 3, 6), (1, 1, 4), (3, 2, 2), (99, 4, 4)):
        learner = Learner(untrained, None, replace(CONFIG, minibatch=minibatch, epochs=epochs))
        learner.optimizers = {"policy": Seen(untrained.parameters(), lr=0.0)}
        losses = learner.update(make_batch(untrained))["policy_loss"]
        assert len(steps) == expected
        steps.clear()
        # Nothing moved, so the mean over the steps of an epoch is the loss of the whole: none twice, none missing.
        if minibatch != 3:
            whole = Learner(untrained, None, CONFIG)
            whole.optimizers = learner.optimizers
            assert losses == pytest.approx(whole.update(make_batch(untrained))["policy_loss"], abs=1e-6)
            steps.clear()


def test_as_many_steps_are_taken_as_were_asked_for_and_none_is_empty(untrained):
    # Four trajectories: by their size, as another number of them, and in a fixed number of steps.
    for settings, as_many, expected in (
        ({"minibatch": 1}, None, 4),
        ({"minibatch": 1}, 2, 2),
        ({"minibatch": 2}, 1, 1),
        ({"minibatch": 1, "steps": 3}, None, 3),
        ({"minibatch": 1, "steps": 1}, 2, 1),
        ({"minibatch": 99, "steps": 2, "epochs": 2}, None, 4),
        ({"steps": 9}, None, 4),
    ):
        learner = Learner(copy.deepcopy(untrained), None, replace(CONFIG, **settings))
        metrics = learner.update(make_batch(untrained), as_many=as_many)
        taken = {int(state["step"]) for state in learner.optimizers["policy"].state.values()}
        assert {metrics["optimizer_steps"]} == taken == {expected}


def test_ratios_move_by_updates_and_old_log_probabilities_can_be_computed_again(model):
    batch = make_batch(model, spread=0.0)
    learner = Learner(model, None, replace(CONFIG, lr=0.05), temperature=TEMPERATURE)
    assert learner.update(batch)["clip_fraction"] == 0.0
    assert learner.update(batch)["clip_fraction"] > 0.0
    # The sampler's are nonsense; the learner's own make every ratio 1, and the loss minus the mean advantage: 0.
    batch = make_batch(model, spread=5.0)
    learner = Learner(model, None, replace(CONFIG, old_logprobs="learner", lr=1e-9), temperature=TEMPERATURE)
    result = learner.update(batch)
    assert result["clip_fraction"] == 0.0
    assert result["policy_loss"] == pytest.approx(0.0, abs=1e-6)


def test_without_advantage_and_bonus_nothing_moves(model):
    batch, before = make_batch(model, rewards=(1.0, 0.75, 2.0, 2.0)), state_of(model)
    result = plain(Learner(model, None, replace(CONFIG, objective=NO_BONUS), temperature=TEMPERATURE)).update(batch)
    assert result["grad_norm"] == 0.0
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def optimizer_state(learner):
    states = (state for each in learner.optimizers.values() for state in each.state_dict()["state"].values())
    return [value.clone() for state in states for value in state.values()]


NAN = float("nan")


@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
@pytest.mark.parametrize("what", ["reward", "infinite reward", "old log-probability"])
def test_an_update_that_is_not_finite_is_refused_and_nothing_has_changed(model, critic, algorithm, what):
    critic = critic if algorithm == "ppo" else None
    learner = Learner(model, critic, replace(CONFIG, algorithm=algorithm, lr=0.01), temperature=TEMPERATURE)
    batch = make_batch(model)
    learner.update(batch)
    parameters = state_of(model) | ({} if critic is None else state_of(critic))
    moments = optimizer_state(learner)
    place = tuple(batch.sampled.nonzero()[2].tolist())
    bad = replace(batch, rewards=batch.rewards.clone(), old_logprobs=batch.old_logprobs.clone())
    if what == "old log-probability":
        bad.old_logprobs[place] = NAN
    else:
        bad.rewards[place] = NAN if what == "reward" else float("inf")
    facts = r"policy_loss.* became NaN or infinite, and the step|wanted finite advantages"
    with pytest.raises(TrainingDiverged, match=facts):
        learner.update(bad)
    now = model.state_dict() | ({} if critic is None else critic.state_dict())
    assert all(torch.equal(parameters[name], value) for name, value in now.items())
    assert all(torch.equal(old, new) for old, new in zip(moments, optimizer_state(learner), strict=True))
    # And it continues as if nothing had happened.
    assert all(parameter.grad is None for parameter in model.parameters())
    learner.update(batch)


def test_an_estimator_of_ones_own_takes_the_place_of_the_algorithms(model):
    batch = make_batch(model, spread=0.0)
    settings = {"temperature": TEMPERATURE, "estimator": lambda batch: 3.0 * batch.sampled}
    learner = Learner(model, None, replace(CONFIG, lr=1e-9), **settings)
    assert learner.update(batch)["policy_loss"] == pytest.approx(-3.0, abs=1e-5)


def test_the_weights_for_an_engine_name_a_tied_head_as_well(model):
    names = dict(Learner(model, None, CONFIG).weights())
    assert "lm_head.weight" in names
    assert names["lm_head.weight"].data_ptr() == names["model.embed_tokens.weight"].data_ptr()
    assert "lm_head.weight" not in dict(model.named_parameters())


RECOMPUTED = {"logits": "parts", "recompute": True}
FEW_WAYS = [("padded", {}, 3), ("packed", {}, 1), ("shared", {}, 8), ("shared", RECOMPUTED, 3)]
ALL_WAYS = [
    (layout, more, microbatch)
    for layout in ("padded", "packed", "shared", "auto")
    for more in ({}, {"logits": "parts"}, {"recompute": True})
    for microbatch in (1, 3, 8)
]


def six_steps(settings, microbatch, *, layout="padded", **case):
    """Return all parameters and the metrics after two updates of three steps on trees."""
    policy = random_model("qwen2")
    reference, judge = random_model("qwen2", seed=1), None
    if case.get("algorithm") == "ppo":
        judge = Critic(random_model("qwen2", seed=2).model)
        torch.nn.init.constant_(judge.head.weight, 0.05)
    config = replace(CONFIG, microbatch=microbatch, lr=1e-3, minibatch=3, **case, **settings)
    learner = Learner(policy, judge, config, reference=reference)
    for optimizer in learner.optimizers.values():
        for group in optimizer.param_groups:
            # With the usual 1e-8, rounding decides where gradients are zero but for rounding.
            group["eps"] = 1e-4
    batch = rows.batch_of(rows.random_groups(0, trees=1, turns=2), policy)
    solved = batch.trajectory % 2 == 0
    batch = replace(batch, solved=solved, counts=1.0 + solved, layout=layout)
    metrics = [learner.update(batch, seed=seed) for seed in range(2)]
    parameters = [*policy.parameters(), *([] if judge is None else judge.parameters())]
    return torch.cat([parameter.detach().flatten() for parameter in parameters]), metrics


TERMS = {"kl_weight": 0.1, "imitation": 0.1, "searched_weight": 0.5, "clip_low": 0.01, "clip_high": 0.01}
EVERYTHING = Objective(ratio="sequence_mean", mismatch="truncate", mismatch_level="sequence", **TERMS)
CASES = pytest.mark.parametrize(
    "case", [{}, {"algorithm": "ppo"}, {"objective": EVERYTHING, "old_logprobs": "learner"}], ids=["grpo", "ppo", "all"]
)


@CASES
@pytest.mark.parametrize("ways", [FEW_WAYS, deep(ALL_WAYS)], ids=["few", "every"])
def test_how_rows_are_read_does_not_matter(case, ways):
    wanted, metrics = six_steps({}, 100, **case)
    start = torch.cat([parameter.detach().flatten() for parameter in random_model("qwen2").parameters()])
    assert (wanted[: len(start)] - start).norm() > 0.1
    assert 0 < metrics[-1]["clip_fraction"] < 1
    for layout, settings, microbatch in ways:
        result, also_told = six_steps(settings, microbatch, layout=layout, **case)
        assert (result - wanted).norm() / wanted.norm() < 1e-5, (layout, settings, microbatch)
        for left, other in zip(also_told, metrics, strict=True):
            assert left == pytest.approx(other, rel=1e-3, abs=1e-5), (layout, settings, microbatch)


def test_a_reference_holds_the_policy_back():
    def distance(weight):
        policy, reference = random_model("qwen2"), random_model("qwen2")
        start = [parameter.clone() for parameter in reference.parameters()]
        objective = Objective(kl_weight=weight, entropy=0.0)
        learner = Learner(policy, None, replace(CONFIG, lr=0.01, objective=objective), reference=reference)
        batch = rows.batch_of(rows.random_groups(0), policy, spread=0.0)
        divergences = [learner.update(batch)["kl"] for _ in range(6)]
        # It begins at the reference, which itself never moves.
        assert divergences[0] == pytest.approx(0.0, abs=1e-6)
        assert all(torch.equal(*pair) for pair in zip(reference.parameters(), start, strict=True))
        return divergences[-1]

    assert 0 < distance(10.0) < 0.5 * distance(1e-6)


def test_the_samplers_probabilities_correct_the_learners():
    policy = random_model("qwen2")
    batch = rows.batch_of(rows.random_groups(0), policy, spread=0.0)
    # The sampler's probability of every token is e^-0.5 times the learner's.
    batch = replace(batch, old_logprobs=batch.old_logprobs - 0.5 * batch.sampled)
    objective = Objective(mismatch="truncate", mismatch_high=1.2, entropy=0.0)
    config = replace(CONFIG, old_logprobs="learner", lr=1e-9, objective=objective)
    learner = Learner(policy, None, config, estimator=lambda batch: 1.0 * batch.sampled)
    result = learner.update(batch)
    assert result["mismatch_kl"] == pytest.approx(-0.5, abs=1e-4)
    assert result["mismatch_cut"] == pytest.approx(1.0, abs=1e-5)
    assert result["policy_loss"] == pytest.approx(-1.2, abs=1e-4)


def test_a_model_that_reads_only_padded_rows_is_recognised():
    torch.manual_seed(0)
    capped = Gemma2ForCausalLM(Gemma2Config(**rows.SIZES, head_dim=8, attn_implementation="eager")).eval()
    learner, batch = Learner(capped, None, CONFIG), rows.batch_of(rows.random_groups(0), capped)
    with pytest.raises(ConfigError, match=r"cannot read shared rows: .*capped scores.*use layout padded or auto"):
        learner.update(replace(batch, layout="shared"))
    assert learner.readable("auto") == "padded"
    learner.update(replace(batch, layout="auto"))


def test_a_learner_is_refused_where_logits_are_unknown_or_a_reference_is_missing(model):
    class Odd(Qwen2ForCausalLM):
        def forward(self, **given):
            result = super().forward(**given)
            result.logits = result.logits**3
            return result

    with pytest.raises(ConfigError, match="logits=whole"):
        Learner(Odd(Qwen2Config(**rows.SIZES)), None, replace(CONFIG, logits="parts"))
    with pytest.raises(ConfigError, match="wanted a reference policy"):
        Learner(model, None, replace(CONFIG, objective=Objective(kl_weight=0.1)))


def test_after_an_update_the_model_is_as_it_was():
    policy = random_model("qwen2")
    own = policy.config._attn_implementation
    learner = Learner(policy, None, replace(CONFIG, recompute=True))
    batch = replace(rows.batch_of(rows.random_groups(0), policy), layout="shared")
    learner.update(batch)
    bad = replace(batch, old_logprobs=batch.old_logprobs * NAN)
    with pytest.raises(TrainingDiverged):
        learner.update(bad)
    assert policy.config._attn_implementation == own
    assert not any(module.training for module in policy.modules())
    ids = torch.tensor([[1, 2, 3]])
    assert policy(input_ids=ids, use_cache=True).past_key_values.get_seq_length() == 3


@pytest.mark.parametrize("skip", [False, True])
def test_a_step_whose_gradient_spikes_is_reported_and_can_be_skipped(model, skip):
    batch = make_batch(model, spread=0.0)
    learner = plain(Learner(model, None, replace(CONFIG, lr=0.0, skip_spikes=skip), temperature=TEMPERATURE))
    for optimizer in learner.optimizers.values():
        optimizer.param_groups[0]["lr"] = 0.0
    metrics = [learner.update(batch) for _ in range(learner.spikes.warm_up + 1)]
    assert all(left["spikes"] == left["skipped"] == 0.0 for left in metrics)
    learner.optimizers["policy"].param_groups[0]["lr"] = 1e-3
    before, remembered = state_of(model), learner.gradients
    # The advantages of GRPO do not grow with rewards; a far larger entropy bonus makes the gradient grow.
    learner.objective = Objective(entropy=1e4)
    result = learner.update(batch)
    assert (result["spikes"], result["skipped"]) == (1.0, float(skip))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items()) is skip
    assert (learner.gradients.norms == remembered.norms) is skip


def test_a_turns_critic_learns_what_turns_are_worth(model, critic):
    torch.nn.init.normal_(critic.head.weight, std=0.3)
    config = replace(CONFIG, algorithm="ppo", estimator="turn_gae(lam=0.9)")
    material = Learner(model, critic, config, temperature=TEMPERATURE)._prepare(make_batch(model))
    batch, raw = material.batch, turn_gae(material.batch, lam=0.9)
    torch.testing.assert_close(material.targets, turn_value_targets(batch, raw))
    torch.testing.assert_close(material.advantages, whiten(raw, batch.sampled))


def test_turns_that_are_compared_with_a_critic_keep_their_size(model, critic):
    torch.nn.init.normal_(critic.head.weight, std=0.3)
    learner = Learner(model, critic, replace(CONFIG, algorithm="ppo", estimator="tree_backup"), temperature=TEMPERATURE)
    batch = make_batch(model)
    material = learner._prepare(replace(batch, finished=torch.zeros_like(batch.finished)))
    torch.testing.assert_close(material.advantages, tree_backup(material.batch, unfinished="value"))
    torch.testing.assert_close(material.targets, tree_value_targets(material.batch, material.advantages))
    assert material.targets.abs().max() > 0


@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
@pytest.mark.parametrize("by", ["searched_weight", "counts"])
def test_trajectories_without_policy_gradient_take_no_part_in_the_baseline_of_others(algorithm, by):
    """Searched trajectories that earn 5 more and count 0 leave an update as if they were not there."""
    whole = rows.batch_of(rows.random_groups(0), random_model("qwen2"))
    searched = whole.trajectory % 3 == 0
    ends = torch.zeros(whole.ids.shape, dtype=torch.float64)
    ends[searched, whole.present.sum(dim=1)[searched] - 1] = 5.0
    whole = replace(whole, rewards=whole.rewards + ends, searched=searched)
    if by == "counts":
        whole = replace(whole, counts=1.0 - searched.float(), searched=torch.zeros_like(searched))

    def updated(batch):
        policy, judge = random_model("qwen2"), None
        if algorithm == "ppo":
            judge = Critic(random_model("qwen2", seed=2).model)
            torch.nn.init.constant_(judge.head.weight, 0.05)
        config = replace(CONFIG, algorithm=algorithm, objective=Objective(entropy=0.0, searched_weight=0.0))
        metrics = plain(Learner(policy, judge, config)).update(batch)
        return torch.cat([parameter.detach().flatten() for parameter in policy.parameters()]), metrics

    (result, metrics), (wanted, also_told) = updated(whole), updated(whole.rows((~searched).nonzero()[:, 0]))
    assert metrics == pytest.approx(also_told, abs=1e-6)
    assert (result - wanted).norm() <= 1e-5 * wanted.norm()


def test_what_searches_tried_changes_credit_and_is_not_learned_from():
    """First turns of a group are moves of one state; which of them succeeded is known from edges alone."""
    whole = rows.batch_of(rows.random_groups(0), random_model("qwen2"))
    first = whole.turn == 0
    state = torch.where(first, whole.group[:, None], -1)
    move = torch.where(first, whole.trajectory[:, None], -1)
    tries = torch.arange(whole.num_trajectories)
    of_group = torch.stack([whole.group[whole.trajectory == left][0] for left in tries])
    solved = tries % 2 == 0
    edges = Edges(tries, of_group, torch.full_like(tries, -1), torch.ones_like(tries), solved, torch.ones_like(solved))
    searched = whole.trajectory % 3 == 0
    whole = replace(whole, rewards=torch.zeros_like(whole.rewards), state=state, move=move, searched=searched)
    config = replace(CONFIG, algorithm="grpo", estimator="graph")
    config = replace(config, objective=Objective(entropy=0.0, searched_weight=0.0))

    def updated(batch, edges):
        policy = random_model("qwen2")
        metrics = plain(Learner(policy, None, config)).update(replace(batch, edges=edges))
        return torch.cat([parameter.detach().flatten() for parameter in policy.parameters()]), metrics["grad_norm"]

    naive = whole.rows((~searched).nonzero()[:, 0])
    (result, norm), (wanted, _) = updated(whole, edges), updated(naive, edges)
    assert norm > 0
    assert (result - wanted).norm() <= 1e-5 * wanted.norm()
    # No trajectory has a reward, so that without a success among the edges there is nothing to learn.
    assert updated(whole, edges._replace(solved=torch.zeros_like(solved)))[1] == 0


def test_where_no_trajectory_has_a_policy_gradient_imitation_still_learns(model, critic):
    objective = Objective(entropy=0.0, searched_weight=0.0, imitation=0.1)
    batch = make_batch(model)
    batch = replace(batch, searched=torch.ones_like(batch.searched), solved=torch.ones_like(batch.solved))
    for algorithm, judge in (("grpo", None), ("ppo", critic)):
        learner = Learner(copy.deepcopy(model), judge, replace(CONFIG, algorithm=algorithm, objective=objective))
        result = learner.update(batch)
        assert result["policy_loss"] == 0.0
        assert result["grad_norm"] > 0
