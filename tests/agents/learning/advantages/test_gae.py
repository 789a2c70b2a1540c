"""Advantages by GAE over tokens, turns and both: numbers by hand, and a loop that a child could follow."""

from dataclasses import replace

import pytest
import torch

from tests.agents.learning.advantages.forests import Sampled, batch_of, by_turn, path, random_groups
from tests.agents.learning.test_batch import episode, turn
from tsr_gym.agents.episodes.trajectory import Group
from tsr_gym.agents.learning.advantages import bi_level_gae, gae, turn_gae, turn_value_targets, value_targets
from tsr_gym.agents.learning.batch import collate


def with_values(batch, *values):
    """Return the batch with values on its sampled tokens, in their order, and traps everywhere else."""
    filled = torch.full(batch.rewards.shape, 1000.0)
    filled[batch.sampled] = torch.tensor(values)
    return replace(batch, values=filled)


def ragged():
    """Three sampled tokens in one row, in two turns; then one token; then three tokens in two rows."""
    first = episode(turn([1, 2], [3, 4], 1.0, -1.0, -1.0), turn([1, 2, 3, 4, 5], [6], 2.0, -1.0))
    second = episode(turn([1], [2], -1.0, -1.0))
    third = episode(turn([1, 2, 3], [4, 5], 0.5, -1.0, -1.0), turn([9], [8], 4.0, -1.0))
    return with_values(collate([Group(0, (first, second)), Group(1, (third,))]), 0.5, 0.25, 1.0, 0.5, 2.0, 1.0, 3.0)


def test_with_gamma_and_lambda_1_it_is_the_return_to_come_minus_the_value():
    batch = ragged()
    advantages = gae(batch)
    # Returns to come: 3, 3, 2 | -1 | 4.5, 4.5, 4.
    expected = [3 - 0.5, 3 - 0.25, 2 - 1, -1 - 0.5, 4.5 - 2, 4.5 - 1, 4 - 3]
    assert advantages[batch.sampled].tolist() == pytest.approx(expected)
    assert torch.count_nonzero(advantages[~batch.sampled]) == 0


def test_with_other_gamma_and_lambda_by_hand():
    batch = ragged()
    actual = gae(batch, gamma=0.5, lam=0.5)[batch.sampled].tolist()
    # First trajectory, from its end, gamma lambda = 1/4:
    #   delta_3 = 2 - 1 = 1                          A_3 = 1
    #   delta_2 = 1 + 0.5 * 1 - 0.25 = 1.25          A_2 = 1.25 + 0.25 * 1 = 1.5
    #   delta_1 = 0 + 0.5 * 0.25 - 0.5 = -0.375      A_1 = -0.375 + 0.25 * 1.5 = 0
    # Second: -1 - 0.5 = -1.5.
    # Third, across its two rows:
    #   delta_3 = 4 - 3 = 1                          A_3 = 1
    #   delta_2 = 0.5 + 0.5 * 3 - 1 = 1              A_2 = 1 + 0.25 = 1.25
    #   delta_1 = 0 + 0.5 * 1 - 2 = -1.5             A_1 = -1.5 + 0.25 * 1.25 = -1.1875
    assert actual == pytest.approx([0.0, 1.5, 1.0, -1.5, -1.1875, 1.25, 1.0])


def test_lambda_0_looks_one_token_ahead():
    batch = ragged()
    actual = gae(batch, gamma=1.0, lam=0.0)[batch.sampled].tolist()
    assert actual == pytest.approx([0.25 - 0.5, 1 + 1 - 0.25, 2 - 1, -1.5, 1 - 2, 0.5 + 3 - 1, 4 - 3])


def by_loop(batch, gamma, lam):
    """Return the advantages by the definition: a double sum over a plain list of tokens per trajectory."""
    result = torch.zeros(batch.rewards.shape)
    for number in range(batch.num_trajectories):
        places = [
            (row, column)
            for row in range(len(batch.ids))
            if batch.trajectory[row] == number
            for column in range(batch.ids.shape[1])
            if batch.sampled[row, column]
        ]
        rewards = [batch.rewards[place].item() for place in places]
        values = [batch.values[place].item() for place in places] + [0.0]
        deltas = [rewards[t] + gamma * values[t + 1] - values[t] for t in range(len(places))]
        for t, place in enumerate(places):
            result[place] = sum((gamma * lam) ** (later - t) * deltas[later] for later in range(t, len(places)))
    return result


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (0.9, 0.7), (0.95, 0.0), (1.0, 0.5), (0.0, 0.9)])
def test_random_batches_against_the_definition(gamma, lam):
    draw = torch.Generator().manual_seed(int(100 * gamma + lam))

    def number(low, high):
        return int(torch.randint(low, high, (), generator=draw))

    for _ in range(6):
        trajectories = []
        for _ in range(number(1, 6)):
            turns, ids = [], [1]
            for _ in range(number(1, 5)):
                answer = [2] * number(1, 5)
                turns.append(turn(ids, answer, float(number(-3, 4)), *[-1.0] * len(answer)))
                # Half of the turns continue the row, half begin a new one.
                ids = [*ids, *answer, 3] if number(0, 2) else [7] * number(1, 4)
            trajectories.append(episode(*turns))
        batch = collate([Group(0, tuple(trajectories))])
        batch = replace(batch, values=torch.randn(batch.rewards.shape, generator=draw))
        torch.testing.assert_close(gae(batch, gamma=gamma, lam=lam), by_loop(batch, gamma, lam), atol=1e-5, rtol=1e-5)


def test_targets_are_advantage_plus_value_on_sampled_tokens_only():
    batch = ragged()
    targets = value_targets(batch, gae(batch))
    assert targets[batch.sampled].tolist() == pytest.approx([3.0, 3.0, 2.0, -1.0, 4.5, 4.5, 4.0])
    assert torch.count_nonzero(targets[~batch.sampled]) == 0


def test_values_are_required():
    with pytest.raises(ValueError, match=r"wanted batch\.values"):
        gae(replace(ragged(), values=None))


def two():
    """Turns of 2, 1 and 2 tokens with rewards 1, 0, 2; and one turn of 2 tokens with reward -1."""
    first = path(Sampled(reward=1.0), Sampled(reward=0.0, tokens=1), Sampled(reward=2.0))
    batch = batch_of([first, path(Sampled(reward=-1.0))])
    # Values at first tokens: 0.5, 1, 2 and 0.25; those behind them do not count.
    return with_values(batch, 0.5, 7.0, 1.0, 2.0, 8.0, 0.25, 9.0)


def test_with_gamma_and_lambda_1_it_is_the_return_to_come_minus_the_value_before_the_turn():
    batch = two()
    assert by_turn(batch, turn_gae(batch)) == [[3 - 0.5, 2 - 1.0, 2 - 2.0], [-1 - 0.25]]


def test_over_turns_with_other_gamma_and_lambda_by_hand():
    batch = two()
    # gamma 1/2, lambda 1/2, so gamma lambda is 1/4:
    #   delta_2 = 2 - 2 = 0                        A_2 = 0
    #   delta_1 = 0 + 0.5 * 2 - 1 = 0              A_1 = 0
    #   delta_0 = 1 + 0.5 * 1 - 0.5 = 1            A_0 = 1
    assert by_turn(batch, turn_gae(batch, gamma=0.5, lam=0.5)) == [[1.0, 0.0, 0.0], [-1.25]]
    # gamma 1, lambda 1/2: delta_2 = 0; delta_1 = 2 - 1 = 1; delta_0 = 1 + 1 - 0.5 = 1.5; A_0 = 1.5 + 0.5 * 1.
    assert by_turn(batch, turn_gae(batch, lam=0.5)) == [[2.0, 1.0, 0.0], [-1.25]]


def test_a_trajectory_with_a_row_per_turn_is_one_sequence():
    spread = episode(turn([1], [2, 3], 1.0, -1, -1), turn([9], [4], 0.0, -1), turn([8], [5, 6], 2.0, -1, -1))
    batch = with_values(collate([Group(0, (spread,))]), 0.5, 7.0, 1.0, 2.0, 8.0)
    assert by_turn(batch, turn_gae(batch, lam=0.5)) == [[2.0, 1.0, 0.0]]


def test_turns_of_one_token_are_tokens():
    batch = batch_of([path(*[Sampled(reward=reward, tokens=1) for reward in (1.0, -0.5, 2.0)])])
    batch = with_values(batch, 0.3, 0.7, -0.2)
    for settings in ({}, {"gamma": 0.9, "lam": 0.8}):
        torch.testing.assert_close(turn_gae(batch, **settings), gae(batch, **settings))


def test_targets_of_turns_are_equal_on_every_token_of_a_turn():
    batch = two()
    targets = turn_value_targets(batch, turn_gae(batch))
    assert by_turn(batch, targets) == [[3.0, 2.0, 2.0], [-1.0]]


def test_by_turns_it_needs_values_as_well():
    with pytest.raises(ValueError, match=r"wanted batch\.values"):
        turn_gae(replace(two(), values=None))


def test_over_turns_and_over_tokens_by_hand():
    batch = batch_of([path(Sampled(reward=1.0), Sampled(reward=2.0, tokens=1))])
    batch = with_values(batch, 0.5, 1.0, 3.0)
    # Over turns, gamma_h = lambda = 1/2, values at the ends 1 and 3:
    #   A_1 = 2 - 3 = -1
    #   A_0 = 1 + 0.5 * 3 - 1 + 0.25 * -1 = 1.25
    # Within the first turn, gamma = 1: its end has 1.25; before it delta = 0 + 1 - 0.5, plus lambda times 1.25.
    actual = bi_level_gae(batch, gamma=1.0, lam=0.5, high_level_gamma=0.5)
    assert actual[batch.sampled].tolist() == [0.5 + 0.5 * 1.25, 1.25, -1.0]


@pytest.mark.parametrize("seed", range(4))
def test_with_one_discount_and_lambda_1_it_is_gae(seed):
    batch = collate(random_groups(seed))
    batch = replace(batch, values=torch.randn(batch.rewards.shape, generator=torch.Generator().manual_seed(seed)))
    actual = bi_level_gae(batch, gamma=1.0, lam=1.0, high_level_gamma=1.0)
    torch.testing.assert_close(actual, gae(batch), atol=1e-5, rtol=1e-5)


def test_a_turn_without_reward_has_an_end_too():
    # Values 0; only the last turn earns. Per turn the reward is discounted once.
    batch = with_values(batch_of([path((-1, 0.0), (-1, 0.0), (-1, 8.0))]), *[0.0] * 6)
    actual = bi_level_gae(batch, high_level_gamma=0.5)
    assert actual[batch.sampled].tolist() == [2.0, 2.0, 4.0, 4.0, 8.0, 8.0]


def test_gae_over_both_levels_requires_values():
    with pytest.raises(ValueError, match=r"wanted batch\.values"):
        bi_level_gae(batch_of([path((-1, 1.0))]))
