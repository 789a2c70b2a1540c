"""Losses as pure functions of tensors; `policy_loss` combines the terms of an objective.

The terms: importance ratios, their clipped gains, a divergence, and token weights, which say how much each sampled
token counts and are computed once for all rows of an optimizer step.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from tsr_gym.agents.learning.batch import Batch
from tsr_gym.agents.learning.settings import Aggregation, Level, Objective


def token_weights(
    batch: Batch, aggregation: Aggregation, *, counts: Tensor | None = None, longest: int | None = None
) -> Tensor:
    """Return the weight of each sampled token in a mean over the batch, `[B, T]`, 0 elsewhere.

    Trajectory i has the count c_i, T_i tokens in K_i turns, T_ik of them in turn k; C is the sum of the counts and G
    the number of trajectories with a count above 0. On the right are the weights where all count 1, trajectory a has
    two turns, of two tokens and of one, and b has one turn of one token:

        aggregation  weight                               a        b
        sequence     c_i / (C T_i)                1/6 1/6 1/6    1/2     TSR Eq. 13 over tokens
        turn         c_i / (C K_i T_ik)           1/8 1/8 1/4    1/2     TSR Eq. 13 over turns
        token        c_i / sum_j c_j T_j          1/4 1/4 1/4    1/4     RAGEN; DAPO, arXiv 2503.14476
        constant     c_i / (G longest)        1 / (2 longest) each       Dr. GRPO, arXiv 2503.20783

    They sum to 1, except for ``"constant"``, which favours neither short nor long trajectories, and where all counts
    are 0.

    Args:
        batch: All trajectories of one optimizer step.
        aggregation: Units of equal weight: trajectories, turns within them, tokens, or tokens with a constant divisor.
        counts: `[B]`, c_i of each row's trajectory, equal for rows of one trajectory; None for 1 each. Trajectories
            that count 0 are ignored.
        longest: Number of tokens of the longest possible trajectory, for ``"constant"``.

    Raises:
        ValueError: The aggregation is constant and there is no `longest`.
    """
    sampled = batch.sampled.float()
    counted = sampled if counts is None else sampled * counts[:, None]
    if aggregation == "token":
        return _divided(counted, counted.sum())
    tokens = _by_trajectory(batch, sampled.sum(dim=1))
    share = torch.ones_like(tokens) if counts is None else torch.zeros_like(tokens).scatter(0, batch.trajectory, counts)
    if aggregation == "constant":
        if not longest:
            raise ValueError(f"the aggregation constant divides by longest: wanted at least 1, got {longest}")
        return _divided(counted / longest, ((tokens > 0) & (share > 0)).sum())
    # A trajectory without a sampled token has no weight to carry its share, and the weights would not sum to 1.
    total = (share * (tokens > 0)).sum()
    if aggregation == "turn":
        inside, turns = _in_turn(batch)
        return _divided(counted / inside / turns[batch.trajectory].clamp(min=1)[:, None], total)
    return _divided(counted / tokens[batch.trajectory].clamp(min=1)[:, None], total)


class StepWeights(NamedTuple):
    """The weights of the tokens of an optimizer step.

    Attributes:
        policy: `[B, T]`, in the surrogate, the entropy bonus and the divergence.
        imitation: `[B, T]`, in the imitation loss; None where there is none.
    """

    policy: Tensor
    imitation: Tensor | None = None


def policy_counts(objective: Objective, batch: Batch) -> Tensor:
    """Return the count of each row's trajectory in the policy gradient, `[B]`; 0 where it carries none.

    `Batch.counts`, times `Objective.searched_weight` where a search selected the trajectory.
    """
    return torch.where(batch.searched, objective.searched_weight, 1.0) * batch.counts


def imitation_counts(objective: Objective, batch: Batch) -> Tensor:
    """Return the count of each row's trajectory in the imitation loss, `[B]`; 0 for all but searched successes.

    With ``imitated="expansions"`` a solution n counts as the N expansions of its search: the loss of LevinTS and
    PHS* (Orseau and Lelis, arXiv 2103.11505). Their bound on N is d0(n) / pi(n), with d0 the depth plus one. Its
    gradient is d0(n) / pi(n) times that of -log pi(n). Replacing the factor, which is the bound, by N itself makes a
    step lower the real cost of the search:

        sum_n N(n) * -log pi(n),  log pi(n) = sum_t log pi_t over the tokens of n

    That is the aggregation ``"constant"``, up to its divisor. ``"sequence"`` takes the mean over a solution's tokens in
    place of the sum, as `LevinLoss` in the authors' code (github.com/levilelis/h-levin, loss_functions.py), and divides
    by the sum of all N, so that the size of a step does not depend on the difficulty of its tasks. Two solutions of two
    tokens and of one, after 30 and 10 expansions, with -log pi_t of 1, 3 and 4:

        alike       sequence ((1 + 3) / 2 + 4) / 2 = 3               token (1 + 3 + 4) / 3 = 8 / 3
        expansions  sequence (30 (1 + 3) / 2 + 10 * 4) / 40 = 2.5    token (30 (1 + 3) + 10 * 4) / 70 = 16 / 7
    """
    solutions = (batch.searched & batch.solved).float()
    return solutions if objective.imitated == "alike" else solutions * batch.expansions


def step_weights(objective: Objective, batch: Batch) -> StepWeights:
    """Return the weights of the tokens of one optimizer step under an objective, see `policy_counts`."""
    counts = policy_counts(objective, batch)
    policy = token_weights(batch, objective.aggregation, counts=counts, longest=objective.longest)
    if objective.imitation == 0:
        return StepWeights(policy)
    imitated = imitation_counts(objective, batch)
    return StepWeights(policy, token_weights(batch, objective.aggregation, counts=imitated, longest=objective.longest))


def _divided(weights: Tensor, total: Tensor) -> Tensor:
    # The total is 0 only where all weights are; 0 / 0 would make the loss NaN.
    return weights / torch.where(total == 0, 1, total)


def _by_trajectory(batch: Batch, values: Tensor) -> Tensor:
    size = int(batch.trajectory.max()) + 1
    return torch.zeros(size, device=values.device).index_add(0, batch.trajectory, values)


def _in_turn(batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the length of each token's turn, `[B, T]`, 1 where nothing was sampled, and turns by trajectory, `[N]`."""
    number = turn_units(batch)[batch.sampled]
    units, where, tokens = torch.unique(number, return_inverse=True, return_counts=True)
    inside = torch.ones_like(batch.old_logprobs)
    inside[batch.sampled] = tokens[where].float()
    turns = torch.bincount(units // _stride(batch), minlength=int(batch.trajectory.max()) + 1)
    return inside, turns


def _stride(batch: Batch) -> int:
    """Return the factor by which turns of different trajectories get different numbers."""
    return int(batch.turn.max()) + 1


def turn_units(batch: Batch) -> Tensor:
    """Return a number for every turn of every trajectory on its sampled tokens, -1 elsewhere, `[B, T]`."""
    return torch.where(batch.sampled, batch.trajectory[:, None] * _stride(batch) + batch.turn, -1)


def sequence_units(batch: Batch) -> Tensor:
    """Return the number of the trajectory on its sampled tokens, -1 elsewhere, `[B, T]`."""
    return torch.where(batch.sampled, batch.trajectory[:, None], -1)


# Log-ratios are clamped to this size: a ratio beyond e^20 is a sign of an error, and every clip is far below it.
MAX_LOG_RATIO = 20.0


class Given(NamedTuple):
    """The inputs of a loss other than the policy's log-probabilities; all of one shape, `[B, T]` or any other.

    Attributes:
        old_logprobs: Log-probabilities before the update.
        advantages: A_t of each token.
        weights: w_t of each token, `StepWeights.policy`; they sum to 1 over the micro-batches of an optimizer step.
        turn: int64, equal for tokens of one turn of one trajectory; -1 where nothing was sampled.
        sequence: int64, equal for tokens of one trajectory; -1 where nothing was sampled.
        imitation: u_t, the weight in the imitation loss; None for no imitation.
        sampler_logprobs: Log-probabilities by the engine that sampled; None where `old_logprobs` are these.
        reference_logprobs: Log-probabilities under the reference policy; None for no divergence.
    """

    old_logprobs: Tensor
    advantages: Tensor
    weights: Tensor
    turn: Tensor
    sequence: Tensor
    imitation: Tensor | None = None
    sampler_logprobs: Tensor | None = None
    reference_logprobs: Tensor | None = None

    @classmethod
    def of(
        cls,
        part: Batch,
        advantages: Tensor,
        weights: StepWeights,
        *,
        sampler_logprobs: Tensor | None = None,
        reference_logprobs: Tensor | None = None,
    ) -> "Given":
        """Return the tensors of the rows of a micro-batch, all `[B, T]`."""
        units = turn_units(part), sequence_units(part)
        return cls(
            part.old_logprobs,
            advantages,
            weights.policy,
            *units,
            weights.imitation,
            sampler_logprobs,
            reference_logprobs,
        )


class ObjectiveLoss(NamedTuple):
    """A loss and its parts.

    Attributes:
        loss: Scalar, with gradient.
        parts: Scalars without gradient by name: ``policy_loss``, ``entropy``, ``clip_fraction`` and, with such a
            term, ``kl``, ``imitation_loss``, ``mismatch_kl``, ``mismatch_cut``. Each is a sum, and adds up over the
            micro-batches of an optimizer step.
    """

    loss: Tensor
    parts: dict[str, Tensor]


class Correction(NamedTuple):
    """Weights that correct for a sampler's mismatch.

    Attributes:
        weight: Any shape; 1 where the two agree.
        cut: As `weight`, bool, True where a bound was reached.
    """

    weight: Tensor
    cut: Tensor


class Gains(NamedTuple):
    """The gain of a surrogate with each token, and whether a bound reduced it.

    Attributes:
        gain: Any shape.
        clipped: As `gain`, bool.
    """

    gain: Tensor
    clipped: Tensor


def policy_loss(objective: Objective, logprobs: Tensor, entropy: Tensor, given: Given) -> ObjectiveLoss:
    """Return the loss of an objective and its parts: surrogate, entropy bonus, divergence and imitation.

    With rho_t the importance ratio of token t's unit (`log_ratios`), c_t the weight for another sampler (1 without),
    H_t the entropy, k_t the estimate of the divergence and sums over sampled tokens:

        loss = policy_loss - entropy * H + kl_weight * KL + imitation * I
        policy_loss = -sum_t w_t c_t min(rho_t A_t, clip(rho_t, 1 - low, 1 + high) A_t)    ppo; for cispo, with sg for
                      -sum_t w_t c_t sg[clip(rho_t, 1 - low, 1 + high)] A_t log pi_t       stopped gradients
        H = sum_t w_t H_t    KL = sum_t w_t k_t, or w_t rho_t k_t with kl_corrected    I = -sum_t u_t log pi_t

    Args:
        objective: Terms and their weights.
        logprobs: Log-probabilities of the sampled tokens under the parameters that are trained.
        entropy: Entropies of the distributions of these tokens.
        given: The other inputs.

    Raises:
        ValueError: The objective has a term whose input is None.
    """
    sampled = given.turn >= 0
    # Padding may hold NaN, and 0 * NaN is NaN: selection keeps it out of the sum and of the gradient.
    logprobs = torch.where(sampled, logprobs, 0.0)
    ratio = _ratio(objective, logprobs, given)
    gains = _gains(objective, ratio, logprobs, given)
    parts = {
        "entropy": (given.weights * torch.where(sampled, entropy, 0.0)).sum(),
        "clip_fraction": (given.weights * gains.clipped).sum(),
    }
    gain = gains.gain
    if objective.mismatch != "none":
        correction = _correction(objective, given)
        gain = gain * correction.weight
        # The sampler's own tokens estimate KL(sampler, learner) without bias: the mean of log q - log p under q.
        difference = torch.where(sampled, _required(given.sampler_logprobs, "mismatch") - given.old_logprobs, 0.0)
        parts["mismatch_kl"] = (given.weights * difference).sum()
        parts["mismatch_cut"] = (given.weights * correction.cut).sum()
    parts["policy_loss"] = -(given.weights * gain).sum()
    loss = parts["policy_loss"] - objective.entropy * parts["entropy"]
    if objective.kl_weight:
        reference = torch.where(sampled, _required(given.reference_logprobs, "kl_weight"), 0.0)
        divergence = kl_estimate(logprobs, reference, objective.kl) * (ratio if objective.kl_corrected else 1.0)
        parts["kl"] = (given.weights * divergence).sum()
        loss = loss + objective.kl_weight * parts["kl"]
    if objective.imitation:
        parts["imitation_loss"] = -(_required(given.imitation, "imitation") * logprobs).sum()
        loss = loss + objective.imitation * parts["imitation_loss"]
    return ObjectiveLoss(loss, {name: part.detach() for name, part in parts.items()})


def _ratio(objective: Objective, logprobs: Tensor, given: Given) -> Tensor:
    log_ratio = log_ratios(logprobs - given.old_logprobs, objective.ratio, turn=given.turn, sequence=given.sequence)
    if objective.gradient == "token" and objective.ratio != "token":
        log_ratio = per_token_gradient(log_ratio, logprobs)
    return torch.exp(log_ratio)


def _gains(objective: Objective, ratio: Tensor, logprobs: Tensor, given: Given) -> Gains:
    low, high = objective.clip_low, objective.clip_high
    if objective.surrogate == "cispo":
        return cispo_gains(ratio, logprobs, given.advantages, clip_low=low, clip_high=high)
    return ppo_gains(ratio, given.advantages, clip_low=low, clip_high=high, dual_clip=objective.dual_clip)


def _correction(objective: Objective, given: Given) -> Correction:
    return mismatch_weights(
        given.old_logprobs,
        _required(given.sampler_logprobs, "mismatch"),
        turn=given.turn,
        sequence=given.sequence,
        mode=objective.mismatch,
        level=objective.mismatch_level,
        low=objective.mismatch_low,
        high=objective.mismatch_high,
    )


# The input that each setting of an objective needs.
_SOURCES = {
    "mismatch": "given.sampler_logprobs, with old_logprobs that the learner computed again",
    "kl_weight": "given.reference_logprobs of a reference policy",
    "imitation": "given.imitation weights",
}


def _required(value: Tensor | None, setting: str) -> Tensor:
    if value is None:
        raise ValueError(f"the objective's {setting} needs {_SOURCES[setting]}, got None")
    return value


def log_ratios(differences: Tensor, level: Level, *, turn: Tensor, sequence: Tensor) -> Tensor:
    """Return the log-ratio of each token's unit, in the shape of `differences`.

    With ``d_t = log pi(t) - log pi_old(t)``: ``"token"`` is ``d_t``. ``"turn"`` is the sum of ``d`` over the token's
    turn, the ratio of the turn as one action (TSR Eq. 11); ``"turn_mean"`` is their mean. ``"sequence"`` and
    ``"sequence_mean"`` are the same over the whole trajectory; the latter is GSPO's (arXiv 2507.18071).

    Args:
        differences: Any shape, of log-probabilities.
        level: The unit of a ratio.
        turn: As `differences`, int64, equal for tokens of one turn; -1 where nothing was sampled.
        sequence: As `turn`, equal for tokens of one trajectory.

    Returns:
        As `differences`; within plus or minus 20, 0 where nothing was sampled, NaN where a ratio is not finite.
    """
    sampled = turn >= 0
    log_ratio = torch.where(sampled, differences, 0.0)
    if level != "token":
        units = turn if level.startswith("turn") else sequence
        log_ratio = _over_units(log_ratio, units, sampled, mean=level.endswith("mean"))
    return bounded(log_ratio)


def bounded(log_ratio: Tensor) -> Tensor:
    """Return a log-ratio clamped to plus or minus 20; NaN where it is not finite, which a clamp would hide."""
    return torch.where(log_ratio.isfinite(), log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO), torch.nan)


def per_token_gradient(log_ratio: Tensor, logprobs: Tensor) -> Tensor:
    """Return the same log-ratio with a gradient with respect to its own token only (GSPO-token, arXiv 2507.18071)."""
    return log_ratio.detach() + (logprobs - logprobs.detach())


def _over_units(values: Tensor, units: Tensor, sampled: Tensor, *, mean: bool) -> Tensor:
    """Return the sum or mean of the sampled values of each unit, on all of its tokens; 0 elsewhere."""
    # Units may spread over several rows, so that they are numbered, summed by number, and read back by place.
    numbers, place, tokens = torch.unique(units[sampled], return_inverse=True, return_counts=True)
    totals = values.new_zeros(len(numbers)).index_add(0, place, values[sampled])
    if mean:
        totals = totals / tokens
    return torch.zeros_like(values).masked_scatter(sampled, totals[place])


def mismatch_weights(
    old_logprobs: Tensor,
    sampler_logprobs: Tensor,
    *,
    turn: Tensor,
    sequence: Tensor,
    mode: str,
    level: Level = "token",
    low: float = 0.0,
    high: float = 2.0,
) -> Correction:
    """Return ``pi_old(learner) / pi(sampler)`` within bounds, without gradient.

    ``"truncate"`` is truncated importance sampling (TIS: ``min(w, high)``), ``"mask"`` sets weights beyond the
    bounds to 0. Without bounds the weighted mean over the sampler's tokens is an unbiased estimate of the mean over the
    learner's; each bound trades bias for less variance.

    Args:
        old_logprobs: Any shape, by the learner's model before the update.
        sampler_logprobs: As `old_logprobs`, by the engine that sampled.
        turn: As `old_logprobs`, int64, equal for tokens of one turn; -1 where nothing was sampled.
        sequence: As `turn`, equal for tokens of one trajectory.
        mode: ``"truncate"`` or ``"mask"``.
        level: The unit of a weight.
        low: Smallest weight.
        high: Largest weight.
    """
    difference = (old_logprobs - sampler_logprobs).detach()
    weight = torch.exp(log_ratios(difference, level, turn=turn, sequence=sequence))
    cut = (weight < low) | (weight > high)
    if mode == "mask":
        return Correction(torch.where(cut, 0.0, weight), cut)
    return Correction(weight.clamp(low, high), cut)


def kl_estimate(logprobs: Tensor, reference: Tensor, name: Literal["k1", "k2", "k3"]) -> Tensor:
    """Return an estimate of KL(policy, reference) from tokens that the policy sampled.

    With ``x = log reference - log policy``: ``k1 = -x``, ``k2 = x^2 / 2``, ``k3 = e^x - 1 - x``. As values, k1 and k3
    are unbiased, k2 is not. As loss terms, their expected gradients differ: 0 for k1, that of KL(policy, reference) for
    k2, and that of KL(reference, policy) for k3. Multiplied by the ratio of policy to sampler, k1 and k3 are unbiased
    for tokens of any sampler and have the gradient of KL(policy, reference). See J. Schulman, Approximating KL
    divergence (2020).

    Args:
        logprobs: Any shape, under the policy.
        reference: As `logprobs`, under the reference.
        name: The estimator.
    """
    x = bounded(reference - logprobs)
    if name == "k1":
        return -x
    # expm1 keeps the digits of k3 for small x, where e^x - 1 cancels.
    return x**2 / 2 if name == "k2" else torch.expm1(x) - x


def ppo_gains(
    ratio: Tensor, advantages: Tensor, *, clip_low: float, clip_high: float, dual_clip: float | None = None
) -> Gains:
    """Return ``min(ratio A, clip(ratio, 1 - low, 1 + high) A)``, for ``A < 0`` at least ``dual_clip A``.

    The second bound is dual clip (arXiv 1912.09729), and TRL's two-sided clip ``delta``.
    """
    # The minimum is a pessimistic bound: it removes the gradient only where a further step would still gain.
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    gain, bound = ratio * advantages, clipped * advantages
    is_clipped = bound < gain
    gain = torch.minimum(gain, bound)
    if dual_clip is not None:
        # For A < 0 the minimum has no lower bound: a bad token that became likely would dominate the step.
        floor = torch.where(advantages < 0, dual_clip * advantages, -torch.inf)
        is_clipped = is_clipped | (floor > gain)
        gain = torch.maximum(gain, floor)
    return Gains(gain, is_clipped)


def cispo_gains(ratio: Tensor, logprobs: Tensor, advantages: Tensor, *, clip_low: float, clip_high: float) -> Gains:
    """Return ``sg[clip(ratio, 1 - low, 1 + high)] A log pi`` (CISPO, arXiv 2506.13585).

    A bound limits the gradient of a token, where PPO's clip makes it 0. The paper has no lower bound (`clip_low` = 1)
    and tunes the upper one.
    """
    weight = ratio.clamp(1 - clip_low, 1 + clip_high).detach()
    outside = (weight != ratio.detach()) & (advantages != 0)
    return Gains(weight * advantages * logprobs, outside)


def clipped_value_loss(
    values: Tensor, old_values: Tensor, targets: Tensor, weights: Tensor, *, clip: float | None = 0.5
) -> Tensor:
    """Return half the squared error of the critic, its step clipped around the old values (PPO).

    Args:
        values: `[B, T]` by the critic that is trained.
        old_values: `[B, T]` by the critic before the update.
        targets: `[B, T]`.
        weights: `[B, T]`, 0 where nothing was sampled.
        clip: Largest change of a value in one update that still lowers the loss; None for no clip.
    """
    error = (values - targets) ** 2
    # The larger of both errors: a value that moved too far has no gradient towards its target, and one that moved away
    # has.
    if clip is not None:
        error = torch.maximum(error, (old_values + (values - old_values).clamp(-clip, clip) - targets) ** 2)
    return 0.5 * (weights * error).sum()


def whiten(values: Tensor, sampled: Tensor, *, eps: float = 1e-8) -> Tensor:
    """Return values shifted and scaled to mean 0 and variance 1 over the sampled tokens, `[B, T]`, 0 elsewhere."""
    tokens = values[sampled]
    if len(tokens) == 0:
        return torch.zeros_like(values)
    centred = values - tokens.mean()
    return centred / (tokens.var(unbiased=False) + eps).sqrt() * sampled
