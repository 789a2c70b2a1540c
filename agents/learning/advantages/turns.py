"""Advantages of turns: compared with those of like turns, or with the values of a critic (GAE).

Generalised advantage estimation (arXiv 1506.02438) runs over tokens, over turns, or over both.
"""

from dataclasses import replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from tsr_gym.agents.learning.advantages.grpo import Baseline, Contrast, Scale, compare, estimate, grpo
from tsr_gym.agents.learning.advantages.turn_table import Backup, TurnTable, discounted_sum, later, sum_by, table_of
from tsr_gym.agents.learning.batch import Batch, Edges
from tsr_gym.agents.learning.estimators import ALWAYS, estimator


def value_targets(batch: Batch, advantages: Tensor) -> Tensor:
    """Return the critic's targets ``A + V``, `[B, T]`, from advantages of tokens before whitening.

    For `gae` and `bi_level_gae`.
    """
    return (advantages + _values_of(batch)) * batch.sampled


def turn_value_targets(batch: Batch, advantages: Tensor) -> Tensor:
    """Return the critic's targets ``A_k + V_k`` on every token of turn k, `[B, T]`, from advantages before whitening.

    ``A + V`` token by token would be wrong: A_k is measured from the turn's first value, so that at a later token the
    sum would add the difference of the two values to the target, and the critic would drift without bound.
    """
    table = table_of(batch)
    return (advantages + table.spread(_values_at_starts(batch, table))) * batch.sampled


@estimator(needs={"values": ALWAYS, "finished": ALWAYS}, targets=value_targets)
def gae(batch: Batch, *, gamma: float = 1.0, lam: float = 1.0) -> Tensor:
    """Return advantages `[B, T]` along each trajectory's sampled tokens; prompts and observations are skipped.

    ``A_t = sum_l (gamma lam)^l delta_{t+l}`` with ``delta_t = r_t + gamma V_{t+1} - V_t`` and V = 0 after the last
    token. A trajectory that is spread over several rows is one sequence. With gamma = lam = 1 this is R - V. An
    unfinished episode is treated as if nothing came after it, so that leaves of a search need another estimator.

    Args:
        batch: Trajectories with the critic's values.
        gamma: Discount per token, 1 in the paper.
        lam: Decay of the estimates, 1 in the paper.

    Raises:
        ValueError: The batch has no values.
    """
    # Over sampled tokens in the order of trajectories, so that the next token of a sequence is the next item.
    all_values, table = _values_of(batch), table_of(batch)
    rewards, values = batch.rewards[table.row, table.column], all_values[table.row, table.column]
    return table.write(_along(rewards, values, table.trajectory[table.entry], gamma, lam))


@estimator(needs={"values": ALWAYS, "finished": ALWAYS}, targets=turn_value_targets)
def turn_gae(batch: Batch, *, gamma: float = 1.0, lam: float = 1.0) -> Tensor:
    """Return advantages `[B, T]`, one for all tokens of a turn, by GAE over turns (turn-level PPO, MT-PPO).

    ``A_k = sum_l (gamma lam)^l delta_{k+l}`` with ``delta_k = r_k + gamma V_{k+1} - V_k``, where r_k is the turn's
    reward, V_k the critic's value at the turn's first token, which is that of the state it was taken in, and V = 0
    after the last turn. Turn-PPO reports gamma 0.99 and lambda 0.9 (second-hand); the defaults are TSR's. The critic's
    targets are `turn_value_targets`.

    Args:
        batch: Trajectories with the critic's values.
        gamma: Discount per turn.
        lam: Decay of the estimates, per turn.

    Raises:
        ValueError: The batch has no values.
    """
    table = table_of(batch)
    return table.spread(_along(table.reward, _values_at_starts(batch, table), table.trajectory, gamma, lam))


@estimator(needs={"values": ALWAYS, "finished": ALWAYS}, targets=value_targets)
def bi_level_gae(batch: Batch, *, gamma: float = 1.0, lam: float = 1.0, high_level_gamma: float = 0.95) -> Tensor:
    """Return advantages `[B, T]` of tokens, with GAE over turns credited at the end of each turn (VAGEN, RAGEN).

    1. Over turns, with e the last token of each: ``A_k = delta_k + high_level_gamma lam A_{k+1}``,
       ``delta_k = r_k + high_level_gamma V(e_{k+1}) - V(e_k)``.
    2. Within a turn, as if ``A_k + V(e_k)`` were its reward and nothing came after it: GAE with gamma and lam.

    This is RAGEN's (ragen/trainer/core_algos.py), before its whitening. There a turn ends where the reward is not 0, so
    that a turn without reward is merged with the next one; here it ends at its last token. With high_level_gamma
    = gamma and lam = 1 this is `gae`.

    Args:
        batch: Trajectories with the critic's values.
        gamma: Discount per token.
        lam: Decay of the estimates, per turn and per token.
        high_level_gamma: Discount per turn, 0.95 in RAGEN.

    Raises:
        ValueError: The batch has no values.
    """
    all_values, table = _values_of(batch), table_of(batch)
    values, last = all_values[table.row, table.column], table.starts + table.tokens - 1
    # Step 1: on each turn's last token A_k + V(e_k), which step 2 treats as the reward of that token.
    rewards = torch.zeros_like(values)
    rewards[last] = _along(table.reward, values[last], table.trajectory, high_level_gamma, lam) + values[last]
    return table.write(_along(rewards, values, table.entry, gamma, lam))


def _along(rewards: Tensor, values: Tensor, sequence: Tensor, gamma: float, lam: float) -> Tensor:
    """Return ``A_t = delta_t + gamma lam A_{t+1}`` within each sequence, ``delta_t = r_t + gamma V_{t+1} - V_t``."""
    return discounted_sum(rewards.to(values.dtype) + gamma * later(values, sequence) - values, sequence, gamma * lam)


def _values_of(batch: Batch) -> Tensor:
    if batch.values is None:
        raise ValueError("GAE needs the critic's values: wanted batch.values [B, T], got None")
    return batch.values


def _values_at_starts(batch: Batch, table: TurnTable) -> Tensor:
    return _values_of(batch)[table.row, table.column][table.starts]


# Value iteration stops when values rise by a smaller share in a sweep.
PRECISION = 1e-9


@estimator(needs={"naive": {"baseline": "naive"}, "whole_groups": {"groups": "all_wrong"}})
def tspo(
    batch: Batch,
    *,
    groups: Literal["all_wrong", "all"] = "all_wrong",
    ragged: Literal["present", "zero", "last"] = "present",
    scale: Scale = "std",
    eps: float = 1e-6,
    ddof: int = 1,
    baseline: Baseline = "all",
) -> Tensor:
    """Return TSPO's advantages `[B, T]`: of turns where a group only failed, of trajectories elsewhere (2601.22776).

    On turn k of trajectory i of a group without a success ``(r_{i,k} - mean_i r_{i,k}) / (std_i r_{i,k} + eps)``; in
    other groups ``(R_i - mean(R)) / (std(R) + eps)`` on every turn, as in `grpo`. Outcomes and
    not rewards decide which groups have a success, so that a format penalty changes no comparison. With
    `tsr_gym.agents.lessons.credit.first_occurrence`, which writes the r_{i,k} of exactly the groups without one, this
    is the paper's method.

    The publication does not specify eps, ddof and the treatment of trajectories without a turn k. The defaults are
    statistics over trajectories that have the turn, and verl's numbers, on which TSPO is built. A turn that only one
    trajectory has, or for which all have the same reward, has advantage 0.

    Args:
        batch: Trajectories with rewards of turns.
        groups: Groups that are compared by turns: those in which every trajectory failed; or all, for credit rules that
            reward the turns of every group, such as ``first_occurrence(groups='all')``.
        ragged: Value of turn k in a trajectory that ended before it: none, 0, or the reward of its last turn.
        scale: The divisor: the deviation, or 1.
        eps: Added to the deviation.
        ddof: 1 for the deviation of a sample, 0 for that of a population.
        baseline: Trajectories that the mean is taken over, see `Contrast`.
    """
    turns = Contrast(
        "turn",
        unit="step",
        scale=scale,
        eps=eps,
        ddof=ddof,
        ragged=ragged,
        baseline=baseline,
        of=Backup(rewards="turn"),
    )
    by_turn = estimate(batch, turns)
    if groups == "all":
        return by_turn
    whole = estimate(batch, Contrast(scale=scale, eps=eps, ddof=ddof, baseline=baseline))
    # `by_turn` and `whole` are both computed for all groups; here each group takes one of them.
    has_success = torch.zeros(int(batch.group.max()) + 1, dtype=torch.bool, device=batch.group.device)
    has_success[batch.group[batch.solved]] = True
    return torch.where(has_success[batch.group][:, None], whole, by_turn)


@estimator(needs={"naive": {"baseline": "naive"}})
def mt_grpo(
    batch: Batch,
    *,
    turn_weight: float = 1.0,
    ragged: Literal["present", "zero", "last"] = "zero",
    single_turn: Literal["combined", "outcome"] = "combined",
    eps: float = 1e-4,
    baseline: Baseline = "all",
) -> Tensor:
    """Return MT-GRPO's advantages `[B, T]`: outcomes everywhere, rewards of turns on their own turns (2505.11821).

    Where the policy decides how many turns there are, the expected gradient is not that of the return: a reward counts
    for its own turn alone, and a trajectory that ends early is not compared for it. `turn_rloo` is unbiased.

    On turn k ``A_outcome + turn_weight A_turn,k``, and A_outcome on the last turn. Both parts are ``(r - mean) / (std +
    eps)`` over the group with the deviation of a sample. The outcome is the reward of a trajectory's last turn, and the
    reward of turn k is compared with that of the same turn of the others. The published code has one reward before the
    first tool's result, that of turn 0. The comparison of every turn before the last is our extension to more than two
    turns.

    Args:
        batch: Trajectories with rewards of turns.
        turn_weight: ``turn_advantage_coef``, 1 in the published code.
        ragged: Value of turn k in a trajectory without a turn k before its last: none; 0, as the published reward
            functions give a trajectory without a tool call; or the reward of the turn before.
        single_turn: Advantage of a trajectory of one turn, which called no tool: the comparison of whole returns, as
            published, or that of outcomes.
        eps: 1e-4 in the published code.
        baseline: Trajectories that the mean is taken over, see `Contrast`.
    """
    outcome = Contrast(scale="std", eps=eps, baseline=baseline, of=Backup(rewards="last"))
    turns = Contrast(
        "turn",
        unit="step",
        scale="std",
        eps=eps,
        ragged=ragged,
        baseline=baseline,
        on="not_last",
        weight=turn_weight,
        of=Backup(rewards="turn"),
    )
    advantages = estimate(batch, outcome, turns)
    if single_turn == "outcome":
        return advantages
    table = table_of(batch)
    single = table.spread((table.is_first & table.is_last).to(advantages.dtype)) > 0
    return torch.where(single, grpo(batch, eps=eps, baseline=baseline), advantages)


@estimator(needs={"naive": {"baseline": "naive"}})
def turn_rloo(batch: Batch, *, turn_weight: float = 1.0, baseline: Baseline = "all") -> Tensor:
    """Return the advantages `[B, T]` of each turn's return from there on over the others', unbiased. Ours.

    On turn k ``sum_{j >= k} w_j r_j - mean of the others' sum from turn k on``, where w is 1 for the last turn of a
    trajectory and `turn_weight` before it, and the sum of a trajectory that ended before turn k is 0. The baseline does
    not depend on what the trajectory did, so that the expected gradient is that of E[sum_j w_j r_j], however the policy
    decides on the number of turns.

    Args:
        batch: Trajectories with rewards of turns.
        turn_weight: Weight of the rewards before the last turn, as in `mt_grpo`.
        baseline: Trajectories that the mean of the others is taken over, see `Contrast`.
    """
    to_go, last = Backup(rewards="turn", kind="return_to_go"), Backup(rewards="last")
    turns = Contrast("turn", unit="step", centre="loo", ragged="zero", baseline=baseline)
    # The last reward is a part of each sum, so that the second comparison completes its weight to 1.
    return estimate(
        batch, replace(turns, of=to_go, weight=turn_weight), replace(turns, of=last, weight=1 - turn_weight)
    )


@estimator(needs={"naive": {"baseline": "naive"}})
def gigpo(
    batch: Batch,
    *,
    gamma: float = 0.95,
    step_weight: float = 1.0,
    scale: Scale = "std",
    eps: float = 1e-6,
    episodes: Literal["trajectory", "step"] = "trajectory",
    alone: Literal["zero", "raw"] = "zero",
    baseline: Baseline = "all",
) -> Tensor:
    """Return GiGPO's advantages `[B, T]`: of whole episodes, and of steps taken in the same state (2505.10978).

    On all tokens of a step ``A_episode + step_weight A_step``. A_episode is ``(R - mean) / (std + eps)`` over the
    group's episodes. A_step is the same over all steps of the group that were taken in the same state (its anchor), of
    its discounted return from there on, ``sum_l gamma^l r_{t+l}``. Two states are the same if the environment's
    `state_key` is; the published search experiments also group by similar text, which is not implemented. A step whose
    state no other step visited, or whose state is unknown, has A_step 0.

    Args:
        batch: Trajectories with states.
        gamma: Discount per turn, 0.95 in the published scripts.
        step_weight: Weight of A_step, 1 in the published scripts.
        scale: The divisor: the deviation of a sample, or 1; the paper has both, as ``F_norm``.
        eps: Added to the deviation.
        episodes: The unit that counts once in A_episode's mean and deviation: a trajectory, as in the paper, or each of
            its steps, as in the published code by default, which gives long episodes more weight.
        alone: The advantage of a singleton group: 0, or its return, as in the published code.
        baseline: Trajectories that the mean is taken over, see `Contrast`.
    """
    to_go = Backup(rewards="turn", kind="return_to_go", gamma=gamma)
    return estimate(
        batch,
        Contrast(unit=episodes, scale=scale, eps=eps, alone=alone, baseline=baseline),
        Contrast("state", unit="step", scale=scale, eps=eps, baseline=baseline, weight=step_weight, of=to_go),
    )


@estimator(needs={"naive": {"baseline": "naive"}})
def graph(
    batch: Batch,
    *,
    w: float = 0.1,
    step_weight: float = 1.0,
    cost: Literal["turn", "action"] = "turn",
    scale: Scale = "std",
    eps: float = 1e-6,
    baseline: Baseline = "all",
) -> Tensor:
    """Return GraphGPO's advantages `[B, T]`: of whole episodes, and of moves by distance to a success (2605.26684).

    On all tokens of a turn ``A_episode + step_weight A_move``. A_episode is ``(R - mean) / (std + eps)`` over the
    group's episodes. A_move compares all moves that were tried in a state, in all trajectories and trees of the task
    (`Batch.edges`): candidates that a search rejected are evidence for the value of a turn, and are not learned from.

    With d(s) the length of the shortest path from s to a success, a move from s to s' of cost c has the value
    ``w^(d(s') + c)``. Where a move led to several states, its value is that of value iteration: ``Q(s, a) = mean over
    s' of w^c V(s')``, ``V(s) = max_a Q(s, a)``, 1 at a success. The mean is over the tries, so that a move tried once
    is treated as deterministic. A_move is ``(q - mean) / (std + eps)`` of the shares ``q = Q(s, a) / V(s)`` over all
    tries in s. The paper compares Q itself, which differs only far from the goal, where eps outweighs Q.

    A move after which some play ended, but none in a success, is a failure, Q = 0 (in the paper, as if the success were
    one move farther than from any state). A move after which no play ended, such as a candidate that a search left, is
    unknown: it is compared with nothing, and its turn has A_episode alone.

    Args:
        batch: Trajectories with states and edges.
        w: Discount per unit of cost, 0.1 in the published recipe; with 1 only the success itself counts.
        step_weight: Weight of A_move, 1 in the paper.
        cost: Cost of a turn: 1, as in the paper, or the number of its actions, at least 1.
        scale: The divisor: the deviation of a sample, or 1.
        eps: Added to the deviation.
        baseline: Trajectories that A_episode's mean is taken over, see `Contrast`.

    Raises:
        ValueError: w is out of range, or the batch has no edges.
    """
    if not 0 < w <= 1:
        raise ValueError(f"wanted 0 < w <= 1, got {w}")
    if batch.edges is None:
        raise ValueError("a graph consists of edges: wanted a batch with edges, as `collate` makes it, got None")
    episodes = estimate(batch, Contrast(scale=scale, eps=eps, baseline=baseline))
    values = edge_values(batch.edges, w=w, cost=cost)
    if not values.known.any():
        return episodes
    table, move = table_of(batch), batch.edges.move[values.known]
    state, of_move = batch.edges.state[values.known], values.value[values.known]
    best = values.best[state]
    # Shares of the best move of the state: Q itself shrinks by w per move, and eps would outweigh it far from the goal.
    shares = torch.where(best > 0, of_move / best, 0.0)
    every = torch.ones_like(shares, dtype=torch.bool)
    compared = compare(shares, state, every, torch.ones_like(shares), centre="mean", scale=scale, ddof=1, eps=eps)
    # The last place stays 0, for turns whose move is unknown: they index it as -1.
    advantages = shares.new_zeros(max(_size(move), _size(table.move)) + 1)
    advantages[move] = torch.where(compared.alone, 0.0, compared.advantage)
    return episodes + step_weight * table.spread(advantages.to(episodes.device)[table.move])


class EdgeValues(NamedTuple):
    """The values of moves and states.

    Attributes:
        value: `[M]`, Q of each edge's move.
        known: `[M]` bool, False where no play reached an end; the value is then 0.
        best: `[S]`, V of each state.
    """

    value: Tensor
    known: Tensor
    best: Tensor


def edge_values(edges: Edges, *, w: float, cost: Literal["turn", "action"] = "turn") -> EdgeValues:
    """Return the values of edges by value iteration on the tried moves, in float64, see `graph`.

    States s, t of a task and the moves that were tried in them, each of cost 1; w = 1/2:

        s -a-> t -a-> success            t: Q(a) = w = 1/2, Q(b) = 0; V = 1/2, so that the shares are 1 and 0
        s -b-> s                         s: Q(a) = w^2 = 1/4, Q(b) = w^3 = 1/8, c is unknown; shares 1, 1/2 and none
        s -c-> u, not continued          mean share in s: 3/4, so that a has +1/4 and b -1/4, before the deviation
        t -b-> the end, a failure
    """
    reaches_end = _reaches_end(edges)
    price = edges.actions.clamp(min=1) if cost == "action" else torch.ones_like(edges.actions)
    discount = torch.tensor(w, dtype=torch.float64) ** price * reaches_end
    moves, states = _size(edges.move), max(_size(edges.state), _size(edges.after))
    tries = sum_by(reaches_end.double(), edges.move, moves).clamp(min=1)
    # Values start at 0 and only rise. Where every move leads to one state, they are exact after as many sweeps as the
    # longest of the shortest paths has moves. The last place stays 0, for unknown states: they index it as -1.
    best = torch.zeros(states + 1, dtype=torch.float64)
    while True:
        ahead = torch.where(edges.solved, 1.0, best[edges.after])
        value = (sum_by(discount * ahead, edges.move, moves) / tries)[edges.move]
        better = torch.zeros_like(best).scatter_reduce(0, edges.state, value, "amax")
        if bool((better - best <= PRECISION * better).all()):
            return EdgeValues(value * reaches_end, reaches_end, better[:-1])
        best = better


def _reaches_end(edges: Edges) -> Tensor:
    """Return a mask of the edges after which some play reached an end, `[M]`."""
    # The last place stays False, for unknown states: they index it as -1.
    seen = torch.zeros(max(_size(edges.state), _size(edges.after)) + 1, dtype=torch.bool)
    while True:
        reaches_end = edges.ended | seen[edges.after]
        before = int(seen.sum())
        seen[edges.state[reaches_end]] = True
        if int(seen.sum()) == before:
            return reaches_end


def _size(numbers: Tensor) -> int:
    return int(numbers.max()) + 1 if len(numbers) else 0
