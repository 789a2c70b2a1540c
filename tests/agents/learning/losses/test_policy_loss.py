"""The loss of an objective, its ratios, clips and divergences: values by hand, gradients as policy gradients."""

from dataclasses import replace
from math import exp, inf, log

import pytest
import torch

from tests.agents.learning.test_batch import episode, turn
from tsr_gym.agents.episodes.trajectory import Group
from tsr_gym.agents.learning.batch import collate
from tsr_gym.agents.learning.losses import (
    Given,
    StepWeights,
    cispo_gains,
    clipped_value_loss,
    kl_estimate,
    log_ratios,
    mismatch_weights,
    per_token_gradient,
    policy_loss,
    ppo_gains,
    step_weights,
    whiten,
)
from tsr_gym.agents.learning.settings import Objective

# A trajectory of two turns, two tokens and one, and a trajectory of one token; all in one flat layout.
TURN, SEQUENCE = torch.tensor([0, 0, 1, 2]), torch.tensor([0, 0, 0, 1])
WEIGHTS = torch.tensor([0.1, 0.2, 0.3, 0.4])
OLD = torch.tensor([-1.0, -2.0, -0.5, -1.5])
ENTROPY = torch.tensor([1.0, 2.0, 0.0, 0.5])


def given(advantages, **more):
    return Given(OLD, torch.tensor(advantages), WEIGHTS, TURN, SEQUENCE, **more)


def now(*ratios):
    return (OLD + torch.tensor([log(ratio) for ratio in ratios])).requires_grad_()


def test_by_default_it_is_the_papers_surrogate_with_an_entropy_bonus():
    logprobs = now(1.5, 0.9, 0.5, 1.0)
    result = policy_loss(Objective(), logprobs, ENTROPY, given([1.0, -1.0, -2.0, 3.0]))
    # 0.1 * 1.28 - 0.2 * 0.9 - 0.3 * 1.6 + 0.4 * 3, and the mean entropy 0.1 + 0.4 + 0.2.
    surrogate = -(0.128 - 0.18 - 0.48 + 1.2)
    assert result.parts["policy_loss"].item() == pytest.approx(surrogate, abs=1e-6)
    assert result.parts["entropy"].item() == pytest.approx(0.7)
    assert result.parts["clip_fraction"].item() == pytest.approx(0.4)
    assert result.loss.item() == pytest.approx(surrogate - 0.001 * 0.7, abs=1e-6)
    assert result.parts.keys() == {"policy_loss", "entropy", "clip_fraction"}
    assert not any(part.requires_grad for part in result.parts.values())


def test_ratios_by_turns_are_products_and_by_sequences_geometric_means():
    # Turn 0 has the ratio 1.5 * 0.8 = 1.2, turn 1 has 0.5, the other trajectory 2.
    ratios = now(1.5, 0.8, 0.5, 2.0)
    result = policy_loss(Objective(ratio="turn", entropy=0.0), ratios, ENTROPY, given([1.0, 1.0, -1.0, 1.0]))
    assert result.loss.item() == pytest.approx(-(0.3 * 1.2 - 0.3 * 0.8 + 0.4 * 1.28), abs=1e-6)
    assert result.parts["clip_fraction"].item() == pytest.approx(0.7)
    means = Objective(ratio="sequence_mean", entropy=0.0)
    result = policy_loss(means, now(2.0, 2.0, 0.25, 1.2), ENTROPY, given([1.0, 1.0, 1.0, 2.0]))
    assert result.loss.item() == pytest.approx(-(0.6 * 1.0 + 0.4 * 2.4), abs=1e-6)


def gradient(objective, logprobs, advantages):
    policy_loss(objective, logprobs, ENTROPY, given(advantages)).loss.backward()
    return logprobs.grad.tolist()


def test_before_the_first_step_every_ratio_has_the_policy_gradient():
    """At ratio 1 a token's pull is weight times advantage; a product over a turn gives each token the turn's sum."""
    worth = [2.0, 2.0, -1.0, 3.0]
    by_token = [-0.2, -0.4, 0.3, -1.2]
    for ratio in ("token", "turn", "turn_mean", "sequence", "sequence_mean"):
        free = Objective(ratio=ratio, gradient="token", entropy=0.0)
        assert gradient(free, now(1, 1, 1, 1), worth) == pytest.approx(by_token, abs=1e-6)
    assert gradient(Objective(surrogate="cispo", entropy=0.0), now(1, 1, 1, 1), worth) == pytest.approx(by_token)
    summed = gradient(Objective(ratio="turn", entropy=0.0), now(1, 1, 1, 1), worth)
    assert summed == pytest.approx([-0.6, -0.6, 0.3, -1.2], abs=1e-6)
    mean = gradient(Objective(ratio="turn_mean", entropy=0.0), now(1, 1, 1, 1), worth)
    assert mean == pytest.approx([-0.3, -0.3, 0.3, -1.2], abs=1e-6)


def test_the_divergence_from_a_reference_is_a_penalty():
    reference = OLD + torch.tensor([0.1, -0.2, 0.0, 0.3])
    x = reference - OLD
    for kind, values in (("k1", -x), ("k2", x**2 / 2), ("k3", x.exp() - 1 - x)):
        objective = Objective(entropy=0.0, kl=kind, kl_weight=0.5)
        result = policy_loss(objective, now(1, 1, 1, 1), ENTROPY, given([0.0] * 4, reference_logprobs=reference))
        assert result.parts["kl"].item() == pytest.approx((WEIGHTS * values).sum().item(), abs=1e-6)
        assert result.loss.item() == pytest.approx(0.5 * result.parts["kl"].item(), abs=1e-7)


def test_a_sampler_that_was_not_the_learner_is_corrected_for():
    # The learner's old probabilities are 1.5, 0.5, 4 and 1 times those of the sampler.
    sampler = OLD - torch.tensor([log(1.5), log(0.5), log(4.0), 0.0])
    objective = Objective(entropy=0.0, mismatch="truncate", mismatch_high=2.0)
    result = policy_loss(objective, now(1, 1, 1, 1), ENTROPY, given([1.0] * 4, sampler_logprobs=sampler))
    assert result.loss.item() == pytest.approx(-(0.1 * 1.5 + 0.2 * 0.5 + 0.3 * 2.0 + 0.4), abs=1e-6)
    assert result.parts["mismatch_cut"].item() == pytest.approx(0.3)
    expected = -(0.1 * log(1.5) + 0.2 * log(0.5) + 0.3 * log(4.0))
    assert result.parts["mismatch_kl"].item() == pytest.approx(expected, abs=1e-6)
    masked = replace(objective, mismatch="mask")
    cut = policy_loss(masked, now(1, 1, 1, 1), ENTROPY, given([1.0] * 4, sampler_logprobs=sampler))
    assert cut.loss.item() == pytest.approx(-(0.1 * 1.5 + 0.2 * 0.5 + 0.4), abs=1e-6)


def test_imitation_raises_searched_trajectories_and_the_rest_has_the_policy_gradient():
    objective = Objective(entropy=0.0, searched_weight=0.0, imitation=0.1)
    imitated = torch.tensor([0.5, 0.25, 0.25, 0.0])
    logprobs = now(1, 1, 1, 1)
    terms = given([9.0, 9.0, 9.0, 2.0], imitation=imitated)._replace(weights=torch.tensor([0.0, 0.0, 0.0, 1.0]))
    result = policy_loss(objective, logprobs, ENTROPY, terms)
    # 0.5 * 1 + 0.25 * 2 + 0.25 * 0.5.
    assert result.parts["imitation_loss"].item() == pytest.approx(1.125)
    result.loss.backward()
    assert logprobs.grad.tolist() == pytest.approx([-0.05, -0.025, -0.025, -2.0])


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        (Objective(kl_weight=0.1), "kl_weight needs given.reference_logprobs"),
        (Objective(mismatch="mask"), "mismatch needs given.sampler_logprobs"),
        (Objective(imitation=0.1), "imitation needs given.imitation"),
    ],
)
def test_what_a_term_needs_has_to_be_given(objective, message):
    with pytest.raises(ValueError, match=message):
        policy_loss(objective, now(1, 1, 1, 1), ENTROPY, given([1.0] * 4))


def two_groups():
    episodes = [
        episode(turn([1], [2, 3], 0.0, -1.0, -0.5), turn([1, 2, 3, 5], [6], 1.0, -0.25)),
        episode(turn([1], [2], 0.0, -1.0), turn([7], [8, 9], 0.0, -0.5, -0.75)),
        episode(turn([4], [2, 4, 6], 1.0, -1.0, -2.0, -0.125)),
    ]
    batch = collate([Group(0, tuple(episodes[:2])), Group(1, (episodes[2],))])
    return replace(batch, searched=torch.tensor([True, False, False, False]))


@pytest.mark.parametrize("surrogate", ["ppo", "cispo"])
@pytest.mark.parametrize("ratio", ["token", "turn", "turn_mean", "sequence", "sequence_mean"])
def test_parts_and_gradients_add_up_over_micro_batches(surrogate, ratio):
    """Trajectory 1 has two rows; for ratios of sequences they stay together."""
    terms = {"entropy": 0.1, "kl_weight": 0.2, "searched_weight": 0.3, "imitation": 0.7, "dual_clip": 1.6}
    mismatch = {"mismatch": "truncate", "mismatch_level": ratio, "mismatch_high": 1.1}
    objective = Objective(surrogate=surrogate, ratio=ratio, **terms, **mismatch)
    batch, draw = two_groups(), torch.Generator().manual_seed(5)
    advantages, entropy, *others = (torch.randn(batch.ids.shape, generator=draw) for _ in range(5))
    logprobs, sampler, reference = (batch.old_logprobs + 0.3 * other for other in others)
    weights = step_weights(objective, replace(batch, solved=torch.tensor([True, False, False, True])))

    def of(rows):
        rows = torch.tensor(rows)
        part, leaf = batch.rows(rows), logprobs[rows].clone().requires_grad_()
        width = part.ids.shape[1]
        shares = StepWeights(weights.policy[rows, :width], weights.imitation[rows, :width])
        others = {"sampler_logprobs": sampler[rows, :width], "reference_logprobs": reference[rows, :width]}
        terms = Given.of(part, advantages[rows, :width], shares, **others)
        result = policy_loss(objective, leaf[:, :width], entropy[rows, :width], terms)
        result.loss.backward()
        return result, leaf.grad

    whole, gradients = of([0, 1, 2, 3])
    names = ("policy_loss", "entropy", "clip_fraction", "kl", "imitation_loss", "mismatch_kl", "mismatch_cut")
    assert whole.parts.keys() == {*names}
    parts = [[3], [1, 2], [0]] if objective.needs_whole_sequences else [[3], [1], [2], [0]]
    pieces = [of(rows) for rows in parts]
    for name, value in whole.parts.items():
        assert sum(piece.parts[name] for piece, _ in pieces).item() == pytest.approx(value.item(), abs=1e-6), name
    for rows, (_, result) in zip(parts, pieces, strict=True):
        assert torch.allclose(result, gradients[torch.tensor(rows)], atol=1e-6)
    # Nothing outside of what was sampled is pulled at.
    assert torch.count_nonzero(gradients[~batch.sampled]) == 0


@pytest.mark.parametrize("ratio", ["token", "turn", "sequence"])
def test_the_layout_does_not_matter(ratio):
    batch = two_groups()
    draw = torch.Generator().manual_seed(6)
    logprobs = batch.old_logprobs + 0.3 * torch.randn(batch.ids.shape, generator=draw)
    advantages, entropy = (torch.randn(batch.ids.shape, generator=draw) for _ in range(2))
    objective = Objective(ratio=ratio)
    padded = Given.of(batch, advantages, step_weights(objective, batch))
    flat = Given(*(None if part is None else part[batch.sampled] for part in padded))
    of_rows = policy_loss(objective, logprobs, entropy, padded)
    of_tokens = policy_loss(objective, logprobs[batch.sampled], entropy[batch.sampled], flat)
    assert of_rows.loss.item() == pytest.approx(of_tokens.loss.item(), abs=1e-6)


def test_nan_where_nothing_was_sampled_does_not_spread_and_elsewhere_is_seen():
    batch = two_groups()
    holes = torch.where(batch.sampled, batch.old_logprobs, torch.nan).requires_grad_()
    terms = Given.of(batch, torch.ones(batch.ids.shape), step_weights(Objective(), batch))
    terms = terms._replace(old_logprobs=holes.detach(), reference_logprobs=holes.detach())
    result = policy_loss(Objective(kl_weight=0.1), holes, holes.detach(), terms)
    result.loss.backward()
    assert result.loss.isfinite()
    assert holes.grad.isfinite().all()
    broken = batch.old_logprobs.clone()
    broken[0, 1] = torch.nan
    assert policy_loss(Objective(), broken, holes.detach(), terms).parts["policy_loss"].isnan()


def loss_between(new, old, advantages, weights, **clips):
    """Return the loss of tokens that are a turn each; a weight of 0 is a token that was not sampled."""
    weights = torch.tensor(weights)
    units = torch.where(weights > 0, torch.arange(len(weights)), -1)
    given = Given(old, torch.tensor(advantages), weights, units, units)
    return policy_loss(Objective(entropy=0.0, **clips), new, torch.zeros(len(weights)), given)


def loss_of(ratios, advantages, weights, **clips):
    old = torch.full((len(ratios),), -0.7)
    return loss_between(old + torch.tensor([log(ratio) for ratio in ratios]), old, advantages, weights, **clips)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "clipped"),
    [
        (1.0, 2.0, -2.0, 0.0),
        # Between 0.8 and 1.28 nothing is held back, on either side.
        (1.25, 2.0, -2.5, 0.0),
        (0.85, -2.0, 1.7, 0.0),
        # A good token that became likelier than 1.28 times is held at 1.28.
        (1.5, 2.0, -2.56, 1.0),
        # A good token that became unlikelier is not.
        (0.5, 2.0, -1.0, 0.0),
        # A bad token that became unlikelier than 0.8 times is held at 0.8; likelier, it is not.
        (0.5, -2.0, 1.6, 1.0),
        (1.5, -2.0, 3.0, 0.0),
        (3.0, 0.0, 0.0, 0.0),
    ],
)
def test_the_clip_holds_back_only_what_would_go_on_to_gain(ratio, advantage, loss, clipped):
    result = loss_of([ratio], [advantage], [1.0])
    assert result.loss.item() == pytest.approx(loss, abs=1e-6)
    assert result.parts["clip_fraction"].item() == clipped


def test_the_bounds_are_the_ones_that_are_given():
    assert loss_of([2.0], [1.0], [1.0], clip_low=0.1, clip_high=0.5).loss.item() == pytest.approx(-1.5)
    assert loss_of([0.2], [-1.0], [1.0], clip_low=0.1, clip_high=0.5).loss.item() == pytest.approx(0.9)


@pytest.mark.parametrize("value", [float("nan"), inf, -inf])
def test_a_log_probability_that_is_not_finite_is_not_hidden(value):
    assert loss_between(torch.tensor([value]), torch.zeros(1), [0.0], [1.0]).loss.isnan()


# A bad token that became more than 3 times likelier pushes as one of 3 times, and pulls no more. This bound is for bad
# tokens only.
@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "clipped"),
    [(5.0, -2.0, 6.0, 1.0), (2.5, -2.0, 5.0, 0.0), (5.0, 2.0, -2.56, 1.0), (0.5, -2.0, 1.6, 1.0)],
)
def test_dual_clip_bounds_what_a_bad_token_may_cost(ratio, advantage, loss, clipped):
    result = loss_of([ratio], [advantage], [1.0], dual_clip=3.0)
    assert result.loss.item() == pytest.approx(loss, abs=1e-5)
    assert result.parts["clip_fraction"].item() == clipped
    new = torch.tensor([log(ratio)], requires_grad=True)
    ppo_gains(new.exp(), torch.tensor([advantage]), clip_low=0.2, clip_high=0.28, dual_clip=3.0).gain.backward()
    assert new.grad.item() == pytest.approx(0.0 if clipped else ratio * advantage, rel=1e-5)


@pytest.mark.parametrize(
    ("ratio", "advantage", "weight", "clipped"),
    [
        (1.1, 2.0, 1.1, False),
        # Clipped tokens keep a gradient, of the bound's size, in both directions and for both signs of the advantage.
        (1.5, 2.0, 1.28, True),
        (0.5, 2.0, 0.8, True),
        (1.5, -2.0, 1.28, True),
        (0.5, -2.0, 0.8, True),
        # What is worth nothing is not held back.
        (1.5, 0.0, 1.28, False),
    ],
)
def test_cispo_shortens_the_pull_of_a_clipped_token(ratio, advantage, weight, clipped):
    new = torch.tensor([-0.4 + log(ratio)], requires_grad=True)
    result = cispo_gains((new + 0.4).exp(), new, torch.tensor([advantage]), clip_low=0.2, clip_high=0.28)
    assert result.gain.item() == pytest.approx(weight * advantage * new.item(), abs=1e-6)
    assert result.clipped.item() is clipped
    result.gain.backward()
    assert new.grad.item() == pytest.approx(weight * advantage, abs=1e-6)


@pytest.mark.parametrize(
    ("value", "old", "target", "clip", "loss"),
    [
        # Half the squared error where the value has moved less than the clip.
        (1.25, 1.0, 2.0, 0.5, 0.5 * 0.75**2),
        # Moved too far towards the target: its error counts as if it had stopped at 1.5.
        (1.9, 1.0, 2.0, 0.5, 0.5 * 0.5**2),
        # Moved too far away: the real error, which is the larger one.
        (0.0, 1.0, 2.0, 0.5, 0.5 * 2.0**2),
        (1.9, 1.0, 2.0, None, 0.5 * 0.1**2),
    ],
)
def test_a_value_gains_nothing_by_moving_further_than_the_clip(value, old, target, clip, loss):
    result = clipped_value_loss(*(torch.tensor([number]) for number in (value, old, target, 1.0)), clip=clip)
    assert result.item() == pytest.approx(loss, abs=1e-6)


def test_values_count_by_their_weights():
    values, targets = torch.tensor([1.0, 0.0, 50.0]), torch.tensor([0.0, 2.0, 0.0])
    weights = torch.tensor([0.25, 0.75, 0.0])
    assert clipped_value_loss(values, values, targets, weights).item() == pytest.approx(0.5 * (0.25 * 1 + 0.75 * 4))


def test_whitened_values_have_mean_0_and_variance_1_over_the_sampled_tokens():
    values = torch.tensor([[1.0, 3.0, 99.0], [5.0, -99.0, 7.0]])
    sampled = torch.tensor([[True, True, False], [True, False, True]])
    # Mean 4, variance (9 + 1 + 1 + 9) / 4 = 5.
    expected = [-3.0, -1.0, 0.0, 1.0, 0.0, 3.0]
    assert (whiten(values, sampled) * 5**0.5).flatten().tolist() == pytest.approx(expected, abs=1e-5)
    assert whiten(torch.tensor([2.0, 2.0]), torch.tensor([True, True])).tolist() == [0.0, 0.0]


# A sequence of two turns in one row, with a token of the environment between them, and one of a single token.
TURNS = torch.tensor([[0, 0, -1, 1], [2, -1, -1, -1]])
SEQUENCES = torch.tensor([[0, 0, -1, 0], [1, -1, -1, -1]])
# Ratios 2, 3, (nothing), 0.5 and 5.
DIFFERENCES = torch.tensor([[log(2), log(3), 99.0, log(0.5)], [log(5), float("nan"), 0.0, 0.0]])


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("token", [2, 3, 0.5, 5]),
        ("turn", [6, 6, 0.5, 5]),
        ("turn_mean", [6**0.5, 6**0.5, 0.5, 5]),
        ("sequence", [3, 3, 3, 5]),
        ("sequence_mean", [3 ** (1 / 3)] * 3 + [5]),
    ],
)
def test_a_ratio_belongs_to_a_token_a_turn_or_a_sequence(level, expected):
    result = log_ratios(DIFFERENCES, level, turn=TURNS, sequence=SEQUENCES)
    assert result.exp()[TURNS >= 0].tolist() == pytest.approx(expected)
    assert torch.count_nonzero(result[TURNS < 0]) == 0


def test_the_rows_of_a_sequence_need_not_be_one():
    # The same tokens, a row for each turn, and in one flat row.
    rows = torch.tensor([[log(2), log(3)], [log(0.5), 0.0], [log(5), 0.0]])
    turn, sequence = torch.tensor([[0, 0], [1, -1], [2, -1]]), torch.tensor([[0, 0], [0, -1], [1, -1]])
    by_rows = log_ratios(rows, "sequence", turn=turn, sequence=sequence)
    assert by_rows.exp()[turn >= 0].tolist() == pytest.approx([3, 3, 3, 5])
    inside = turn >= 0
    flat = log_ratios(rows[inside], "turn_mean", turn=turn[inside], sequence=sequence[inside])
    assert flat.exp().tolist() == pytest.approx([6**0.5, 6**0.5, 0.5, 5])


def test_with_a_gradient_per_token_it_pulls_at_one_and_has_the_same_value():
    values = DIFFERENCES.nan_to_num().clone().requires_grad_()
    whole = log_ratios(values, "turn", turn=TURNS, sequence=SEQUENCES)
    result = per_token_gradient(whole, values)
    assert torch.equal(result, whole)
    result[0, 0].backward()
    assert values.grad.tolist() == [[1.0, 0.0, 0.0, 0.0], [0.0] * 4]


def test_a_ratio_is_bounded_but_what_is_not_finite_stays_seen():
    values = torch.tensor([50.0, -50.0, float("inf"), -float("inf"), float("nan")])
    units = torch.arange(5)
    result = log_ratios(values, "token", turn=units, sequence=units)
    assert result[:2].tolist() == [20.0, -20.0]
    assert result[2:].isnan().all()
    assert exp(20.0) < float("inf")


SAMPLED = torch.zeros(2, 4)
LEARNER = torch.tensor([[log(1.5), log(0.9), 7.0, log(4.0)], [log(0.25), 7.0, 7.0, 7.0]])


@pytest.mark.parametrize(
    ("mode", "level", "expected"),
    [
        ("truncate", "token", [1.5, 0.9, 2.0, 0.5]),
        ("mask", "token", [1.5, 0.9, 0.0, 0.0]),
        ("truncate", "turn", [1.35, 1.35, 2.0, 0.5]),
        ("mask", "turn", [1.35, 1.35, 0.0, 0.0]),
        ("truncate", "sequence", [2.0, 2.0, 2.0, 0.5]),
        ("mask", "sequence", [0.0, 0.0, 0.0, 0.0]),
        # The geometric mean of 1.5, 0.9 and 4.
        ("mask", "sequence_mean", [5.4 ** (1 / 3)] * 3 + [0.0]),
    ],
)
def test_weights_stay_within_bounds(mode, level, expected):
    units, bounds = {"turn": TURNS, "sequence": SEQUENCES}, {"low": 0.5, "high": 2.0}
    result = mismatch_weights(LEARNER, SAMPLED, **units, mode=mode, level=level, **bounds)
    assert result.weight[TURNS >= 0].tolist() == pytest.approx(expected)
    assert result.weight[TURNS < 0].tolist() == [1.0] * 4
    # No gradient goes through a weight.
    assert not mismatch_weights(LEARNER.clone().requires_grad_(), SAMPLED, **units, mode=mode).weight.requires_grad
    changed = [share in (0.0, 0.5, 2.0) for share in expected]
    assert result.cut[TURNS >= 0].tolist() == changed


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        # Under the policy the token has probability 0.5, under the reference 0.2.
        ("k1", log(0.5 / 0.2)),
        ("k2", log(0.2 / 0.5) ** 2 / 2),
        ("k3", 0.2 / 0.5 - 1 - log(0.2 / 0.5)),
    ],
)
def test_the_estimates_of_one_token(kind, expected):
    result = kl_estimate(torch.tensor([log(0.5)]), torch.tensor([log(0.2)]), kind)
    assert result.item() == pytest.approx(expected, rel=1e-5)
    assert kl_estimate(torch.tensor([-1.0]), torch.tensor([-1.0]), kind).item() == 0.0


def test_k3_is_exact_where_policies_hardly_differ_and_bounded_where_they_do():
    # (e^x - 1) - x cancels in float32; x^2 / 2 is right to the third order.
    result = kl_estimate(torch.tensor([-1.0]), torch.tensor([-1.001]), "k3")
    assert result.item() == pytest.approx(0.001**2 / 2, rel=1e-2)
    far = kl_estimate(torch.tensor([-80.0]), torch.tensor([-0.1]), "k3").item()
    assert far == pytest.approx(exp(20) - 21, rel=1e-5)
    assert kl_estimate(torch.tensor([-float("inf")]), torch.tensor([-0.1]), "k3").isnan()


LOGITS = torch.tensor([0.3, -0.5, 1.0, 0.1], dtype=torch.float64)
REFERENCE = torch.log_softmax(torch.tensor([-0.2, 0.4, 0.5, 0.0], dtype=torch.float64), dim=0)


def gradient_of(make):
    logits = LOGITS.clone().requires_grad_()
    make(torch.log_softmax(logits, dim=0)).backward()
    return logits.grad


def reverse(policy):
    return (policy.exp() * (policy - REFERENCE)).sum()


def test_as_loss_terms_they_descend_different_things():
    """The mean over tokens that the policy sampled of each token's gradient_of: the weights are not differentiated."""
    shares = torch.softmax(LOGITS, dim=0)

    def mean(kind):
        return gradient_of(lambda policy: (shares * kl_estimate(policy, REFERENCE, kind)).sum())

    forward = gradient_of(lambda policy: (REFERENCE.exp() * (REFERENCE - policy)).sum())
    assert mean("k1").abs().max() < 1e-12
    assert torch.allclose(mean("k2"), gradient_of(reverse))
    assert torch.allclose(mean("k3"), forward)
    assert not torch.allclose(mean("k3"), gradient_of(reverse), rtol=0.05)
